"""The gateway on a port: bound where it is safe, drained when it is told to stop, reloaded when its settings change.

SIGTERM, SIGINT    no new connections; what runs may finish within `server.drain` seconds, then it ends in an error
SIGHUP             the log's file is opened anew, and the settings are read anew; a mistake in them is logged, and the old ones
                   stay
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError, MissingExtra, ToolwireError
from ..net.listening import refuse_open
from .app import Gateway
from .asgi import App
from .settings import Settings

if TYPE_CHECKING:
    import uvicorn

__all__ = ["bind", "serve"]

_log = getLogger("toolwire.gateway")
_KEEP_ALIVE = 75  # seconds; longer than the minute that balancers wait
_BACKLOG = 2048
_TRIES = 20  # ports after the usual one


def bind(settings: Settings, *, port: int | None = None) -> socket.socket:
    """A socket to listen on. The usual port gives way to the next free one; a port that was asked for does not."""
    host = settings.server.host
    _refuse_open(settings, host)
    ports = [port] if port is not None else range(settings.server.port, settings.server.port + _TRIES)
    for number in ports:
        try:
            return _listening(host, number)
        except OSError as error:
            reason = error.strerror or str(error)
        except OverflowError:
            raise ConfigError(f"{number} is no port", hint="0 to 65535; 0 takes any free one") from None
    raise ConfigError(f"cannot listen on {host}:{ports[0]}: {reason}", hint="--port 0 takes any free one")


def _refuse_open(settings: Settings, host: str) -> None:
    if not settings.keys:
        hint = "`toolwire serve keys new NAME` makes a key; or bind to 127.0.0.1"
        refuse_open(host, without="keys", hint=hint)


def _local_name(listener: socket.socket) -> str:
    """The address that is listened on; a Unix socket is on this machine."""
    is_internet = listener.family in (socket.AF_INET, socket.AF_INET6)
    return str(listener.getsockname()[0]) if is_internet else "localhost"


def _listening(host: str, port: int) -> socket.socket:
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
    app: App | None = None,
) -> None:
    """Serves until it is told to stop. `reload` gives the settings of now, `apply` puts them into effect where the gateway
    alone cannot, `ready` is called once it listens, `app` is the gateway with something around it."""
    host = _local_name(listener)
    _refuse_open(settings, host)

    async def again() -> None:
        found = settings if reload is None else reload()
        _refuse_open(found, host)  # the last key may be gone, and the place where we listen is still the same
        if apply is None:
            gateway.apply(found)
        else:
            await apply(found)

    reloading = _Reloading(again)
    try:
        await _server(gateway, settings, reloading.ask, ready, app or gateway).serve(sockets=[listener])
    finally:
        await reloading.aclose()


class _Reloading:
    """One at a time; who asks while one is under way gets another behind it."""

    def __init__(self, again: Callable[[], Awaitable[None]]) -> None:
        self._again = again
        self._wishes = 0
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        self._wishes += 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        while self._wishes:
            self._wishes = 0
            try:
                await self._again()
                _log.info("settings read anew")
            except ToolwireError as error:
                _log.error("the settings stay as they were: %s", error)
            except Exception:  # noqa: BLE001  # what somebody's file of tools does
                _log.exception("the settings stay as they were")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


def _server(
    gateway: Gateway,
    settings: Settings,
    reload: Callable[[], None],
    ready: Callable[[], None] | None,
    app: App,
) -> uvicorn.Server:
    try:
        import uvicorn

        from .protocol import limited
    except ImportError:
        raise MissingExtra("the gateway needs uvicorn", hint="pip install 'toolwire[gateway]'") from None

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Ours: uvicorn's would raise the signal once more when it is done."""
            with _signals({signal.SIGINT: self._stop, signal.SIGTERM: self._stop, signal.SIGHUP: reload}):
                yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            gc.collect()
            gc.freeze()  # what is there now stays: nobody has to look at it again
            if ready is not None:
                ready()

        def _stop(self) -> None:
            gateway.drain()
            self.force_exit = self.should_exit  # the second time
            self.should_exit = True

    return Server(
        uvicorn.Config(
            app,
            http=limited(lambda: gateway.limits),  # type: ignore[arg-type]  # uvicorn only calls it
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


@contextmanager
def _signals(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
