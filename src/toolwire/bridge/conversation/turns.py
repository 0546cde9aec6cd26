"""The turns of a model that a client cannot return in full, recorded and stored for the next request.

A provider signs its reasoning and wants the whole turn back as it was: reasoning, text and calls in their order. Most
wires have no place for signatures, some lose the order of text and calls, and many clients drop fields that they do not
know. So the gateway, or the transport of an SDK, stores such a turn for a while and puts it in place of the client's
copy. The caller is part of the key, so no client gets another client's turn. The turn of a streamed answer is recorded
in memory proportional to its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ir.events import (
    CallEnd,
    CallStart,
    Event,
    PartStart,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    TextDelta,
    TextEnd,
    TextStart,
    WholePart,
)
from ...ir.folding import Folder
from ...ir.parts import Artefact, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ...ir.request import Message
from ...schema.bounds import BoundedCache

MAX_TURN_BYTES = 1024 * 1024  # 128,000 tokens of an answer take about half of it; a longer turn is not stored
_ENTRY_OVERHEAD = 500  # bytes of overhead besides the content: key, time and links. Not measured


class StoredTurn(Struct, frozen=True):
    """One answer of a model, with the names and ids that the client has.

    `before` holds the messages of earlier rounds in which only the gateway's own tools were called; `parts` is the last
    round. `hidden` lists the ids of the gateway's calls in it, and `results` their results. `origin` identifies
    the model and the server that made the turn.
    """

    parts: tuple[Part, ...]
    before: tuple[Message, ...] = ()
    hidden: tuple[str, ...] = ()
    results: tuple[ToolResult, ...] = ()
    origin: str = ""

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)  # MessagePack has no integers beyond 64 bits

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that the client has received."""
        return [part for part in self.parts if isinstance(part, ToolCall) and part.id not in self.hidden]

    @property
    def text(self) -> str:
        """The text that the client has received."""
        earlier = [part for message in self.before if message.role == "assistant" for part in message.parts]
        return "".join([part.text for part in (*earlier, *self.parts) if isinstance(part, Text)])

    @property
    def uses_gateway_tools(self) -> bool:
        return bool(self.before or self.hidden)

    def bind(self, model: str, origin: str) -> StoredTurn:
        """Bind the signatures to the model and the server that made them."""

        def with_model(artefacts: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
            return tuple(replace(item, model=item.model or model) for item in artefacts)

        return replace(self._map_artefacts(with_model), origin=origin)

    def to_portable(self) -> StoredTurn:
        """Remove the parts that only the model that made them may receive."""
        portable = self._map_artefacts(lambda _: ())
        before = tuple(replace(item, parts=_without_bound_parts(item.parts)) for item in portable.before)
        return replace(portable, parts=_without_bound_parts(portable.parts), before=before)

    def _map_artefacts(self, change: Callable[[tuple[Artefact, ...]], tuple[Artefact, ...]]) -> StoredTurn:
        def changed(parts: tuple[Part, ...]) -> tuple[Part, ...]:
            return tuple(_replace_artefacts(part, change) for part in parts)

        before = tuple(replace(message, parts=changed(message.parts)) for message in self.before)
        return replace(self, parts=changed(self.parts), before=before)


def _replace_artefacts(part: Part, change: Callable[[tuple[Artefact, ...]], tuple[Artefact, ...]]) -> Part:
    if isinstance(part, (Text, Reasoning, ToolCall)) and part.artefacts:
        return replace(part, artefacts=change(part.artefacts))
    return part


def _without_bound_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not isinstance(part, (Reasoning, Opaque)))


class TurnStore(Protocol):
    """A store of turns, by caller and key; `restore_turns` makes the keys."""

    @property
    def has_any(self) -> bool:
        """True if a lookup can find anything."""
        ...

    async def save(self, caller: str, keys: Sequence[str], turn: StoredTurn, data: bytes) -> None:
        """Store a turn under these keys. `data` is its JSON, encoded once, because a turn may be large."""
        ...

    async def load(self, caller: str, keys: list[str]) -> dict[str, StoredTurn]:
        """Return the stored turns of these keys."""
        ...


class InMemoryTurns:
    """The memory of one process: the newest `max_entries`, in at most `max_bytes`, each for `seconds`."""

    def __init__(self, max_entries: int, max_bytes: int, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._entries: BoundedCache[tuple[str, str], StoredTurn] = BoundedCache(max_entries, max_bytes)  # caller, key

    @property
    def has_any(self) -> bool:
        return bool(self._entries)

    async def save(self, caller: str, keys: Sequence[str], turn: StoredTurn, data: bytes) -> None:
        for key in keys:
            self._entries.put((caller, key), turn, self._clock(), self._seconds, _ENTRY_OVERHEAD + len(data))

    async def load(self, caller: str, keys: list[str]) -> dict[str, StoredTurn]:
        now = self._clock()
        found = {key: self._entries.get((caller, key), now) for key in keys}
        return {key: turn for key, turn in found.items() if turn is not None}


_DELTAS = (TextDelta, ReasoningDelta)
_WHOLE_ITEMS = (CallStart, PartStart, WholePart)


class TurnRecorder:
    """Fold the events of one answer. Nothing is kept of one with more text and arguments than `max_bytes`."""

    __slots__ = ("_buffers", "_folder", "_max_bytes", "_size", "is_full")

    def __init__(self, max_bytes: int = MAX_TURN_BYTES) -> None:
        self._max_bytes = max_bytes
        self.is_full = False
        self._folder = Folder()
        self._buffers: dict[int, dict[int | None, bytearray]] = {}  # by key and section: one buffer for all deltas
        self._size = 0

    def feed(self, event: Event) -> None:
        """Add an event; deltas of calls are ignored, because the end of a call has its arguments."""
        if isinstance(event, _DELTAS):
            self.add_content(event.key, event.section, event.escaped)
        elif self.is_full:
            return
        elif isinstance(event, CallEnd):
            self._add_size(len(event.raw or ""))
            if not self.is_full:
                self._folder.feed(event)
        elif isinstance(event, _WHOLE_ITEMS):
            self._folder.feed(event)
        elif isinstance(event, (TextStart, ReasoningStart)):
            self._buffers[event.key] = {}
            self._folder.feed(event)
        elif isinstance(event, (TextEnd, ReasoningEnd)):
            self._flush(event)
            self._folder.feed(event)

    def add_content(self, key: int, section: int | None, escaped: bytes) -> None:
        """Add the content of one or more deltas of a text, or of a section of reasoning.

        Items of which no start was recorded are ignored.
        """
        sections = self._buffers.get(key)
        if sections is None:
            return
        buffer = sections.get(section)
        if buffer is None:
            buffer = sections[section] = bytearray()
        buffer += escaped
        self._add_size(len(escaped))

    def parts(self, end: ResponseEnd) -> tuple[Part, ...]:
        """Return the parts of the first choice; nothing if the answer was too long."""
        if self.is_full:
            return ()
        self._folder.feed(end)
        return self._folder.parts(0)

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            self.is_full = True
            self._buffers.clear()
            self._folder = Folder()

    def _flush(self, end: TextEnd | ReasoningEnd) -> None:
        for section, buffer in self._buffers.pop(end.key, {}).items():
            if isinstance(end, TextEnd):
                self._folder.feed(TextDelta(end.key, bytes(buffer)))
            else:
                self._folder.feed(ReasoningDelta(end.key, bytes(buffer), section))
