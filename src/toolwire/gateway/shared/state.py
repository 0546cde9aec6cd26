"""The state of a gateway, shared or its own, as configured: limits, turns, stored responses, usage.

state = open_state(settings, os.environ)
gateway = Gateway(
    settings, limiter=state.limiter, memory=state.memory, responses=state.responses, sinks=state.sinks
)
…
await state.aclose()                         # writes pending usage
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from ...bridge.turns import InMemoryTurns, TurnStore
from ...ir.errors import ConfigError
from ..observe.request_log import Sink
from ..settings import Settings, StateRow, resolve_address
from .limits import InProcessLimiter, Limiter
from .response_store import ResponseStore
from .response_stores import open_responses

__all__ = ["State", "open_state", "usage_address"]

_SCHEMES = ("redis://", "rediss://", "unix://")


class State(Struct, frozen=True):
    """The parts of a gateway's state. `aclose` runs `close_callbacks` in order."""

    limiter: Limiter
    memory: TurnStore
    responses: ResponseStore
    sinks: tuple[Sink, ...] = ()
    close_callbacks: tuple[Callable[[], Awaitable[None]], ...] = ()

    async def aclose(self) -> None:
        for close in self.close_callbacks:
            await close()


def open_state(settings: Settings, environment: Mapping[str, str]) -> State:
    """Open the configured state. It connects on first use; ConfigError or MissingExtra if it never could."""
    row = settings.state
    url = resolve_address(row.url, row.url_env, "[state] url", environment)
    limiter: Limiter = InProcessLimiter(time.monotonic)
    memory: TurnStore = InMemoryTurns(row.turns, row.turn_bytes, row.turn_seconds, time.monotonic)
    close_callbacks: list[Callable[[], Awaitable[None]]] = []
    if url is not None:
        limiter, memory, close = _open_shared(url, row, limiter, memory)
        close_callbacks.append(close)
    elif row.strict:
        raise ConfigError("[state] strict requires url", hint="set url in [state], or remove strict")
    responses = open_responses(settings.responses, environment)
    close_callbacks.append(responses.aclose)
    usage = usage_address(settings, environment)
    if usage is None:
        return State(limiter, memory, responses, (), tuple(close_callbacks))
    from ..observe.usage import UsageSink
    from ..observe.usage_stores import open_usage

    sink = UsageSink(open_usage(usage))
    return State(limiter, memory, responses, (sink,), (*close_callbacks, lambda: asyncio.to_thread(sink.close)))


def usage_address(settings: Settings, environment: Mapping[str, str]) -> str | None:
    return resolve_address(settings.state.usage, settings.state.usage_env, "[state] usage", environment)


def _open_shared(
    url: str, row: StateRow, local_limiter: Limiter, local_memory: TurnStore
) -> tuple[Limiter, TurnStore, Callable[[], Awaitable[None]]]:
    """Open the limiter and the memory in Redis, and return them with the function that closes the connection.

    The local ones are used during an outage.
    """
    if not url.startswith(_SCHEMES):
        raise ConfigError("[state] url is not a Redis address", hint="use redis://host:6379/0, rediss://… or unix://…")
    from .redis_limits import RedisLimiter
    from .redis_link import RedisLink
    from .redis_turns import RedisTurns

    link = RedisLink(url, time.monotonic, "[state] url")
    limiter = RedisLimiter(link, None if row.strict else local_limiter)
    return limiter, RedisTurns(link, local_memory, row.turn_seconds, strict=row.strict), link.aclose
