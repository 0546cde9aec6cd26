"""Run an agent in a background thread, and show its events in the main thread.

Only the main thread receives Ctrl-C, and only it uses the terminal: it prints events and asks for approvals, one after
the other, so that a question is never mixed with the text of an answer. The event loop stays open between answers;
connections to models and MCP servers are kept.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from ..terminal.input import HiddenTyping

if TYPE_CHECKING:
    from ...run.calls.steps import ApprovalReply, Approve


T = TypeVar("T")
_END = object()
_CLOSE_TIMEOUT = 10.0  # seconds to end MCP servers and connections
_CANCEL_TIMEOUT = 2.0  # seconds; a tool that ignores its cancellation must not keep the terminal after Ctrl-C
_MAX_AHEAD = 256  # events that wait for the terminal


class Interrupted(Exception):
    """The person stopped the answer with Ctrl-C. Its calls have ended."""


class AgentThread:
    """An event loop in a thread. `ask` runs in the main thread for each call that needs approval."""

    def __init__(self, ask: Callable[[Approve], ApprovalReply], on_wait: Callable[[], None]) -> None:
        """Start the thread. `on_wait`: reports that an interrupted answer waits for a running call."""
        self._ask = ask
        self._on_wait = on_wait
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._opened: Future[None] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="toolwire-agent", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Ctrl-C cancels it and raises Interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise Interrupted from None

    def open(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter a context manager in a task of its own; `close` leaves it in the same task."""
        value: Future[T] = Future()
        self._opened = asyncio.run_coroutine_threadsafe(self._hold(manager, value), self._loop)
        try:
            return value.result()
        except KeyboardInterrupt:
            self._opened.cancel()  # `close` need not wait for a manager that was not entered
            raise

    async def _hold(self, manager: AbstractAsyncContextManager[T], value: Future[T]) -> None:
        """Enter `manager`, set `value` to its result, and leave it when the thread closes.

        An error before the result is set on `value`; a later error is raised.
        """
        try:
            async with manager as entered:
                value.set_result(entered)
                await self._closing.wait()
        except BaseException as error:
            if value.done():
                raise
            value.set_exception(error)

    def show(self, items: AsyncGenerator[Any, None], show: Callable[[Any], None]) -> None:
        """Pass each item to `show`. Ctrl-C cancels the generator and raises Interrupted once its calls have ended.

        An item that cannot be shown, because the reader of a pipe is gone, cancels it, too. A second Ctrl-C raises
        KeyboardInterrupt at once.
        """
        future = asyncio.run_coroutine_threadsafe(self._pump(items), self._loop)
        try:
            with HiddenTyping() as typing:
                self._show_until_end(show, typing)
        except KeyboardInterrupt:
            self._cancel(future)
            raise Interrupted from None
        except BaseException:
            self._cancel(future)
            raise
        future.result()

    async def approve(self, step: Approve) -> ApprovalReply:
        """Ask in the main thread: the approver of the agent."""
        question = _Question(step)
        self._queue.put(question)
        return await asyncio.wrap_future(question.reply)

    def close(self) -> None:
        """Leave the context manager of `open`, stop the loop and end the thread.

        An answer that is still running is cancelled, and its errors are not reported.
        """
        if self._opened is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
            with suppress(BaseException):  # reported by `open`, or too late to matter
                self._opened.result(_CLOSE_TIMEOUT)
            self._opened.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.set_exception_handler(lambda *_: None)  # of an abandoned answer
        self._loop.run_until_complete(_cancel_tasks())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _pump(self, items: AsyncGenerator[Any, None]) -> None:
        """Put the items into the queue, and `_END` after the last or an error.

        Waits while the reader is `_MAX_AHEAD` items late.
        """
        try:
            async with aclosing(items):
                async for item in items:
                    self._queue.put(item)
                    while self._queue.qsize() > _MAX_AHEAD:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)  # the reader is a thread, without an event to wait for
        finally:
            self._queue.put(_END)

    def _show_until_end(self, show: Callable[[Any], None], typing: HiddenTyping | None = None) -> None:
        """Show the queued items until `_END`, and answer the agent's questions with `_ask`, with echo.

        Without `typing`, the run is cancelled: cancel its questions instead.
        """
        while (item := self._queue.get()) is not _END:
            if not isinstance(item, _Question):
                show(item)
            elif typing is None:
                item.reply.cancel()
            elif not item.reply.cancelled():
                with typing.paused():
                    reply = self._ask(item.step)
                if item.reply.set_running_or_notify_cancel():
                    item.reply.set_result(reply)

    def _cancel(self, future: Future[None]) -> None:
        """Cancel the answer and wait for its end. Writes that have begun are awaited."""
        future.cancel()
        timer = threading.Timer(1.0, self._on_wait)
        timer.start()
        try:
            self._show_until_end(lambda _: None)
        finally:
            timer.cancel()


async def _cancel_tasks() -> None:
    """Cancel the tasks of an abandoned answer, and give them a moment to end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT)


class _Question:
    """A call that needs approval, and the reply that the agent waits for."""

    def __init__(self, step: Approve) -> None:
        self.step = step
        self.reply: Future[ApprovalReply] = Future()


def report_waiting() -> None:
    """Explain why a stopped answer has not ended yet."""
    text = "stopped; waiting for running calls and tool servers to end (Ctrl-C again: leave without them)"
    print(text, file=sys.stderr, flush=True)
