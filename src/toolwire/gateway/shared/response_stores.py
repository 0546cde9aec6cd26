"""Open the store of the Responses state that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, time

from ...ir.errors import ConfigError
from ...net.stores.address import display_name
from ..settings import ResponsesRow, resolve_address
from .response_store import InMemoryResponses, OwnerBounds, ResponseStore

__all__ = ["open_responses", "responses_address"]

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


def open_responses(
    row: ResponsesRow,
    environment: Mapping[str, str],
    clock: Callable[[], float] = time,
    *,
    memory_file: Path | None = None,
) -> ResponseStore:
    """Open the store of the settings. It connects on first use; ConfigError or MissingExtra if it never could.

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
        from .redis_responses import RedisResponses

        return RedisResponses(RedisLink(address, monotonic, "responses.store"), bounds, clock)
    from .sql_link import PostgresLink, SqliteLink
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
