"""Run the gateway on a port: refuse unsafe addresses, drain on shutdown, reload changed settings.

SIGTERM, SIGINT    accept no new connections; in-flight requests may finish within `server.drain` seconds, then they end
                   in an error; a second SIGINT ends them at once
SIGHUP             reopen the log file, reload the settings and log the changes; if they are invalid, log the error
                   and keep the old ones

The order at the end matters: fail the readiness probe and stop accepting, let requests finish, cancel the rest, wait for
their final events (`Gateway.lifespan`). Open connections are still served meanwhile, so a balancer that probes over one of
them sees the failed probe. A request that is cancelled has a moment to write its final event, so that a client can distinguish it
from a broken connection. At the start, accepting is the last step: until then, other workers take the connections.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from logging import getLogger

from ...asgi.accepting import BatchListener
from ...asgi.access import refuse_open
from ...asgi.admission import ConnectionCounts
from ...asgi.request import AsgiApp
from ...asgi.server import HttpServer
from ...asgi.server_context import ServerContext
from ...asgi.signal_handling import SignalHandling, handle_signals
from ...asgi.websocket import open_websocket
from ...ir.errors import ConfigError, ToolwireError
from ...ir.hints import translate_hint
from ...ir.terminal import count_of
from ..app import Gateway
from ..config.credentials import load_certificate, make_tls_context
from ..config.settings import Row, Settings
from .worker_process import SharedListener, WorkerProcess

# Settings of the interpreter and of the allocator for a process that only serves a gateway.


_SWITCH_INTERVAL = 0.001  # seconds; how long a worker thread may delay the event loop, instead of 5 ms
# A full collection stops all threads while it visits every object, so it waits for two million new objects.
_GC_THRESHOLDS = (2_000, 10, 100)
# The allocator keeps freed blocks below this size for reuse. Its default grows with the largest block that was freed, up
# to 32 MB, and then the bodies of past requests stay in the memory of the process.
_MMAP_THRESHOLD = 256 * 1024
_TRIM_THRESHOLD = 4 * 1024 * 1024  # free memory at the end of the heap that is kept
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_SAMPLE_INTERVAL = 1.0  # seconds; a peak that is shorter leaves little memory
_MIN_PEAK = 16  # requests in flight; fewer do not fragment much memory
_PEAK_SHARE = 4  # a peak is over when a quarter of its requests, or less, are in flight
_CALM_SAMPLES = 3  # in a row, so that most of the memory of a peak is free
_MIN_PAUSE = 10  # samples between two trims; one of 800 MB takes 0.1 seconds, during which allocations may wait


class MemoryTrimmer:
    """Returns free memory to the system after a peak of requests in flight.

    glibc itself returns only the end of a heap. After an overload with bodies of 40 kB, blocks that are still in use kept
    700 MB of free memory in the process.
    """

    def __init__(self, in_flight: Callable[[], int], trim: Callable[[], object]) -> None:
        self._in_flight = in_flight
        self._trim = trim
        self._peak = 0
        self._calm = 0  # samples in a row
        self._pause = 0  # samples until the next trim

    def start(self) -> None:
        """Take a sample every second in the running event loop, and trim in a thread."""
        loop = asyncio.get_running_loop()
        if self.sample():
            loop.run_in_executor(None, self._trim)
        loop.call_later(_SAMPLE_INTERVAL, self.start)

    def sample(self) -> bool:
        """Count the requests in flight, and return whether a peak is over, so that memory is to be trimmed."""
        count = self._in_flight()
        self._peak = max(self._peak, count)
        self._pause -= 1
        is_calm = self._peak >= _MIN_PEAK and count <= self._peak // _PEAK_SHARE
        self._calm = self._calm + 1 if is_calm else 0
        if self._calm < _CALM_SAMPLES or self._pause > 0:
            return False
        self._peak, self._calm, self._pause = count, 0, _MIN_PAUSE
        return True


def apply_process_settings(in_flight: Callable[[], int]) -> None:
    """Set the switch interval, the garbage collector and glibc's allocator, and start to return free memory.

    `in_flight` returns the number of requests in flight.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        library = ctypes.CDLL(None)
        mallopt, malloc_trim = library.mallopt, library.malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
    MemoryTrimmer(in_flight, lambda: malloc_trim(0)).start()


# Describe the difference between two settings in one line, for the log record of a reload.


_TABLES = {"models": "model", "keys": "key", "upstreams": "upstream", "tools": "tool table"}
_ROWS = ("limits", "capabilities_file", "server")
_FIXED_ROWS = ("state", "responses", "log", "trace")  # read at the start only
_FIXED_SERVER_FIELDS = ("host", "port", "workers", "drain", "heartbeat")
_FIXED_LIMITS = ("requests", "queue", "connections")
_MAX_NAMES = 5  # of a kind, so that the change is one line of the log
_MAX_NAME_LENGTH = 64  # characters, for the same reason


def describe_change(old: Settings, new: Settings) -> str:
    """Describe the new settings in a line: numbers of rows, changed names, and tables that need a restart."""
    counts = [count_of(len(getattr(new, table)), noun) for table, noun in _TABLES.items() if getattr(new, table)]
    changes = [
        change
        for table, noun in _TABLES.items()
        for change in _describe_table(getattr(old, table), getattr(new, table), noun)
    ]
    changes += [f"changed [{row}]" for row in _ROWS if getattr(old, row) != getattr(new, row)]
    if old.keys and not new.keys:
        changes.append("without a key, every request is rejected until a key is added or the gateway restarts")
    text = f"{', '.join(counts) or 'no models and keys'}; {'; '.join(changes) or 'nothing changed'}"
    fixed = [f"[{row}]" for row in _FIXED_ROWS if getattr(old, row) != getattr(new, row)]
    fixed += [
        f"server.{name}" for name in _FIXED_SERVER_FIELDS if getattr(old.server, name) != getattr(new.server, name)
    ]
    fixed += [f"limits.{name}" for name in _FIXED_LIMITS if getattr(old.limits, name) != getattr(new.limits, name)]
    return f"{text}; restart the gateway to apply {', '.join(fixed)}" if fixed else text


def _describe_table(old: Mapping[str, Row], new: Mapping[str, Row], noun: str) -> list[str]:
    names = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }
    return [f"{verb} {noun} {_join_names(affected)}" for verb, affected in names.items() if affected]


def _join_names(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMES
    shown = ", ".join(repr(name[:_MAX_NAME_LENGTH]) for name in names[:_MAX_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown


_log = getLogger("toolwire.gateway")
_KEEP_ALIVE = 75  # seconds; longer than the minute after which balancers close a connection
_BACKLOG = 2048  # connections that wait in the kernel, which reduces it to `net.core.somaxconn`
_DEFAULT_PORT = 4141  # any free number would do
_MAX_PORT_TRIES = 20  # ports, from the default one: more gateways than a developer runs
_PORT_HINT = "stop the program that listens there, or choose another port; 0 takes any free port"


def bind(settings: Settings, *, port: int | None = None) -> socket.socket:
    """Open a listening socket on `port`, or on the port of the settings.

    Without both, it is the first free port from the default one; another port than that is logged. With keys, that port
    is exact, too: clients would send their keys to the process that has taken it. Raise ConfigError if no port is free
    or valid, and if other machines could reach a gateway without keys.
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
    """Open a listening socket; SO_REUSEADDR: old connections may be in TIME_WAIT. Raise OSError or OverflowError."""
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
    handle: SignalHandling = handle_signals,
) -> None:
    """Serve until a signal stops the server. Raise ConfigError if a gateway without keys would be open to all.

    `reload` returns the current settings. `apply` applies them where the gateway alone cannot. `ready` is called once
    the server listens. `app` is the gateway with an app around it. `ends_process`: signals are ignored afterwards.
    `worker`: this process is a worker, and shares `listener` with others. `handle` installs the handlers of signals.
    """
    _check_exposure(_listening_host(listener), requires_key=gateway.requires_key)

    async def apply_reload() -> str:
        """Load the current settings and certificate, apply them, and return a description of the change."""
        nonlocal settings
        new_settings = settings if reload is None else reload()
        load_certificate(server.tls, new_settings.server)
        if apply is None:
            gateway.apply(new_settings)
        else:
            await apply(new_settings)
        old_settings, settings = settings, new_settings
        return describe_change(old_settings, new_settings)

    reloader = _Reloader(apply_reload)
    counts = ConnectionCounts.from_descriptors(gateway.admission.limit)
    context = ServerContext(
        app or gateway,
        limits=lambda: gateway.limits,
        counts=counts,
        gate=gateway,
        keep_alive=_KEEP_ALIVE,
        upgrade=open_websocket,
    )
    # Not less than the time in which the last request of an idle connection may arrive.
    server = HttpServer(context, grace=max(1.0, settings.server.drain), tls=make_tls_context(settings.server))
    stop = _StopHandlers(gateway, server)
    handlers = {signal.SIGINT: stop.interrupt, signal.SIGTERM: stop.stop, signal.SIGHUP: reloader.request_reload}
    try:
        with handle(handlers, ignore_afterwards=ends_process):
            await server.start()
            apply_process_settings(lambda: gateway.admission.in_flight)
            gc.collect()
            gc.freeze()  # objects that exist now stay; the collector need not visit them again
            # The last step of the start: until then, other workers take the connections.
            server.listen(partial(BatchListener, listener) if worker is None else partial(SharedListener, worker))
            if ready is not None:
                ready()
            await server.finish()
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
        """Reload until there are no new requests, and log each result. On failure, the old settings stay in place."""
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


class _StopHandlers:
    """The handlers of the signals that stop a server."""

    def __init__(self, gateway: Gateway, server: HttpServer) -> None:
        self._gateway = gateway
        self._server = server

    def stop(self) -> None:
        """Stop accepting, and fail the readiness probe."""
        if not self._server.is_stopping:
            self._gateway.drain()
            self._server.stop()

    def interrupt(self) -> None:
        """Stop, and end the requests in an error if it is stopping. SIGTERM may arrive twice for one stop."""
        if self._server.is_stopping:
            self._server.cancel()
        self.stop()
