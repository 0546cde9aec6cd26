"""The stores of records (`toolwire.run.values.records`): SQLite, Redis, PostgreSQL, and the memory of this process.

    open_store("runs.db")                        a path, or sqlite:///runs.db, sqlite:////var/lib/runs.db
    open_store("redis://localhost:6379/0")       rediss:// for TLS, unix:// for a socket     extra redis
    open_store("postgresql://me@localhost/db")                                             extra postgres
    open_store("memory:")                        lost when the process ends

A store connects on first use. An operation that fails raises StoreError.
"""

from __future__ import annotations

import re

from ...ir.errors import ConfigError
from ...run.values.records import Store

__all__ = ["open_store"]

_HINT = "use memory:, a path, sqlite:///path, redis://host, rediss://host, unix://socket or postgresql://host/database"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # two letters or more: C:\runs.db is a path


def open_store(url: str) -> Store:
    """Open the store at an address. Raise ConfigError if the address is not supported.

    `memory:` is a store in this process, `redis://…`, `rediss://…` and `unix://…` are Redis, `postgresql://…` is
    PostgreSQL, and a path or `sqlite:///PATH` is an SQLite file.

    >>> open_store("memory:").records()
    []
    """
    named = _SCHEME.match(url)
    scheme = named[1].lower() if named else ""
    if scheme == "memory" and url.lower() == "memory:":
        from .memory import MemoryStore

        return MemoryStore()
    if scheme in {"redis", "rediss", "unix"} and "://" in url:
        from .redis import RedisStore

        return RedisStore(url)
    if scheme in {"postgresql", "postgres"} and "://" in url:
        from .postgres import PostgresStore

        return PostgresStore(url)
    path = _path(url, scheme)
    if path in {"", ":memory:"}:
        raise ConfigError(
            f"unsupported store address {scheme}:…" if scheme else f"unsupported store address {path!r}", hint=_HINT
        )
    from .sqlite import SqliteStore

    return SqliteStore(path)


def _path(url: str, scheme: str) -> str:
    if not scheme:
        return url
    return url[len("sqlite:///") :] if url.lower().startswith("sqlite:///") else ""
