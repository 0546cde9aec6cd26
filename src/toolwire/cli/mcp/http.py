"""Serve an app over HTTP: address, access, server, signals.

Log records are written in a thread, so that a server does not stop when its standard error is not read.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import queue
import re
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..._extras import install_command
from ...ir.errors import ConfigError, MissingExtra
from ..terminal.options import add_list, read_variable
from ..terminal.output import print_note
from .stopping import stop_on_signals

if TYPE_CHECKING:
    import argparse
    import asyncio
    import socket
    from collections.abc import Callable, Coroutine, Iterator

    from ...asgi.access import Guard
    from ...asgi.request import AsgiApp
    from ...asgi.server import HttpServer
    from .stopping import CallsInFlight


# Write log records in a thread, so that a server does not stop when its standard error is not read.
#
# A parent process that starts a server with a pipe and does not read it would otherwise block the event loop as soon
# as the pipe is full. Records beyond the limit of the queue are dropped, and their number is logged when there is
# room again.


# records, some MB of memory; enough for bursts, while a pipe that is never read must cost a bounded amount
_MAX_WAITING = 10_000
_EXIT_TIMEOUT = 1.0  # seconds to write the last records at exit
_BACKLOG = 2048  # connections that wait in the kernel, as for the gateway
_INTERVAL = 0.05  # seconds between two looks at the calls that a stopped server waits for
_GRACE = 3.0  # seconds for the requests in progress at a stop; most clients start a new server and wait for it


class BackgroundHandler(logging.Handler):
    """Passes records to `target` in a daemon thread."""

    def __init__(self, target: logging.Handler, max_waiting: int = _MAX_WAITING) -> None:
        super().__init__()
        self._target = target
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(max_waiting)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="toolwire-log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self._queue.put_nowait(_drop_record(self._dropped))
                self._dropped = 0
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (record := self._queue.get()) is not None:
            self._target.handle(record)

    def close(self) -> None:
        """Write the waiting records, as far as they are read within a second."""
        atexit.unregister(self.close)
        end = time.monotonic() + _EXIT_TIMEOUT
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_EXIT_TIMEOUT)
            self._thread.join(max(0.0, end - time.monotonic()))
        super().close()


def _drop_record(count: int) -> logging.LogRecord:
    text = "%d log records were dropped: standard error is not read fast enough"
    return logging.LogRecord("toolwire.mcp", logging.WARNING, __file__, 0, text, (count,), None)


def add_http_options(parser: Any) -> None:
    """Add the options of an HTTP endpoint, except its address."""
    parser.add_argument("--path", default="/mcp", help="path of the HTTP endpoint (/mcp)")
    add_list(parser, "--allow-host", metavar="NAME", help="an accepted host name; repeatable")
    add_list(parser, "--allow-origin", metavar="URL", help="an allowed web origin; repeatable")
    parser.add_argument("--token-env", metavar="NAME", help="environment variable with the required bearer token")


def require_http(extra: str = "mcp") -> None:
    """Raise MissingExtra if HTTP cannot be served."""
    try:
        import httptools  # noqa: F401
    except ImportError:
        raise MissingExtra("HTTP needs httptools", hint=install_command(extra)) from None


async def serve_app(
    app: AsgiApp, offered: str, host: str, port: int, path: str, calls: CallsInFlight | None = None
) -> None:
    """Serve an app, with the gateway's limits for slow clients, until a signal stops it. Print the address of `offered`.

    With `calls`, the stop is bounded as in `stopping`. Raises `MissingExtra` without httptools, and `ConfigError` if the
    address cannot be used.
    """
    require_http()
    listeners = _open_listeners(host, port)
    port = listeners[0].getsockname()[1]  # the system chose one for port 0
    print_note(f"serving {offered} at http://{host}:{port}{path}", None)
    if calls is None:
        await serve_listeners(app, listeners)
        return
    import asyncio

    server, loop = make_server(app), asyncio.get_running_loop()

    def stop() -> None:
        """Wake the event loop, which the handler of a signal may have interrupted anywhere."""
        loop.call_soon_threadsafe(server.stop)

    with stop_on_signals(calls, {signal.SIGINT: stop, signal.SIGTERM: stop}):
        await server.serve(listeners)
        # The server cancels requests after its grace period, but a write that has begun goes on. If this returned
        # before the write has ended, the event loop would be closed without its record. The end of the process
        # bounds the wait.
        while calls.describe():  # noqa: ASYNC110  # at most 30 s at the end
            await asyncio.sleep(_INTERVAL)


def _open_listeners(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host. Raise ConfigError if that is not possible."""
    import socket

    listeners: list[socket.socket] = []
    reason = "no address"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            if listeners:  # the addresses of a host share the port that the system chose for 0
                port = listeners[0].getsockname()[1]
            try:
                listeners.append(
                    socket.create_server((address[0], port, *address[2:]), family=family, backlog=_BACKLOG)
                )
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                reason = str(error.strerror)  # `localhost` may have an address of IPv6 on a machine without IPv6
    except (OSError, UnicodeError) as error:  # a name that IDNA cannot encode
        for listener in listeners:
            listener.close()
        listeners, reason = [], getattr(error, "strerror", None) or str(error)
    if not listeners:
        hint = "the port is in use or not permitted; choose another one: --http :8001"
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}", hint=hint)
    return listeners


async def serve_listeners(app: AsgiApp, listeners: list[socket.socket]) -> None:
    """Serve an app on listening sockets until SIGTERM or SIGINT, which ends in KeyboardInterrupt."""
    from ...asgi.signal_handling import handle_signals

    server, is_interrupted = make_server(app), False

    def interrupt() -> None:
        nonlocal is_interrupted
        is_interrupted = True
        server.cancel() if server.is_stopping else server.stop()

    with handle_signals({signal.SIGINT: interrupt, signal.SIGTERM: server.stop}):
        await server.serve(listeners)
    if is_interrupted:
        raise KeyboardInterrupt


def make_server(app: AsgiApp) -> HttpServer:
    """Return a server with the gateway's limits for slow clients."""
    from ...asgi.server import HttpServer
    from ...asgi.server_context import ServerContext

    return HttpServer(ServerContext(app), grace=_GRACE)


def run_server(main: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine of a server, on the event loop of uvloop if that is installed. SIGTERM ends it normally."""
    import asyncio

    with _exit_on_sigterm(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into SystemExit in the block, before and after a server that handles it, so that cleanup follows.

    Outside of the main thread, which cannot set handlers, do nothing.
    """

    def stop(*_: object) -> None:
        raise SystemExit(0)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def make_guard(arguments: argparse.Namespace, host: str) -> Guard:
    """Build the guard from the options; raise ConfigError for a non-local address without a token."""
    from ...asgi.access import LOCAL_HOSTS, Guard, refuse_open

    token = read_variable(arguments.token_env)
    hosts = [*LOCAL_HOSTS, *arguments.allow_host, *(() if host in ("0.0.0.0", "[::]") else (host,))]  # noqa: S104
    guard = Guard(hosts, arguments.allow_origin, None if token is None else {token: "token"})
    if guard.is_open:
        hint = "require a bearer token with --token-env NAME, or listen on 127.0.0.1"
        refuse_open(host, without="a token", hint=hint)
    return guard


def parse_address(text: str) -> tuple[str, int]:
    """Parse `:8000`, `localhost:8000`, `[::1]:8000` or a bare port. Raise ConfigError for any other text."""
    found = re.fullmatch(r"(?:(\[[0-9a-fA-F:]+\]|[^:\[\]]*):)?(\d{1,5})", text)
    if found is None or int(found[2]) > 65535:
        raise ConfigError(f"invalid address {text!r}", hint="use --http :8000 or --http localhost:8000")
    return found[1] or "127.0.0.1", int(found[2])
