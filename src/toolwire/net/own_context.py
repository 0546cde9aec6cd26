"""Run an async generator in a context (`contextvars`) of its own.

Separate because it is independent of agents. The body of an async generator runs in the context of its consumer, and
the consumer may change between two items. A context variable that the generator sets would be visible to the consumer,
and could not be reset.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Generator
from contextvars import Context, copy_context
from typing import Any, TypeVar

__all__ = ["in_own_context"]

T = TypeVar("T")


async def in_own_context(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of `source`, which runs in a copy of the current context, also while it is closed."""
    context = copy_context()
    try:
        while True:
            try:
                item = await _ContextAwaitable(context, source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        await _ContextAwaitable(context, source.aclose())


class _ContextAwaitable:
    """Await `work` in the current task, each step of it in `context`."""

    __slots__ = ("_context", "_work")

    def __init__(self, context: Context, work: Awaitable[Any]) -> None:
        self._context = context
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        raised: BaseException | None = None
        while True:
            try:
                pending = (
                    self._context.run(steps.send, None) if raised is None else self._context.run(steps.throw, raised)
                )
            except StopIteration as done:
                return done.value
            try:
                yield pending
                raised = None
            except BaseException as error:  # noqa: BLE001  # thrown into the generator, such as a cancellation
                raised = error
