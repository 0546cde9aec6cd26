"""Vector indexes of clients' tool lists, built in the background, and their cache of vectors (needs numpy)."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from logging import getLogger
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...asgi.offload import LARGE, Offload
from ...ir.terminal import count_of
from ...ir.tools import Tool
from ...retrieve.documents import make_document
from ...retrieve.index import ToolIndex
from ...retrieve.vectors import Encoder, ProgressCallback, Vectors
from .offered_tools import RetrievalPlan

# Vectors of texts by their digest, shared by all clients (needs numpy).
#
# Only digests and vectors are kept, so nothing of a client's text can reach another client.


_MAX_VECTOR_BYTES = 64 * 1024 * 1024  # about 37,000 vectors of 384 numbers
_ENTRY_OVERHEAD = 250  # bytes of an entry besides its numbers: key, array object and dictionary entry


class VectorCache:
    """An encoder that encodes each text once, while its vector is among the most recently used ones."""

    def __init__(self, encoder: Encoder, max_bytes: int = _MAX_VECTOR_BYTES) -> None:
        self._encoder = encoder
        self._max_vectors = max(1, max_bytes // (4 * encoder.dimensions + _ENTRY_OVERHEAD))
        self._lock = threading.Lock()
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    @property
    def name(self) -> str:
        return self._encoder.name

    @property
    def dimensions(self) -> int:
        return self._encoder.dimensions

    def encode(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors:
        """Return one vector per text. Only texts without a stored vector are encoded, and their vectors stored."""
        digests = [_digest(text) for text in texts]
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        missing: dict[bytes, list[int]] = {}
        with self._lock:
            for number, digest in enumerate(digests):
                vector = self._vectors.get(digest)
                if vector is None:
                    missing.setdefault(digest, []).append(number)
                else:
                    self._vectors.move_to_end(digest)
                    vectors[number] = vector
        if missing:
            encoded = self._encoder.encode([texts[numbers[0]] for numbers in missing.values()], progress)
            for vector, numbers in zip(encoded, missing.values(), strict=True):
                vectors[numbers] = vector
            self._keep(missing, encoded)
        return vectors

    def list_missing(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without a stored vector."""
        digests = [_digest(text) for text in texts]
        with self._lock:
            return [text for text, digest in zip(texts, digests, strict=True) if digest not in self._vectors]

    def _keep(self, digests: dict[bytes, list[int]], encoded: Vectors) -> None:
        with self._lock:
            for digest, vector in zip(digests, encoded, strict=True):
                self._vectors[digest] = vector.copy()  # a view would keep the whole batch
            while len(self._vectors) > self._max_vectors:
                self._vectors.popitem(last=False)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# Encoding a tool takes about 30 ms, so a new list is encoded in small batches, while requests select by keyword. One
# thread encodes at a time, and clients take turns.


_log = getLogger("toolwire.gateway")
_MAX_TOOLS = 10_000  # of a list; a longer one is searched by keyword only
_MAX_LIST_BYTES = 8 * 1024 * 1024  # of its declarations; the same applies
_MAX_PENDING_BYTES = 32 * 1024 * 1024  # of all clients
_MAX_PENDING = 4  # lists of one client that wait for their vectors
_MAX_PENDING_TOOLS = 20_000  # of all clients; fewer than the cache of vectors holds
_MAX_INDEX_BYTES = 128 * 1024 * 1024  # of all lists: about 30,000 tools with short texts
_BYTES_PER_TOOL = 4_000  # of an index, besides the texts: vector, keywords and objects
_TEXT_COPIES = 3  # of the declarations in an index: an estimate, not measured
_BATCH = 8  # tools
_OFFLOAD_NAME = "(retrieval)"  # not a client's: clients keep their share of the threads

StepResult = TypeVar("StepResult")
ListKey: TypeAlias = tuple[str, bytes]
"""The client, because an index has its texts; and the digest of the declarations."""


class _SizedIndex(NamedTuple):
    tool_index: ToolIndex
    size: int  # bytes


class _PendingList:
    """A list whose tools are being encoded."""

    __slots__ = ("_position", "_texts", "size", "tools")

    def __init__(self, tools: tuple[Tool, ...], size: int) -> None:
        self.tools = tools
        self.size = size  # bytes
        self._texts: list[str] | None = None
        self._position = 0

    def encode_batch(self, encoder: VectorCache) -> bool:
        """Encode the next tools. Return True after the last ones."""
        if self._texts is None:
            self._texts = encoder.list_missing([make_document(tool).text for tool in self.tools])
        end = self._position + _BATCH
        encoder.encode(self._texts[self._position : end])
        self._position = end
        return end >= len(self._texts)

    def build_index(self, encoder: VectorCache) -> _SizedIndex:
        index = ToolIndex(encoder)
        index.add(self.tools)
        return _SizedIndex(index, len(self.tools) * _BYTES_PER_TOOL + _TEXT_COPIES * self.size)


class ToolListIndexes:
    """The most recently used indexes, within `max_bytes`."""

    def __init__(self, encoder: Encoder, offload: Offload, *, max_bytes: int = _MAX_INDEX_BYTES) -> None:
        self._encoder = VectorCache(encoder)
        self._offload = offload
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._indexes: OrderedDict[ListKey, _SizedIndex] = OrderedDict()
        self._pending: OrderedDict[str, OrderedDict[bytes, _PendingList]] = OrderedDict()  # by client
        self._task: asyncio.Task[None] | None = None

    def find(self, client: str, digest: bytes) -> ToolIndex | None:
        """Return the index of a list, or None if it is not complete. It counts as used."""
        sized_index = self._indexes.get((client, digest))
        if sized_index is None:
            return None
        self._indexes.move_to_end((client, digest))
        return sized_index.tool_index

    def request(self, client: str, plan: RetrievalPlan) -> None:
        """Build the index of a list in the background, unless it is known, or too large.

        A client with too many new lists loses the oldest of them. If too much waits for all clients, nothing is done.
        """
        waiting = self._pending.get(client, OrderedDict())
        if plan.digest in waiting or (client, plan.digest) in self._indexes:
            return
        if len(plan.tools) > _MAX_TOOLS or plan.size > _MAX_LIST_BYTES:
            return
        if len(waiting) >= _MAX_PENDING:
            waiting.popitem(last=False)
        pending = [entry for entries in self._pending.values() for entry in entries.values()]
        if sum(len(entry.tools) for entry in pending) + len(plan.tools) > _MAX_PENDING_TOOLS:
            return  # a later request asks again
        if sum(entry.size for entry in pending) + plan.size > _MAX_PENDING_BYTES:
            return
        waiting[plan.digest] = _PendingList(plan.tools, plan.size)
        self._pending[client] = waiting
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._build_pending())

    async def wait_until_built(self) -> None:
        """Wait until no list is waiting for its vectors."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _build_pending(self) -> None:
        """Encode all lists that wait, and keep their indexes. A list that fails is logged and dropped.

        Clients take turns: one batch of a client's list is encoded, then the client moves to the end of the queue.
        """
        while self._pending:
            client, waiting = self._pending.popitem(last=False)
            if not waiting:
                continue
            self._pending[client] = waiting
            digest, pending = next(iter(waiting.items()))
            try:
                is_complete = await self._run(pending.encode_batch)
                if is_complete:
                    self._keep((client, digest), await self._run(pending.build_index))
            except Exception:  # noqa: BLE001  # the list stays without vectors; requests select by keyword
                _log.exception("cannot encode a list of %s", count_of(len(pending.tools), "tool"))
                is_complete = True
            if is_complete:
                waiting.pop(digest, None)

    async def _run(self, work: Callable[[VectorCache], StepResult]) -> StepResult:
        return await self._offload.run(_OFFLOAD_NAME, LARGE + 1, work, self._encoder)

    def _keep(self, key: ListKey, entry: _SizedIndex) -> None:
        previous = self._indexes.pop(key, None)
        self._indexes[key] = entry
        self._used_bytes += entry.size - (0 if previous is None else previous.size)
        while self._used_bytes > self._max_bytes and self._indexes:
            self._used_bytes -= self._indexes.popitem(last=False)[1].size
