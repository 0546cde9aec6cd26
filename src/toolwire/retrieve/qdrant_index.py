"""Share an index of tools in Qdrant.

    index = QdrantIndex("https://qdrant.example.com:6333", encoder=open_minilm(), key="…")
    index.replace_server(github.tools, server="github")

The collection (`toolwire_tools`) is created on first use. Its vector has the name of the encoder, and a collection of
another encoder is refused. BM25 is computed in each process, and vectors are searched in Qdrant: its sparse vectors do
not have the discount for long texts per field, so that results would differ from a `ToolIndex`.

Qdrant has no transactions: of two writers of one tool, the last one wins. Readers recognise changes by the time of the
writer, and read those of the last minute again, so the clocks of writers must agree within a minute. A removed tool
leaves a point without a vector. `toolwire.retrieve.shared_index` lists the differences from a `ToolIndex`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra, StoreError
from .entry_table import SearchFilter
from .shared_index import SharedIndex, StoredTool
from .vectors import Encoder, Vectors

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

_NAMESPACE = UUID("7c0a5d2e-6c2b-4b86-9a1f-5d6f0f6b7a11")
_READ_POINTS = 500  # per answer; a point has a vector and a declaration as JSON
_CLOCK_TOLERANCE = 60_000_000  # microseconds
_TIMEOUT = 10  # seconds; a search takes milliseconds, and a batch of 500 tools must be stored

T = TypeVar("T")


class QdrantIndex(SharedIndex):
    """An index in Qdrant. `server` is a URL, or a client of your own, which you close yourself.

    Without an encoder, the index is searched by words only.
    """

    def __init__(
        self,
        server: str | QdrantClient,
        encoder: Encoder | None = None,
        *,
        key: str | None = None,
        collection: str = "toolwire_tools",
        refresh_seconds: float = 2.0,
        candidates: int = 1000,
    ) -> None:
        tools = _QdrantTools(server, key, collection, encoder)
        super().__init__(tools, encoder, refresh_seconds=refresh_seconds, candidates=candidates)


class _QdrantTools:
    def __init__(self, server: str | QdrantClient, key: str | None, collection: str, encoder: Encoder | None) -> None:
        """Connect, and create or check the collection.

        Raises `MissingExtra` without qdrant-client, and `ConfigError` for a key without TLS or other vectors.
        """
        try:
            import qdrant_client
            from qdrant_client import models
        except ImportError:
            raise MissingExtra("the package qdrant-client is not installed", hint=install_command("qdrant")) from None
        self._models = models
        self._collection = collection
        self._vector = None if encoder is None else encoder.name
        self._is_own = isinstance(server, str)
        self._turn = nullcontext() if self._is_own else threading.Lock()  # Qdrant in the process is not safe in threads
        self._client: Any = server
        if isinstance(server, str):
            _refuse_exposed_key(server, key)
            self._client = self._ask(
                lambda: qdrant_client.QdrantClient(server, api_key=key, timeout=_TIMEOUT, check_compatibility=False)
            )
        self._ask(lambda: self._find_or_make_collection(encoder))

    def _find_or_make_collection(self, encoder: Encoder | None) -> None:
        """Create the collection unless it exists. Raises `ConfigError` if its vectors are of another encoder."""
        models = self._models
        vectors = (
            {}
            if encoder is None
            else {encoder.name: models.VectorParams(size=encoder.dimensions, distance=models.Distance.DOT)}
        )
        if not self._client.collection_exists(self._collection):
            try:
                self._client.create_collection(self._collection, vectors_config=vectors)
            except Exception:  # another process made it at the same time
                if not self._client.collection_exists(self._collection):
                    raise
            else:
                if self._is_own:  # a collection in the process has no such indexes
                    self._client.create_payload_index(self._collection, "changed_at", models.PayloadSchemaType.INTEGER)
                    self._client.create_payload_index(self._collection, "server", models.PayloadSchemaType.KEYWORD)
        found = self._client.get_collection(self._collection).config.params.vectors or {}
        sizes = {name: params.size for name, params in found.items()} if isinstance(found, dict) else {"": found.size}
        if sizes != {name: params.size for name, params in vectors.items()}:
            raise ConfigError(
                f"the collection {self._collection!r} has the vectors {sizes}, not those of "
                f"{'no encoder' if encoder is None else f'{encoder.name} ({encoder.dimensions})'}",
                hint="use the encoder that the collection was made with, or another collection",
            )

    def put(self, tools: Sequence[StoredTool]) -> None:
        """Write or replace tools, with the time of the change, by which other processes find it."""
        changed_at = time.time_ns() // 1000
        points = [
            self._models.PointStruct(
                id=_point_id(tool.server, tool.name),
                vector={} if self._vector is None or tool.vector is None else {self._vector: list(tool.vector)},
                payload={
                    "server": tool.server,
                    "name": tool.name,
                    "digest": tool.digest.hex(),
                    "data": tool.data.decode(),
                    "effect": tool.effect,
                    "tags": list(tool.tags),
                    "changed_at": changed_at,
                },
            )
            for tool in tools
        ]
        self._ask(lambda: self._client.upsert(self._collection, points, wait=True))

    def remove(self, keys: Sequence[tuple[str, str]]) -> None:
        """Replace the points with empty ones, which other processes read as removals."""
        self.put([StoredTool(server, name, b"", b"") for server, name in keys])

    def changes(self, after: int) -> Iterator[tuple[list[StoredTool], int]]:
        """Yield pages of tools that changed after a position, with the new position.

        Reads again from a little earlier, because the clocks of the writers differ.
        """
        models = self._models
        since = models.Filter(
            must=[models.FieldCondition(key="changed_at", range=models.Range(gte=after - _CLOCK_TOLERANCE))]
        )
        latest = after
        offset: Any = None
        while True:
            points, offset = self._ask(
                partial(self._client.scroll, self._collection, since, limit=_READ_POINTS, offset=offset)
            )
            latest = max([latest, *(int(point.payload["changed_at"]) for point in points)])
            if points:
                # the position moves only after the last page: an interrupted reading starts again
                yield [_read_point(point.payload) for point in points], latest if offset is None else after
            if offset is None:
                return

    def nearest(
        self, vectors: Vectors, count: int, given: SearchFilter, also: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Sequence[float]]:
        """Return the scores of the `count` best tools for the first vector, and of `also`, for each vector."""
        found = self._search(vectors[:1], count, self._convert_filter(given))
        ids = list(
            {point.id: None for points in found for point in points} | dict.fromkeys(_point_id(*key) for key in also)
        )
        chosen = self._models.Filter(must=[self._models.HasIdCondition(has_id=ids)])
        scored = self._search(vectors, len(ids), chosen, payload=["server", "name"]) if ids else []
        names = {point.id: (point.payload["server"], point.payload["name"]) for points in scored for point in points}
        scores = [{point.id: float(point.score) for point in points} for points in scored]
        return {names[number]: [row.get(number, 0.0) for row in scores] for number in names}

    def vectors(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Sequence[float]]:
        """Return the vectors of the given tools; tools without a vector are left out."""
        ids = [_point_id(*key) for key in keys]
        fields = ["server", "name"]
        read = partial(self._client.retrieve, self._collection, ids, with_payload=fields, with_vectors=True)
        points = self._ask(read) if ids else []
        return {
            (point.payload["server"], point.payload["name"]): point.vector[self._vector]
            for point in points
            if point.vector
        }

    def _search(self, vectors: Vectors, count: int, given: Any, payload: Sequence[str] = ()) -> list[Any]:
        """Return the nearest points of each vector in one request, with the given fields of their payload."""
        requests = [
            self._models.QueryRequest(
                query=vector.tolist(),
                using=self._vector,
                limit=count,
                filter=given,
                with_payload=list(payload) or False,
            )
            for vector in vectors
        ]
        found = self._ask(lambda: self._client.query_batch_points(self._collection, requests))
        return [answer.points for answer in found]

    def close(self) -> None:
        if self._is_own:
            self._client.close()

    def _convert_filter(self, given: SearchFilter) -> Any:
        """Return a filter in Qdrant's form: each field must have one of its values."""
        models = self._models
        fields = {"server": given.servers, "tags": given.tags, "effect": given.effects}
        return models.Filter(
            must=[
                models.FieldCondition(key=name, match=models.MatchAny(any=list(values)))
                for name, values in fields.items()
                if values is not None
            ]
        )

    def _ask(self, operation: Callable[[], T]) -> T:
        """Run an operation of the client, one at a time for a client in the process.

        Raises `StoreError` for its errors.
        """
        from qdrant_client.http.exceptions import ApiException

        try:
            with self._turn:
                return operation()
        except (ApiException, OSError, ValueError, RuntimeError) as error:  # ValueError: a client in the process
            raise StoreError(
                f"Qdrant, collection {self._collection!r}: {str(error)[:500] or type(error).__name__}",
                hint="check that the server is running and the key is valid",
            ) from error


def _refuse_exposed_key(url: str, key: str | None) -> None:
    parts = urlsplit(url)
    if key is not None and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ConfigError(f"the key of {parts.hostname} would be sent over plain HTTP", hint="use an https:// address")


def _point_id(server: str, name: str) -> str:
    return str(uuid5(_NAMESPACE, f"{len(server)} {server} {name}"))


def _read_point(payload: Any) -> StoredTool:
    """Return a point's payload as a tool."""
    return StoredTool(
        str(payload["server"]),
        str(payload["name"]),
        bytes.fromhex(payload["digest"]),
        str(payload["data"]).encode(),
        payload["effect"],
        tuple(payload["tags"]),
    )
