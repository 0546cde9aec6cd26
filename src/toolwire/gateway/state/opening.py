"""Open the configured state of a gateway, shared or its own: limits, turns, cooldowns, stored responses, usage.

state = open_state(settings, os.environ)
gateway = Gateway(
    settings, limiter=state.limiter, turn_store=state.turn_store, responses=state.responses, cooldowns=state.cooldowns,
    sinks=state.sinks,
)
await state.open()                           # optional: connect before the first request
…
await state.aclose()                         # writes pending usage
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct

from ...bridge.conversation.turns import InMemoryTurns, TurnStore
from ...ir.errors import ConfigError
from ...net.stores.address import display_name
from ..config.settings import ResponsesRow, Settings, StateRow, require_store_folder, resolve_address
from ..keys import InProcessLimiter, Limiter, LocalLimiter
from ..observe.request_log import Sink
from ..responses.store import InMemoryResponses, OwnerBounds, ResponseStore
from ..routing.health import HealthTable, SharedHealthTable
from .shared import FileGap, Gap, LocalTurns, ProcessGap, SharedLimiter, SharedTurns

if TYPE_CHECKING:
    from .database import StateDatabase


# Open the store of the Responses state that the settings name.


_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


def open_responses(
    row: ResponsesRow,
    environment: Mapping[str, str],
    clock: Callable[[], float] = time,
    *,
    memory_file: Path | None = None,
) -> ResponseStore:
    """Open the store of the settings. It connects on first use. Raise ConfigError or MissingExtra if it never could.

    Without `responses.store`, only the upstreams of responses are stored, in memory. `memory_file` replaces the memory
    for several worker processes.
    """
    bounds = OwnerBounds(row.max_key_bytes, row.max_key_entries)
    address = responses_address(row, environment)
    if address is None or address == "memory:":
        if memory_file is None:
            return InMemoryResponses(bounds, clock)
        address = str(memory_file)
    if address.startswith(_REDIS_SCHEMES):
        from .redis_link import RedisLink
        from .redis_stores import RedisResponses

        return RedisResponses(RedisLink(address, monotonic, "responses.store"), bounds, clock)
    from .database import PostgresLink, SqliteLink
    from .sql_responses import TABLES, SqlResponses

    if address.startswith(("postgresql://", "postgres://")):
        return SqlResponses(PostgresLink(address, TABLES, "toolwire_responses", "responses.store"), bounds, clock)
    path = address.removeprefix("sqlite:///")
    if "://" in path or not path:
        hint = "use a file, sqlite:///FILE, redis://host:6379/0 or postgresql://user@host/database"
        raise ConfigError(f"unsupported responses.store: {display_name(address)}", hint=hint)
    return SqlResponses(SqliteLink(path, TABLES), bounds, clock)


def responses_address(row: ResponsesRow, environment: Mapping[str, str]) -> str | None:
    return resolve_address(row.store, row.store_env, "[responses] store", environment)


_Callback: TypeAlias = Callable[[], Awaitable[None]]
_POSTGRES_SCHEMES = ("postgresql://", "postgres://")
_SQLITE_TIMEOUT = 5.0  # seconds; a file does not become unreachable, but other processes may write to it


class State(Struct, frozen=True):
    """The parts of a gateway's state. Without `cooldowns`, the gateway has its own.

    `open` and `aclose` run their callbacks in order.
    """

    limiter: Limiter
    turn_store: TurnStore
    responses: ResponseStore
    cooldowns: HealthTable | None = None
    sinks: tuple[Sink, ...] = ()
    open_callbacks: tuple[_Callback, ...] = ()
    close_callbacks: tuple[_Callback, ...] = ()

    async def open(self) -> None:
        """Connect to the shared state. A failure is logged, and has no other effect."""
        for open_part in self.open_callbacks:
            await open_part()

    async def aclose(self) -> None:
        for close in self.close_callbacks:
            await close()


class _Parts(NamedTuple):
    """The parts that may be shared, and their callbacks."""

    limiter: Limiter
    turn_store: TurnStore
    cooldowns: HealthTable | None = None
    open_callbacks: tuple[_Callback, ...] = ()
    close_callbacks: tuple[_Callback, ...] = ()


class _LocalParts(NamedTuple):
    """The parts of this process or this machine. `gap` is for turns that the shared state may not have."""

    limiter: LocalLimiter
    turn_store: TurnStore
    gap: Gap
    open_callbacks: tuple[_Callback, ...] = ()
    close_callbacks: tuple[_Callback, ...] = ()


def open_state(settings: Settings, environment: Mapping[str, str], folder: Path | None = None) -> State:
    """Open the configured state. It connects on first use. Raise ConfigError or MissingExtra if it never could.

    `folder` is shared by the worker processes of one gateway. It has the state that one process has in its memory.
    """
    row = settings.state
    url, usage = state_address(settings, environment), usage_address(settings, environment)
    require_store_folder(url, "[state] url")
    require_store_folder(usage, "[state] usage")
    require_store_folder(responses_address(settings.responses, environment), "[responses] store")
    if url is None and row.strict:
        raise ConfigError("[state] strict requires url", hint="set url in [state], or remove strict")
    parts = _open_own(row) if url is None else _open_shared(url, row, folder)
    responses = open_responses(
        settings.responses, environment, memory_file=None if folder is None else folder / "responses.db"
    )
    close_callbacks = (*parts.close_callbacks, responses.aclose)
    sinks: tuple[Sink, ...] = ()
    if usage is not None:
        from .usage import UsageSink, open_usage

        sink = UsageSink(open_usage(usage))
        sinks, close_callbacks = (sink,), (*close_callbacks, lambda: asyncio.to_thread(sink.close))
    return State(
        parts.limiter, parts.turn_store, responses, parts.cooldowns, sinks, parts.open_callbacks, close_callbacks
    )


def state_address(settings: Settings, environment: Mapping[str, str]) -> str | None:
    return resolve_address(settings.state.url, settings.state.url_env, "[state] url", environment)


def usage_address(settings: Settings, environment: Mapping[str, str]) -> str | None:
    return resolve_address(settings.state.usage, settings.state.usage_env, "[state] usage", environment)


def _open_own(row: StateRow) -> _Parts:
    """Open the state of one process."""
    local = _open_in_process(row)
    return _Parts(local.limiter, local.turn_store)


def _open_in_process(row: StateRow) -> _LocalParts:
    turn_store = InMemoryTurns(row.turns, row.turn_bytes, row.turn_seconds, monotonic)
    return _LocalParts(InProcessLimiter(monotonic), turn_store, ProcessGap())


def _open_shared(url: str, row: StateRow, folder: Path | None) -> _Parts:
    """Open the shared state. During an outage, a state of this process or of this gateway's workers is used.

    Raise ConfigError if the address has an unknown scheme.
    """
    if url.startswith((*_REDIS_SCHEMES, *_POSTGRES_SCHEMES)):
        local = _open_in_process(row) if folder is None else _open_folder(row, folder)
        return (_open_redis if url.startswith(_REDIS_SCHEMES) else _open_postgres)(url, row, local)
    path = url.removeprefix("sqlite:///")
    if "://" in path or not path:
        hint = "use a file, sqlite:///FILE, redis://host:6379/0 or postgresql://user@host/database"
        raise ConfigError(f"unsupported [state] url: {display_name(url)}", hint=hint)
    return _open_file(Path(path), row, _open_in_process(row))


def _open_folder(row: StateRow, folder: Path) -> _LocalParts:
    """Open the state of the workers of one gateway, which a single process has in its memory."""
    from .file_limits import FileLimiter
    from .sql_stores import TURN_TABLES, SqlTurns

    limiter = FileLimiter(folder / "limits", InProcessLimiter(monotonic), timeout=row.timeout)
    database = _open_sqlite(folder / "turns.db", TURN_TABLES)
    table = SqlTurns(database, row.turn_seconds, bounds=OwnerBounds(row.turn_bytes, row.turns))
    return _LocalParts(
        limiter,
        LocalTurns(table),
        FileGap(folder / "gap"),
        (limiter.open, database.open),
        (database.aclose, limiter.aclose),
    )


def _open_file(file: Path, row: StateRow, local: _LocalParts) -> _Parts:
    """Open the state of all gateways on this machine: a SQLite file, and a file for the limits."""
    from .file_limits import FileLimiter
    from .sql_stores import COOLDOWN_TABLES, TURN_TABLES

    limits = file.with_name(f"{file.name}-limits")
    limiter = FileLimiter(limits, None if row.strict else local.limiter, timeout=row.timeout)
    parts = _open_sql(_open_sqlite(file, (*TURN_TABLES, *COOLDOWN_TABLES)), limiter, row, local)
    return parts._replace(
        open_callbacks=(limiter.open, *parts.open_callbacks), close_callbacks=(*parts.close_callbacks, limiter.aclose)
    )


def _open_postgres(url: str, row: StateRow, local: _LocalParts) -> _Parts:
    """Open the state in PostgreSQL: limits, turns and cooldowns in tables."""
    from .database import PostgresLink, StateDatabase
    from .sql_stores import COOLDOWN_TABLES, LIMIT_TABLES, TURN_TABLES, SqlLimiter

    tables = (*LIMIT_TABLES, *TURN_TABLES, *COOLDOWN_TABLES)  # the last one exists if all exist
    link = PostgresLink(url, tables, "toolwire_cooldowns", "[state] url")
    database = StateDatabase(link, timeout=row.timeout)
    limiter = SharedLimiter(SqlLimiter(database), local.limiter, strict=row.strict)
    return _open_sql(database, limiter, row, local)


def _open_redis(url: str, row: StateRow, local: _LocalParts) -> _Parts:
    """Open the state in Redis: limits, turns and cooldowns over one connection."""
    from .redis_link import RedisLink
    from .redis_stores import RedisCooldowns, RedisLimiter, RedisTurns

    link = RedisLink(url, monotonic, "[state] url", timeout=row.timeout)
    table = RedisTurns(link, row.turn_seconds, local.gap)
    cooldowns = SharedHealthTable(RedisCooldowns(link), monotonic)
    return _Parts(
        SharedLimiter(RedisLimiter(link), local.limiter, strict=row.strict),
        SharedTurns(table, local.turn_store, local.gap, strict=row.strict),
        cooldowns,
        (*local.open_callbacks, table.open),
        (cooldowns.aclose, link.aclose, *local.close_callbacks),
    )


def _open_sql(database: StateDatabase, limiter: Limiter, row: StateRow, local: _LocalParts) -> _Parts:
    """Return the turns and cooldowns of a database, with the given limiter."""
    from .sql_stores import SqlCooldowns, SqlTurns

    table = SqlTurns(database, row.turn_seconds)
    cooldowns = SharedHealthTable(SqlCooldowns(database), monotonic)
    return _Parts(
        limiter,
        SharedTurns(table, local.turn_store, local.gap, strict=row.strict),
        cooldowns,
        (*local.open_callbacks, database.open),
        (cooldowns.aclose, database.aclose, *local.close_callbacks),
    )


def _open_sqlite(file: Path, tables: tuple[str, ...]) -> StateDatabase:
    from .database import SqliteLink, StateDatabase

    return StateDatabase(SqliteLink(str(file), tables), timeout=_SQLITE_TIMEOUT)
