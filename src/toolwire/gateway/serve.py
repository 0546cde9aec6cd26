"""Run the gateway on a port: refuse unsafe addresses, drain on shutdown, reload changed settings.

SIGTERM, SIGINT    accept no new connections; in-flight requests may finish within `server.drain` seconds, then they end
                   in an error; a second SIGINT ends them at once
SIGHUP             reopen the log file, reload the settings and log the changes; if they are invalid, log the error
                   and keep the old ones
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any

from .._extras import install_command
from ..asgi.accepting import BatchListener
from ..asgi.access import refuse_open
from ..asgi.admission import ConnectionCounts
from ..asgi.request import AsgiApp
from ..ir.errors import ConfigError, MissingExtra, ToolwireError
from ..ir.hints import translate_hint
from .app import Gateway
from .process_settings import apply_process_settings
from .settings import Settings
from .settings_change import describe_change
from .signals import handle_signals
from .tls import check_certificate, load_certificate
from .worker_process import SharedListener, WorkerProcess

if TYPE_CHECKING:
    import uvicorn

__all__ = ["bind", "serve"]

_log = getLogger("toolwire.gateway")
_KEEP_ALIVE = 75  # seconds; longer than the minute after which balancers close a connection
_BACKLOG = 2048
_DEFAULT_PORT = 4141
_MAX_PORT_TRIES = 20  # ports, from the default one
_PORT_HINT = "stop the program that listens there, or choose another port; 0 takes any free port"


def bind(settings: Settings, *, port: int | None = None) -> socket.socket:
    """Open a listening socket on `port`, or on the port of the settings.

    Without both, it is the first free port from the default one. With keys, that port is exact, too: clients would send
    their keys to the process that has taken it.
    """
    host = settings.server.host
    _check_exposure(host, requires_key=bool(settings.keys))
    exact = settings.server.port if port is None else port
    tries = 1 if settings.keys else _MAX_PORT_TRIES
    ports = range(_DEFAULT_PORT, _DEFAULT_PORT + tries) if exact is None else [exact]
    for number in ports:
        try:
            listener = _open_listener(host, number)
        except OSError as error:
            reason = error.strerror or str(error)
        except OverflowError:
            raise ConfigError(f"invalid port {number}", hint="use 0 to 65535; 0 takes any free port") from None
        else:
            if number != ports[0]:
                _log.warning("port %d is in use, so the gateway listens on port %d", ports[0], number)
            return listener
    raise ConfigError(f"cannot listen on {host}:{ports[0]}: {reason}", hint=_PORT_HINT)


def _check_exposure(host: str, *, requires_key: bool) -> None:
    if not requires_key:
        hint = "run `toolwire serve keys new NAME` to make a key, or bind to 127.0.0.1"
        refuse_open(host, without="keys", hint=hint)


def _listening_host(listener: socket.socket) -> str:
    """Return the listening address; a Unix socket counts as localhost."""
    is_internet = listener.family in (socket.AF_INET, socket.AF_INET6)
    return str(listener.getsockname()[0]) if is_internet else "localhost"


def _open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket. SO_REUSEADDR allows a restart while old connections are in TIME_WAIT."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener


async def serve(
    gateway: Gateway,
    settings: Settings,
    listener: socket.socket,
    *,
    reload: Callable[[], Settings] | None = None,
    apply: Callable[[Settings], Awaitable[None]] | None = None,
    ready: Callable[[], None] | None = None,
    app: AsgiApp | None = None,
    ends_process: bool = False,
    worker: WorkerProcess | None = None,
) -> None:
    """Serve until a signal stops the server.

    `reload` returns the current settings. `apply` applies them where the gateway alone cannot. `ready` is called once
    the server listens. `app` is the gateway with an app around it. `ends_process`: signals are ignored afterwards.
    `worker`: this process is a worker, and shares `listener` with others.
    """
    _check_exposure(_listening_host(listener), requires_key=gateway.requires_key)

    async def apply_reload() -> str:
        """Load and apply the current settings, and describe their change."""
        nonlocal settings
        new_settings = settings if reload is None else reload()
        load_certificate(server.config.ssl, new_settings.server)
        if apply is None:
            gateway.apply(new_settings)
        else:
            await apply(new_settings)
        old_settings, settings = settings, new_settings
        return describe_change(old_settings, new_settings)

    reloader = _Reloader(apply_reload)
    server = _make_server(
        gateway,
        settings,
        listener,
        reloader.request_reload,
        ready,
        app or gateway,
        ends_process=ends_process,
        worker=worker,
    )
    try:
        await server.serve(sockets=[])
    finally:
        await reloader.aclose()


class _Reloader:
    """Run one reload at a time; a request during a reload starts another one after it."""

    def __init__(self, run_reload: Callable[[], Awaitable[str]]) -> None:
        self._run_reload = run_reload
        self._pending_requests = 0
        self._task: asyncio.Task[None] | None = None

    def request_reload(self) -> None:
        self._pending_requests += 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run_pending())

    async def _run_pending(self) -> None:
        """Reload until there are no new requests. On failure, the old settings stay in place."""
        while self._pending_requests:
            self._pending_requests = 0
            try:
                _log.info("settings reloaded: %s", await self._run_reload())
            except ToolwireError as error:
                error.hint = translate_hint(error.hint, "setting")
                _log.error("cannot reload the settings; keeping the old ones: %s", error)
            except Exception:  # noqa: BLE001  # loading a user's tool file may raise anything
                _log.exception("cannot reload the settings; keeping the old ones")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


def _make_server(
    gateway: Gateway,
    settings: Settings,
    listener: socket.socket,
    reload: Callable[[], None],
    ready: Callable[[], None] | None,
    app: AsgiApp,
    *,
    ends_process: bool,
    worker: WorkerProcess | None,
) -> uvicorn.Server:
    """Make uvicorn's server, with our signal handlers and our limits."""
    try:
        import uvicorn

        from ..asgi.limited_http import make_limited_protocol
    except ImportError:
        raise MissingExtra("the gateway needs uvicorn", hint=install_command("gateway")) from None

    check_certificate(settings.server)
    counts = ConnectionCounts.from_descriptors(gateway.admission.limit)

    class _UvicornServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Handle signals ourselves: uvicorn would raise the signal again after shutdown."""
            handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._stop, signal.SIGHUP: reload}
            with handle_signals(handlers, ignore_afterwards=ends_process):
                yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            apply_process_settings(lambda: gateway.admission.in_flight)
            gc.collect()
            gc.freeze()  # objects that exist now stay; the collector need not visit them again
            _listen(self, listener, worker, counts.limit + counts.reserve)
            if ready is not None:
                ready()

        def _stop(self) -> None:
            """Stop accepting at once; uvicorn would do so up to 0.1 seconds later."""
            gateway.drain()
            self.should_exit = True
            for server in getattr(self, "servers", ()):  # set when it listens
                server.close()

        def _interrupt(self) -> None:
            """Stop, and end the requests in an error if it is stopping. SIGTERM may arrive twice for one stop."""
            if self.should_exit:
                for task in self.server_state.tasks:
                    task.cancel()
            self._stop()

    return _UvicornServer(
        uvicorn.Config(
            app,
            ssl_certfile=settings.server.certificate,
            ssl_keyfile=settings.server.private_key,
            http=make_limited_protocol(lambda: gateway.limits, counts, gateway),  # type: ignore[arg-type]  # uvicorn only calls it
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, int(settings.server.drain)),
        )
    )


def _listen(server: uvicorn.Server, listener: socket.socket, worker: WorkerProcess | None, limit: int) -> None:
    """Accept connections as the last step of the start: until then, other workers take them."""
    state, ssl = server.server_state, server.config.ssl
    make_protocol: Any = server.config.http_protocol_class  # as uvicorn calls it
    make_protocol = partial(make_protocol, config=server.config, server_state=state, app_state=server.lifespan.state)
    accepting = (
        BatchListener(listener, make_protocol, state.connections, limit, ssl)
        if worker is None
        else SharedListener(worker, make_protocol, state.connections, limit, ssl)
    )
    server.servers.append(accepting)  # type: ignore[arg-type]  # it has the methods that uvicorn calls
    if not server.should_exit:
        accepting.start()
