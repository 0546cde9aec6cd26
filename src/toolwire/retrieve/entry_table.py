"""The tools of an index by number, with their server, tags and effect in columns, and the arguments that select them.

A wrong type of an argument must be an error, not a search without results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError, EncodeError, ProtocolError
from ..ir.text import to_bytes
from ..ir.tools import Effect, Tool
from ..ir.value import Value
from .documents import ToolDocument, make_document
from .vectors import GrowingArray

# The tools of an index by number, with their server, tags and effect in columns.
#
# Entries of a saved index are decoded when they are first needed: a search decodes the tools that it returns, and a
# filter by effect, server or tags decodes none.


EFFECTS: tuple[Effect, ...] = get_args(Effect)
_REMOVED = -1  # in the column of servers


class IndexedTool(Value, frozen=True):
    """A tool in an index, with the server that offers it and its tags."""

    tool: Tool
    server: str = ""
    tags: tuple[str, ...] = ()


_decode_indexed = msgspec.json.Decoder(IndexedTool).decode
_DECODE_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_entry(indexed: IndexedTool) -> bytes:
    """Encode an entry as JSON. Raise EncodeError if it cannot be encoded, or not be decoded again."""
    data = to_bytes(indexed)
    try:
        _decode_indexed(data)
    except _DECODE_FAILURES as error:
        raise EncodeError(f"not a valid tool: {error}") from None
    return data


def decode_entry(data: bytes) -> IndexedTool:
    """Decode an entry. Raise ProtocolError if it is no entry."""
    try:
        return _decode_indexed(data)
    except _DECODE_FAILURES as error:
        raise ProtocolError(str(error)) from None


class SearchFilter(NamedTuple):
    """The tools that a search may return. None excludes nothing. A tool needs one of the `tags`."""

    effects: Collection[Effect] | None = None
    servers: Collection[str] | None = None
    tags: Collection[str] | None = None
    allow: Callable[[IndexedTool], bool] | None = None


class SavedEntries(Protocol):
    """The entries of a file, with numbers from 0."""

    columns: NDArray[np.int32]
    servers: Sequence[str]
    tag_sets: Sequence[tuple[str, ...]]

    def names(self) -> Sequence[str]: ...

    def read(self, number: int) -> bytes: ...

    def decode(self, number: int) -> IndexedTool: ...


class EntryTable:
    """Entries by number. An entry is identified by its server and name."""

    def __init__(self, saved: SavedEntries | None = None) -> None:
        """Create an empty table, or a table over saved entries, which are read when they are needed."""
        self._saved = saved
        self._tools: dict[int, IndexedTool] = {}
        self._documents: dict[int, ToolDocument] = {}
        self._numbers: dict[tuple[str, str], int] | None = {} if saved is None else None
        self._servers = {name: number for number, name in enumerate(() if saved is None else saved.servers)}
        self._tag_sets = {tags: number for number, tags in enumerate(() if saved is None else saved.tag_sets)}
        # per number: the server, the set of tags, the effect
        self._columns = GrowingArray(np.int32, 3, None if saved is None else saved.columns)
        self._count = len(self._columns)

    def __len__(self) -> int:
        return self._count

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return len(self._columns)

    def add(self, indexed: IndexedTool, document: ToolDocument) -> None:
        """Append an entry. An entry with the same server and name must have been removed."""
        number = self.end
        server = self._servers.setdefault(indexed.server, len(self._servers))
        tags = self._tag_sets.setdefault(indexed.tags, len(self._tag_sets))
        self._columns.set(number, (server, tags, EFFECTS.index(indexed.tool.effect)))
        self._tools[number] = indexed
        self._documents[number] = document
        self._key_numbers()[indexed.server, indexed.tool.name] = number
        self._count += 1

    def remove(self, server: str, name: str) -> tuple[int, ToolDocument]:
        """Remove an entry. Return its number and document."""
        number = self._key_numbers().pop((server, name))
        document = self.document(number)
        self._columns.set(number, (_REMOVED, 0, 0))
        self._tools.pop(number, None)
        self._documents.pop(number, None)
        self._count -= 1
        return number, document

    def replace(self, number: int, indexed: IndexedTool) -> None:
        """Replace the tool of an entry with one of the same document."""
        self._tools[number] = indexed

    def find(self, server: str, name: str) -> int | None:
        """Return the number of an entry."""
        return self._key_numbers().get((server, name))

    def find_name(self, name: str) -> int | None:
        """Return the number of the first entry with this name, of any server."""
        numbers = self._key_numbers()
        return min((numbers[server, name] for server in self._servers if (server, name) in numbers), default=None)

    def key(self, number: int) -> tuple[str, str]:
        """Return the server and the name of an entry."""
        indexed = self.indexed(number)
        return indexed.server, indexed.tool.name

    def indexed(self, number: int) -> IndexedTool:
        """Return the tool of an entry with its server and tags. Raise KeyError for an unknown number."""
        known = self._tools.get(number)
        if known is None:
            if self._saved is None:
                raise KeyError(number)
            known = self._tools[number] = self._saved.decode(number)
        return known

    def document(self, number: int) -> ToolDocument:
        """Return the document of an entry."""
        known = self._documents.get(number)
        if known is None:
            indexed = self.indexed(number)
            known = make_document(indexed.tool, server=indexed.server, tags=indexed.tags)
        return known

    def numbers(self) -> NDArray[np.int64]:
        """Return the numbers of the entries, in the order in which they were added."""
        return np.flatnonzero(self._columns.values[:, 0] != _REMOVED)

    def names(self) -> list[str]:
        """Return the names of the tools, in the order in which they were added."""
        return [name for (_, name), _ in sorted(self._key_numbers().items(), key=itemgetter(1))]

    def tools(self) -> list[IndexedTool | Callable[[], bytes]]:
        """Return the tools in the order in which they were added. One that is not decoded yet is a reader of its bytes."""
        saved = self._saved
        return [
            self._tools[number] if saved is None or number in self._tools else partial(saved.read, number)
            for number in self.numbers().tolist()
        ]

    def names_of_server(self, server: str) -> Iterator[str]:
        """Return the names of the tools of a server."""
        return (name for owner, name in self._key_numbers() if owner == server)

    def columns(self) -> tuple[list[str], list[tuple[str, ...]], NDArray[np.int32]]:
        """Return the servers, the sets of tags, and per number the server, the set of tags and the effect."""
        return list(self._servers), list(self._tag_sets), self._columns.values.copy()

    def find_excluded(self, given: SearchFilter) -> NDArray[np.int64]:
        """Return the numbers that a filter excludes. `allow` is called for tools that pass the other filters."""
        effects, servers, tags, allow = given
        if given == SearchFilter():
            return np.zeros(0, np.int64)
        columns = self._columns.values
        kept = columns[:, 0] != _REMOVED
        if servers is not None:
            kept &= np.isin(columns[:, 0], [self._servers[name] for name in servers if name in self._servers])
        if tags is not None:
            matching = [number for known, number in self._tag_sets.items() if any(tag in known for tag in tags)]
            kept &= np.isin(columns[:, 1], matching)
        if effects is not None:
            kept &= np.isin(columns[:, 2], [number for number, effect in enumerate(EFFECTS) if effect in effects])
        if allow is not None:
            for number in np.flatnonzero(kept).tolist():
                kept[number] = allow(self.indexed(number))
        return np.flatnonzero(~kept)

    def _key_numbers(self) -> dict[tuple[str, str], int]:
        """Return the number of each entry by server and name; for a saved index, build them at the first use."""
        if self._numbers is None:
            names = () if self._saved is None else self._saved.names()
            servers, columns = list(self._servers), self._columns.values[:, 0].tolist()
            self._numbers = {
                (servers[server], name): number
                for number, (server, name) in enumerate(zip(columns, names, strict=True))
                if server != _REMOVED
            }
        return self._numbers


# Check the arguments of an index: a wrong type must be an error, not a search without results.


_PreparedTool = TypeVar("_PreparedTool")


def check_encoder(encoder: object) -> None:
    """Raise ConfigError for an object that cannot encode."""
    if encoder is not None and not all(hasattr(encoder, name) for name in ("name", "dimensions", "encode")):
        raise ConfigError(f"an encoder has name, dimensions and encode; got {encoder!r}", hint="use open_minilm()")


def check_search(query: str, k: int) -> None:
    """Raise ConfigError for a query that is no text, and for a number of results below 1."""
    if not isinstance(query, str):
        raise ConfigError(f"the query must be a text, got {query!r}")
    if type(k) is not int or k < 1:
        raise ConfigError(f"k must be an integer of at least 1, got {k!r}")


def check_names(argument: str, names: Iterable[str] | None) -> None:
    """Raise ConfigError for a text in place of a list of texts."""
    if isinstance(names, str):
        raise ConfigError(f"{argument} must be a list, got the text {names!r}", hint=f"use [{names!r}]")


def make_filter(
    effects: Collection[Effect] | None,
    servers: Collection[str] | None,
    tags: Collection[str] | None,
    allow: Callable[[IndexedTool], bool] | None,
) -> SearchFilter:
    """Return the filter of a search. Raise ConfigError for an unknown effect."""
    for argument, values in (("effects", effects), ("servers", servers), ("tags", tags)):
        check_names(argument, values)
    for effect in effects or ():
        if effect not in EFFECTS:
            raise ConfigError(f"effects contains the unknown effect {effect!r}", hint=f"use {', '.join(EFFECTS)}")
    return SearchFilter(effects, servers, tags, allow)


def collect_tools(
    tools: Iterable[Tool], convert: Callable[[Tool], _PreparedTool]
) -> tuple[dict[str, _PreparedTool], tuple[tuple[str, str], ...]]:
    """Convert tools.

    Return the results by name, and the refused tools, each with the reason. Refused are tools that cannot be encoded,
    and different tools with the name of an earlier tool.
    """
    converted: dict[str, _PreparedTool] = {}
    refused: list[tuple[str, str]] = []
    for tool in list_tools(tools):
        try:
            result = convert(tool)
        except EncodeError as error:
            refused.append((tool.name, error.message))
            continue
        if converted.setdefault(tool.name, result) != result:
            refused.append((tool.name, "an earlier tool of the same list has this name"))
    return converted, tuple(refused)


def list_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools as a list. Raises `ConfigError` for a value that is not a list of tools."""
    if isinstance(tools, Tool):
        raise ConfigError(f"tools must be a list, got the tool {tools.name!r}", hint="use [tool]")
    listed = list(tools)
    for tool in listed:
        if not isinstance(tool, Tool):
            raise ConfigError(
                f"tools must be values of Tool, got {tool!r}", hint="use Toolbox([…]).tools for functions"
            )
    return listed
