"""An HTTP server for one ASGI application: lifespan, listeners, and a graceful stop.

    server = HttpServer(ServerContext(app), grace=10.0)
    await server.serve([listener])         # until `stop` is called, as the handler of a signal does

The steps of `serve` can be called one by one, for work in between: `start` (the application starts), `listen` (clients
connect), `finish`. The order at the end: stop accepting; close connections that are idle, and the others after their
answers; cancel the requests that are not answered after `grace` seconds; end the application; close the connections that are left.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sized
from functools import partial
from logging import DEBUG, ERROR, getLogger
from ssl import SSLContext
from typing import TypeAlias

from ..ir.errors import ConfigError
from .accepting import BatchListener
from .connection import Connection
from .request import AsgiApp, AsgiMessage, Scope
from .server_context import ServerContext

_log = getLogger("toolwire.asgi")
_END_OF_APPLICATION = 20.0  # seconds; stores and child processes end sooner, and supervisors kill after about 30
_END_OF_ANSWER = 1.0  # seconds in which a cancelled request may end its answer; the gateway writes a final event

MakeListener: TypeAlias = Callable[[Callable[[], asyncio.Protocol], Sized, int, SSLContext | None], BatchListener]


class HttpServer:
    """A server. `grace`: seconds in which requests may be answered after a stop. `tls` is for all listeners."""

    def __init__(self, context: ServerContext, *, grace: float, tls: SSLContext | None = None) -> None:
        self.context = context
        self.tls = tls
        self._grace = grace
        self._lifespan = _Lifespan(context.app, context.app_state)
        self._listeners: list[BatchListener] = []
        self._stop_requested = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stop_requested.is_set()

    async def serve(self, listeners: Iterable[socket.socket]) -> None:
        """Serve on listening sockets, which are closed at the end, until `stop` is called."""
        await self.start()
        for listener in listeners:
            self.listen(partial(BatchListener, listener))
        await self.finish()

    async def start(self) -> None:
        """Start the application. Raise its error if it fails."""
        await self._lifespan.startup()

    def listen(self, make_listener: MakeListener) -> None:
        """Accept connections, unless the server stops already."""
        if self.is_stopping:
            return
        context, counts = self.context, self.context.counts
        limit = counts.limit + counts.reserve  # of connections and TLS handshakes together
        listener = make_listener(partial(Connection, context), context.connections, limit, self.tls)
        self._listeners.append(listener)
        listener.start()

    def stop(self) -> None:
        """Stop accepting, and close connections after their next answer. It may be called repeatedly."""
        if self.is_stopping:
            return
        self._stop_requested.set()
        for listener in self._listeners:
            listener.close()
        for connection in list(self.context.connections):
            connection.shutdown()

    def cancel(self) -> None:
        """Cancel the requests in progress. An application may still write the end of an answer."""
        for task in self._tasks():
            task.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [exchange.task for exchange in self.context.exchanges if exchange.task is not None]

    async def finish(self) -> None:
        """Wait for `stop`, then for the requests in progress, and end the application."""
        try:
            await self._stop_requested.wait()
        finally:
            self.stop()  # also if this task is cancelled
        try:
            async with asyncio.timeout(self._grace):
                await self._drain()
        except TimeoutError:
            if tasks := self._tasks():
                _log.error("cancel %d requests: not answered %g s after the stop", len(tasks), self._grace)
                self.cancel()
                await asyncio.wait(tasks, timeout=_END_OF_ANSWER)
        await self._lifespan.shutdown()
        for connection in list(self.context.connections):
            connection.close()

    async def _drain(self) -> None:
        """Wait until every connection is closed, and every request has ended, also those without a connection."""
        for listener in self._listeners:
            await listener.wait_closed()
        while self.context.connections:
            await self.context.has_no_connections.wait()
        while tasks := self._tasks():
            await asyncio.wait(tasks)


class _Lifespan:
    """The lifespan protocol of ASGI. An application that does not support it is served without it."""

    def __init__(self, app: AsgiApp, state: dict[str, object]) -> None:
        self._app = app
        self._state = state
        self._events: asyncio.Queue[AsgiMessage] = asyncio.Queue()
        self._answers: asyncio.Queue[AsgiMessage | None] = asyncio.Queue()  # None at the end of the application
        self._is_started = False
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Raise ConfigError if the application reports that it cannot start."""
        self._task = asyncio.ensure_future(self._run())
        self._events.put_nowait({"type": "lifespan.startup"})
        answer = await self._answers.get()
        self._is_started = answer is not None
        if answer is None:
            self._task = None
        elif answer["type"] == "lifespan.startup.failed":
            raise ConfigError(f"the application failed to start: {answer.get('message') or 'without a message'}")

    async def shutdown(self) -> None:
        if self._task is not None:
            self._events.put_nowait({"type": "lifespan.shutdown"})
            _, running = await asyncio.wait({self._task}, timeout=_END_OF_APPLICATION)
            if running:
                _log.error("cancel the application: it has not ended %g s after the stop", _END_OF_APPLICATION)
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=_END_OF_ANSWER)

    async def _run(self) -> None:
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._events.get, self._answers.put)
        except Exception as error:  # noqa: BLE001  # an application without support may raise any error
            _log.log(ERROR if self._is_started else DEBUG, "the lifespan of the application failed", exc_info=error)
        finally:
            self._answers.put_nowait(None)
