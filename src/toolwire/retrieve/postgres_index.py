"""Share an index of tools in PostgreSQL, with pgvector for the vectors.

    index = PostgresIndex("postgresql://user@host/database", encoder=open_minilm())
    index.replace_server(github.tools, server="github")

The table (`toolwire_tools`) is created on first use; its comment contains the version and the encoder, and a table of
another encoder is refused. Writers take turns, so that revisions become visible in their order and a reader misses none.
A removed tool leaves a row without content. The search is exact; above some 200,000 tools, an approximate one needs
`CREATE INDEX ON toolwire_tools USING hnsw (embedding vector_ip_ops)`. The role needs the right to create tables, and
with an encoder the extension `vector` must be available. `toolwire.retrieve.shared_index` lists the differences from a
`ToolIndex`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, get_args

from ..ir.errors import ConfigError
from ..ir.tools import Effect
from ..net.stores.postgres_pool import PostgresPool, PostgresTable
from .entry_table import SearchFilter
from .shared_index import SharedIndex, StoredTool
from .vectors import Encoder, Vectors

_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_READ_ROWS = 1_000  # per answer; a row has a vector and a declaration
_EFFECTS = frozenset(get_args(Effect))


class PostgresIndex(SharedIndex):
    """An index in PostgreSQL. Without an encoder, it is searched by words only and needs no pgvector."""

    def __init__(
        self,
        url: str,
        encoder: Encoder | None = None,
        *,
        table: str = "toolwire_tools",
        refresh_seconds: float = 2.0,
        candidates: int = 1000,
    ) -> None:
        if not _TABLE.fullmatch(table):
            raise ConfigError(
                f"invalid name of a table: {table!r}", hint="use up to 41 lower-case letters, digits and underscores"
            )
        super().__init__(
            _PostgresTools(url, table, encoder), encoder, refresh_seconds=refresh_seconds, candidates=candidates
        )


class _PostgresTools:
    """One statement per operation, each in its own transaction."""

    def __init__(self, url: str, table: str, encoder: Encoder | None) -> None:
        self._pool = PostgresPool(url, (_describe_table(table, encoder),))
        self._embedding = "g.embedding::vector" if encoder is not None else "NULL"
        self._table = table

    def put(self, tools: Sequence[StoredTool]) -> None:
        """Insert or update the rows whose digest differs."""
        values = {
            "ids": [_row_id(tool.server, tool.name) for tool in tools],
            "servers": [tool.server.encode() for tool in tools],
            "names": [tool.name.encode() for tool in tools],
            "digests": [tool.digest for tool in tools],
            "data": [tool.data for tool in tools],
            "effects": [tool.effect for tool in tools],
            "tags": [",".join(map(_hex, tool.tags)) for tool in tools],
            "embeddings": [None if tool.vector is None else str(list(tool.vector)) for tool in tools],
        }
        self._pool.run(_PUT.format(table=self._table, embedding=self._embedding), values)

    def remove(self, keys: Sequence[tuple[str, str]]) -> None:
        self._pool.run(_REMOVE.format(table=self._table), {"ids": [_row_id(*key) for key in keys]})

    def changes(self, after: int) -> Iterator[tuple[list[StoredTool], int]]:
        while True:
            rows = self._pool.run(_CHANGES.format(table=self._table), {"after": after, "most": _READ_ROWS}).fetchall()
            if not rows:
                return
            after = int(rows[-1][0])
            yield [_read_row(row) for row in rows], after

    def nearest(
        self, vectors: Vectors, count: int, given: SearchFilter, also: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Sequence[float]]:
        """Return the scores of the `count` best tools for the first vector, and of `also`, for each vector."""
        values: dict[str, Any] = {
            "queries": [str(vector.tolist()) for vector in vectors],
            "most": count,
            "ids": [_row_id(*key) for key in also],
            "servers": None if given.servers is None else [server.encode() for server in given.servers],
            "effects": None if given.effects is None else list(given.effects),
            "tags": None if given.tags is None else list(map(_hex, given.tags)),
        }
        return _by_key(self._pool.run(_NEAREST.format(table=self._table), values).fetchall())

    def vectors(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Sequence[float]]:
        values = {"ids": [_row_id(*key) for key in keys]}
        return _by_key(self._pool.run(_VECTORS.format(table=self._table), values).fetchall())

    def close(self) -> None:
        self._pool.close()


def _describe_table(table: str, encoder: Encoder | None) -> PostgresTable:
    """Return the table's definition.

    Its comment names the encoder, so that an index with another encoder is refused.
    """
    if encoder is None:
        version, extension, kind = "toolwire tools, version 1, without vectors", "", "bytea"
    else:
        name = encoder.name.replace("'", "").replace("\\", "")[:200]
        version = f"toolwire tools, version 1, vectors of {name} with {encoder.dimensions} dimensions"
        extension, kind = "CREATE EXTENSION IF NOT EXISTS vector;", f"vector({encoder.dimensions:d})"
    return PostgresTable(
        table,
        version,
        f"""
{extension}
CREATE SEQUENCE IF NOT EXISTS {table}_revision;
CREATE TABLE IF NOT EXISTS {table} (
    id bytea PRIMARY KEY, server bytea NOT NULL, name bytea NOT NULL, digest bytea NOT NULL, data bytea NOT NULL,
    effect text NOT NULL, tags text[] NOT NULL, revision bigint NOT NULL, embedding {kind}
);
CREATE INDEX IF NOT EXISTS {table}_by_revision ON {table} (revision);
COMMENT ON TABLE {table} IS '{version}';
""",
    )


# The lock makes writers take turns until their commit: a later revision is never visible before an earlier one.
_LOCKED = "locked AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('{table}'))::text AS lock)"
_PUT = f"""
WITH {_LOCKED}, given AS (
    SELECT * FROM unnest(
        %(ids)s::bytea[], %(servers)s::bytea[], %(names)s::bytea[], %(digests)s::bytea[], %(data)s::bytea[],
        %(effects)s::text[], %(tags)s::text[], %(embeddings)s::text[]
    ) AS g (id, server, name, digest, data, effect, tags, embedding)
)
INSERT INTO {{table}} AS t (id, server, name, digest, data, effect, tags, revision, embedding)
SELECT g.id, g.server, g.name, g.digest, g.data, g.effect, string_to_array(g.tags, ','),
    nextval('{{table}}_revision'), {{embedding}}
FROM locked, given g
ON CONFLICT (id) DO UPDATE SET
    digest = excluded.digest, data = excluded.data, effect = excluded.effect, tags = excluded.tags,
    revision = excluded.revision, embedding = excluded.embedding
WHERE t.digest <> excluded.digest
"""
_REMOVE = f"""
WITH {_LOCKED}
UPDATE {{table}} AS t SET digest = '', data = '', tags = '{{{{}}}}', embedding = NULL, revision = nextval('{{table}}_revision')
FROM locked WHERE t.id = ANY(%(ids)s::bytea[]) AND t.data <> ''
"""
_CHANGES = """
SELECT revision, server, name, digest, data, effect FROM {table}
WHERE revision > %(after)s ORDER BY revision LIMIT %(most)s
"""
_NEAREST = """
WITH queries AS MATERIALIZED (
    SELECT number, query::vector FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS g (query, number)
), candidates AS (
    (
        SELECT id FROM {table}
        WHERE embedding IS NOT NULL
            AND (%(servers)s::bytea[] IS NULL OR server = ANY(%(servers)s::bytea[]))
            AND (%(effects)s::text[] IS NULL OR effect = ANY(%(effects)s::text[]))
            AND (%(tags)s::text[] IS NULL OR tags && %(tags)s::text[])
        ORDER BY embedding <#> (%(queries)s::text[])[1]::vector LIMIT %(most)s
    )
    UNION SELECT unnest(%(ids)s::bytea[])
)
SELECT t.server, t.name, array_agg(-(t.embedding <#> queries.query)::float8 ORDER BY queries.number)
FROM candidates JOIN {table} AS t USING (id), queries WHERE t.embedding IS NOT NULL GROUP BY t.id
"""


_VECTORS = """
SELECT server, name, embedding::real[] FROM {table} WHERE id = ANY(%(ids)s::bytea[]) AND embedding IS NOT NULL
"""


def _by_key(rows: Sequence[Any]) -> dict[tuple[str, str], Sequence[float]]:
    return {(bytes(server).decode(), bytes(name).decode()): numbers for server, name, numbers in rows}


def _row_id(server: str, name: str) -> bytes:
    return sha256(b"\0".join((server.encode(), name.encode()))).digest()


def _hex(tag: str) -> str:
    """Encode a tag: text of PostgreSQL has no character 0."""
    return tag.encode().hex()


def _read_row(row: Sequence[Any]) -> StoredTool:
    _, server, name, digest, data, effect = row
    known: Effect = effect if effect in _EFFECTS else "write"
    return StoredTool(bytes(server).decode(), bytes(name).decode(), bytes(digest), bytes(data), known)
