"""An index that processes on many machines share. The subclasses keep it in Qdrant or in PostgreSQL.

The server has the declarations and the vectors, and finds the nearest vectors. Each process has a copy of the
declarations and an index of their words, which follows the changes of others. So scores of words are those of a
`ToolIndex`, and the ranking is the same code. These points differ:

- Similarity is known for the `candidates` nearest tools (1,000) and for as many with the best words, not for all. Up to
  this number of tools, the results are equal to a `ToolIndex`'s.
- The order of tools with equal scores depends on the order in which a process learned of them.
- `allow` is applied to the nearest tools after the server has found them.
- A change of another process is visible after `refresh_seconds`, or after `refresh`.
- Any change of a declaration is encoded again, also one of a field that is not searched.
- There is no `save`: the server stores the index.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from ..ir.errors import ConfigError, ProtocolError
from ..ir.tools import Effect, Tool
from ..run.tools.offer import strip_function
from ..run.values.keys import canonical_json
from .documents import make_document
from .entry_table import IndexedTool, SearchFilter, check_names, collect_tools, decode_entry, encode_entry
from .index import IndexChange, ToolIndex
from .ranking import SPREAD_COUNT, NearestTools, find_best, rank_numbers
from .vectors import Encoder, ProgressCallback, Vectors, encode_texts

_BATCH = 500  # tools per write; some MB, so that a long import holds no transaction for long


class StoredTool(NamedTuple):
    """A tool on the server. Without `data`, it was removed. `vector` is None without an encoder, and when it is read."""

    server: str
    name: str
    digest: bytes
    data: bytes
    effect: Effect = "write"
    tags: tuple[str, ...] = ()
    vector: Sequence[float] | None = None


class SharedTools(Protocol):
    """The operations of a server. They are safe in several threads, and a repetition has no further effect."""

    def put(self, tools: Sequence[StoredTool]) -> None: ...
    def remove(self, keys: Sequence[tuple[str, str]]) -> None: ...
    def changes(self, after: int) -> Iterator[tuple[list[StoredTool], int]]:
        """Return the changes after a position in batches, each with the position after it. Some may be repeated."""
        ...

    def nearest(
        self, vectors: Vectors, count: int, given: SearchFilter, also: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Sequence[float]]:
        """Return the similarity of tools with each vector, by server and name.

        These are the `count` nearest of the first vector, and `also`. `allow` is not applied.
        """
        ...

    def vectors(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Sequence[float]]:
        """Return the vectors of tools, by server and name."""
        ...

    def close(self) -> None: ...


class SharedIndex(ToolIndex):
    """An index with the methods of `ToolIndex`, except for files. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        tools: SharedTools,
        encoder: Encoder | None = None,
        *,
        refresh_seconds: float = 2.0,
        candidates: int = 1000,
    ) -> None:
        """Raise `ConfigError` for `candidates` below 1."""
        if candidates < 1:
            raise ConfigError(f"candidates must be at least 1, not {candidates}")
        super().__init__(encoder)
        self._vectors = None  # they are on the server
        self._shared = tools
        self._refresh_seconds = refresh_seconds
        self._candidates = candidates
        self._refresh_lock = threading.Lock()
        self._refreshed_at = float("-inf")
        self._position = 0
        self._digests: dict[tuple[str, str], bytes] = {}

    def __enter__(self) -> SharedIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._shared.close()

    def refresh(self) -> None:
        """Read the changes of other processes."""
        with self._refresh_lock:
            for changed, position in self._shared.changes(self._position):
                self._apply([tool for tool in changed if self._digests.get((tool.server, tool.name)) != tool.digest])
                self._position = position
            self._refreshed_at = time.monotonic()

    def add(
        self,
        tools: Iterable[Tool],
        *,
        server: str = "",
        tags: Sequence[str] = (),
        progress: ProgressCallback | None = None,
    ) -> IndexChange:
        """Add tools, replace tools whose declaration or tags changed, and return the changes.

        Only these are encoded and sent. The copy in this process is refreshed before and after. Raises `ConfigError`
        for values that are not tools or tags.
        """
        check_names("tags", tags)
        given, refused = collect_tools(tools, lambda tool: _make_stored(strip_function(tool), server, tuple(tags)))
        self.refresh()
        with self._lock:
            known = {name: self._digests.get((server, name)) for name in given}
        changed = {name: tool for name, tool in given.items() if known[name] != tool.digest}
        encoded = self._encode(list(changed.values()), progress)
        for start in range(0, len(encoded), _BATCH):
            self._shared.put(encoded[start : start + _BATCH])
        self.refresh()
        updated = tuple(name for name in changed if known[name])
        added = tuple(name for name in changed if not known[name])
        return IndexChange(added, updated, unchanged=len(given) - len(changed), refused=refused)

    def remove(self, names: Iterable[str], *, server: str = "") -> IndexChange:
        """Remove tools from the server, refresh the copy, and return the changes.

        Names that are not in the index are ignored.
        """
        check_names("names", names)
        self.refresh()
        with self._lock:
            removed = tuple(name for name in dict.fromkeys(names) if self._digests.get((server, name)))
        for start in range(0, len(removed), _BATCH):
            self._shared.remove([(server, name) for name in removed[start : start + _BATCH]])
        self.refresh()
        return IndexChange(removed=removed)

    def vectors(self) -> None:
        """Return None: the vectors are on the server."""
        return

    def save(self, path: str | Path) -> NoReturn:
        """Raise ConfigError: the server stores the index."""
        raise ConfigError("a shared index has no file", hint="use a ToolIndex to write one")

    @classmethod
    def load(cls, *_: object, **__: object) -> NoReturn:
        """Raise ConfigError: the server stores the index."""
        raise ConfigError("a shared index has no file", hint="use ToolIndex.load")

    def _find_nearest(self, query: str, vectors: Vectors, given: SearchFilter) -> NearestTools:
        """Ask the server without the lock: first for the similarities, then for the vectors of the best tools.

        The best tools by terms are included in the first question.
        """
        with self._lock:
            words, _ = self._score(query, None, given, None)
            also = [self._entries.key(number) for number in find_best(words, self._candidates).tolist()]
        nearest = NearestTools(self._shared.nearest(vectors, self._candidates, given, also), {})
        with self._lock:
            words, meanings = self._score(query, vectors, given, nearest)
            best = [self._entries.key(number) for number, _ in rank_numbers(words, meanings, SPREAD_COUNT)]
        return nearest._replace(vectors=self._shared.vectors(best))

    def _refresh_if_due(self) -> None:
        if time.monotonic() - self._refreshed_at >= self._refresh_seconds:
            self.refresh()

    def _encode(self, tools: Sequence[StoredTool], progress: ProgressCallback | None) -> list[StoredTool]:
        """Return the tools with their vectors."""
        if self.encoder is None or not tools:
            return list(tools)
        indexed = [_decode(tool) for tool in tools]
        texts = [make_document(one.tool, server=one.server, tags=one.tags).text for one in indexed]
        vectors = encode_texts(self.encoder, texts, progress)
        return [tool._replace(vector=vector) for tool, vector in zip(tools, vectors.tolist(), strict=True)]

    def _apply(self, changed: Sequence[StoredTool]) -> None:
        """Update the copy in this process."""
        present = [_decode(tool) for tool in changed if tool.data]
        entries = [(one, make_document(one.tool, server=one.server, tags=one.tags)) for one in present]
        with self._lock:
            gone = [(tool.server, tool.name) for tool in changed if not tool.data]
            self._remove_entries(key for key in gone if self._entries.find(*key) is not None)
            self._put_entries(entries, None)
            self._digests.update({(tool.server, tool.name): tool.digest for tool in changed})


def _make_stored(tool: Tool, server: str, tags: tuple[str, ...]) -> StoredTool:
    indexed = IndexedTool(tool, server, tags)
    data = encode_entry(indexed)
    digest = sha256(canonical_json(indexed)).digest()
    return StoredTool(server, tool.name, digest, data, tool.effect, tags)


def _decode(tool: StoredTool) -> IndexedTool:
    try:
        return decode_entry(tool.data)
    except ProtocolError as error:
        raise ProtocolError(
            f"the shared index contains a tool that cannot be decoded, {tool.name!r} of the server {tool.server!r}: {error}",
            hint="remove it, or upgrade toolwire on this machine",
        ) from None
