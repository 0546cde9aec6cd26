"""Compare a repeated run with its recording: find the first difference of two JSON documents.

Recorded strings may have been redacted or cut; such a string matches any text with the same remaining pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import msgspec
from msgspec.structs import replace

from ...ir.errors import ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.request import Message, Request
from ...ir.text import dumps
from ...ir.value import Value
from ..values.results import NOTES_KEY
from .redact import REMOVED, Redactor
from .sanitise import Sanitiser

_MARKER = re.compile(rf"{re.escape(REMOVED)}|…\[cut: \d+ characters\]")
_MAX_SHOWN = 300  # characters of a value in a message
_ABSENT = object()


class Difference(Value, frozen=True):
    """The first difference. `step` names the operation, `pointer` the location in its document."""

    step: str
    pointer: str
    expected: str
    got: str

    def __str__(self) -> str:
        place = f"{self.step}, {self.pointer}" if self.pointer else self.step
        return f"{place}\n  recorded: {self.expected}\n  replayed: {self.got}"


class ReplayDifference(ToolwireError):
    """The replay of a run differs from its recording; `difference` is the first one."""

    def __init__(self, difference: Difference, hint: str = "") -> None:
        last_line = f"\n  hint: {hint}" if hint else ""
        super().__init__(f"the replay differs from the recording at {difference}{last_line}")
        self.difference = difference


def first_difference(step: str, expected: JSON, got: JSON) -> Difference | None:
    """Return the first difference of two documents in the order of the recorded one; None if they match."""
    for pointer, recorded, other in _differences(expected, got, ""):
        return Difference(step, pointer, _show(recorded), _show(other))
    return None


def _differences(expected: Any, got: Any, pointer: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the pointer and both values of each difference below `pointer`; a removed secret matches any value."""
    if expected == REMOVED and got is not _ABSENT:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in [*expected, *(name for name in got if name not in expected)]:
            inner = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            yield from _differences(expected.get(name, _ABSENT), got.get(name, _ABSENT), inner)
    elif isinstance(expected, list) and isinstance(got, list):
        for index in range(_shared(expected, got), max(len(expected), len(got))):
            recorded = expected[index] if index < len(expected) else _ABSENT
            yield from _differences(recorded, got[index] if index < len(got) else _ABSENT, f"{pointer}/{index}")
    elif isinstance(expected, str) and isinstance(got, str):
        if not _matches(expected, got):
            yield pointer, expected, got
    elif type(expected) is not type(got) or expected != got:
        yield pointer, expected, got


def _matches(recorded: str, text: str) -> bool:
    """Compare strings; a marker in the recorded one matches any text. Linear in both lengths."""
    if recorded == text:
        return True
    pieces = _MARKER.split(recorded)
    if len(pieces) == 1 or not text.startswith(pieces[0]):
        return False
    position = len(pieces[0])
    for piece in pieces[1:-1]:
        position = text.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return len(text) - len(pieces[-1]) >= position and text.endswith(pieces[-1])


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"


class RequestComparer:
    """Compares the requests of a replay with recorded ones.

    A request repeats the messages of the one before. Those that matched then are skipped, if they are the same objects in
    both; a message is sanitised once. So the cost of a replay is linear. `compares_all`: also compare tools and settings.
    """

    def __init__(self, *, compares_all: bool) -> None:
        self._compares_all = compares_all
        self._sanitiser = Sanitiser(Redactor())
        self._documents: dict[int, tuple[object, JSON]] = {}  # by identity; the objects are kept, so that it is unique
        self._equal: set[tuple[int, int]] = set()  # identities of documents that match
        self._recorded: list[JSON] = []  # the messages of the last request that matched
        self._messages: tuple[Message, ...] = ()

    def first_difference(self, step: str, recorded: Object, request: Request) -> Difference | None:
        """Return the first difference of a request from the recorded one; None if they match.

        Messages that both share with the last equal request, and pairs that were equal before, are not compared again.
        """
        recorded_messages: list[JSON] = recorded.get("messages", [])
        start = min(_shared(self._recorded, recorded_messages), _shared(self._messages, request.messages))
        expected = [self._document(message, without_notes) for message in recorded_messages[start:]]
        got = [self._document(message, self._sanitise) for message in request.messages[start:]]
        pairs = list(zip(map(id, expected), map(id, got), strict=False))
        known = [index for index, pair in enumerate(pairs) if pair in self._equal]
        skipped: list[JSON] = [None] * start
        expected_fields: Object = {"messages": skipped + _blank(expected, known)}
        got_fields: Object = {"messages": skipped + _blank(got, known)}
        if self._compares_all:
            rest = self._sanitiser.sanitise_request(msgspec.to_builtins(replace(request, messages=(), tools=())))
            recorded_tools = self._document(recorded.get("tools", []), without_notes)
            tools = self._document(request.tools, self._sanitise)
            pairs.append((id(recorded_tools), id(tools)))
            is_known = pairs[-1] in self._equal
            got_fields = {"tools": None if is_known else tools, **_others(rest), **got_fields}
            expected_fields = {"tools": None if is_known else recorded_tools, **_others(recorded), **expected_fields}
        ordered = {name: expected_fields[name] for name in (*recorded, *expected_fields) if name in expected_fields}
        found = first_difference(step, ordered, got_fields)
        if found is None:
            self._equal.update(pairs)
            self._recorded, self._messages = recorded_messages, request.messages
        return found

    def _document(self, value: object, convert: Callable[[Any], JSON]) -> JSON:
        known = self._documents.get(id(value))
        if known is None:
            known = self._documents[id(value)] = value, convert(value)
        return known[1]

    def _sanitise(self, value: Any) -> JSON:
        return without_notes(self._sanitiser.sanitise_document(msgspec.to_builtins(value)))


def _shared(known: Sequence[object], others: Sequence[object]) -> int:
    """Return the number of leading items that are the same objects."""
    shorter = min(len(known), len(others))
    if all(map(is_, known, others)):
        return shorter
    return next(index for index in range(shorter) if known[index] is not others[index])


def _others(document: Any) -> Object:
    return without_notes({name: value for name, value in document.items() if name not in ("messages", "tools")})  # type: ignore[no-any-return]


def _blank(documents: list[JSON], known: list[int]) -> list[JSON]:
    """Replace the documents that are known to match."""
    copy = list(documents)
    for index in known:
        copy[index] = None
    return copy


def without_notes(value: JSON) -> JSON:
    """Remove the notes of the runtime from results: they are never sent to a model."""
    if isinstance(value, dict):
        cleaned = {name: without_notes(item) for name, item in value.items() if name != NOTES_KEY}
        if cleaned.get("extra") == {}:
            del cleaned["extra"]
        return cleaned
    return [without_notes(item) for item in value] if isinstance(value, list) else value
