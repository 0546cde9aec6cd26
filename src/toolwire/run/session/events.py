"""The events of a stored run. The state of the run is the fold of its events.

    start ─▶ model_turn ─▶ results ─▶ compaction ─▶ model_turn ─▶ …        appended, never changed

Each step of a `Session` (a model turn, results, a decision, a compaction …) becomes one event, which contains only the
changes of the state:

- `fields`: new values of small fields, by their dotted names (`phase`, `request.choice`);
- `splices`: replaced items of a tuple (`request.messages`, `turn.results`): most steps add a message at the end, and a
  transfer to another agent replaces the system prompt at the beginning;
- `compaction`: the compacted form of the conversation. Items that the model received before are ranges of the
  conversation as it was sent, so that kept messages are not written again.

A checkpoint therefore writes as much as the step produced, however long the conversation is. Values in a state are
immutable, so that a changed item is another object: unchanged ones are found by identity, without reading them.

Invariant: the fold of the events is the state that the process had in memory, in the form of `Session.dump`. `revision` is not in the events: it is the version of the run in its store.

An event was first a whole state per checkpoint. 200 turns with results of 50 kB wrote 3.9 GB for a conversation of
10 MB, and no state above the size limit of the stores was saved at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.request import Request
from ...ir.value import Value
from ..tools.offer import ToolReference
from ..values.waiting import Turn
from .compaction import CompactedPrefix
from .state import RunState, check_state_version

EventKind: TypeAlias = Literal[
    "start", "model_turn", "results", "decision", "compaction", "prompt", "transfer", "change"
]

_NESTED = {"request": Request.__struct_fields__, "turn": Turn.__struct_fields__}
_PLAIN = tuple(
    name for name in RunState.__struct_fields__ if name not in _NESTED and name not in ("compacted", "revision")
)
_SCALARS = (str, int, float, bool, type(None))
_EMPTY = RunState(0, "", Request())  # another version, so that every start contains its own

IsSame: TypeAlias = Callable[[Any, Any], bool]


class RunStep(Value, frozen=True):
    """A step of a session: the state after it, and its time in seconds since the epoch."""

    kind: EventKind
    at: float
    state: RunState


class Splice(Value, frozen=True, array_like=True):
    """`removed` items of the tuple `field` at index `start`, replaced by `items`."""

    field: str
    start: int
    removed: int
    items: Sequence[Any]


class ViewChange(Value, frozen=True):
    """A compaction. An item is a message, or a range `[start, stop]` of the conversation as it was sent before."""

    replaces: int
    items: Sequence[Any]


class RunEvent(Value, frozen=True):
    """A stored event. `at`: seconds since the epoch."""

    kind: EventKind
    at: float
    fields: dict[str, Any] = {}
    splices: tuple[Splice, ...] = ()
    compaction: ViewChange | None = None


def encode_steps(before: RunState | None, steps: Iterable[RunStep], *, by_value: bool = False) -> list[bytes]:
    """Encode steps as lines of JSON, one event per step that changed something. `before`: None for a new run.

    `by_value`: the state before is a copy from elsewhere, so that unchanged items are other objects.
    """
    lines: list[bytes] = []
    known, is_same = before or _EMPTY, _is_equal if by_value else _is_same
    for step in steps:
        event = _make_event(step, known, is_same)
        if event.fields or event.splices or event.compaction is not None:
            lines.append(msgspec.json.encode(event) + b"\n")
        known = step.state
    return lines


def _make_event(step: RunStep, old: RunState, is_same: IsSame) -> RunEvent:
    """Return the difference between the state after a step and the old one: fields, splices and the compaction."""
    new = step.state
    fields: dict[str, Any] = {}
    splices: list[Splice] = []
    for name, before, after in _field_pairs(old, new):
        if before is after:
            continue
        if isinstance(before, tuple) and isinstance(after, tuple):
            splice = _find_splice(name, before, after, is_same)
            if splice.removed or splice.items:
                splices.append(splice)
        elif not is_same(before, after):
            fields[name] = after
    compaction = None
    if new.compacted is not old.compacted:
        if new.compacted is None:
            fields["compacted"] = None
        elif old.compacted is None or not is_same(old.compacted, new.compacted):
            compaction = _find_view_change(old, new.compacted)
    return RunEvent(step.kind, step.at, fields, tuple(splices), compaction)


def _field_pairs(old: RunState, new: RunState) -> Iterator[tuple[str, Any, Any]]:
    """Iterate over the fields of two states, with dotted names for fields of the request and the turn."""
    for name in _PLAIN:
        yield name, getattr(old, name), getattr(new, name)
    for name, inner_names in _NESTED.items():
        before, after = getattr(old, name), getattr(new, name)
        if before is not after:
            for inner in inner_names:
                yield f"{name}.{inner}", getattr(before, inner), getattr(after, inner)


def _find_splice(name: str, before: tuple[Any, ...], after: tuple[Any, ...], is_same: IsSame) -> Splice:
    """Return the splice that turns `before` into `after`: the items between the common beginning and the common end."""
    shorter = min(len(before), len(after))
    if all(map(is_, before, after)):  # the usual case: items were added, or removed at the end
        return Splice(name, shorter, len(before) - shorter, after[shorter:])
    start = next(index for index in range(shorter + 1) if index == shorter or not is_same(before[index], after[index]))
    end = 0
    while end < shorter - start and is_same(before[-1 - end], after[-1 - end]):
        end += 1
    return Splice(name, start, len(before) - start - end, after[start : len(after) - end])


def _find_view_change(old: RunState, prefix: CompactedPrefix) -> ViewChange:
    """Return a compaction in which messages that were sent before are ranges of their positions."""
    view = old.request.messages if old.compacted is None else old.compacted.view(old.request.messages)
    positions = {id(message): index for index, message in enumerate(view)}
    items: list[Any] = []
    for message in prefix.messages:
        position = positions.get(id(message))
        if position is None:
            items.append(message)
        elif items and isinstance(items[-1], list) and items[-1][1] == position:
            items[-1][1] = position + 1
        else:
            items.append([position, position + 1])
    return ViewChange(prefix.replaces, items)


def _is_same(before: Any, after: Any) -> bool:
    """Compare values of one process. Only plain values are made anew without a change."""
    if before is after or (before == {} and after == {}):
        return True
    return type(before) is type(after) and isinstance(before, (*_SCALARS, ToolReference)) and bool(before == after)


def _is_equal(before: Any, after: Any) -> bool:
    """Compare values by their JSON text: for `==`, 1 and True are the same."""
    return before is after or msgspec.json.encode(before) == msgspec.json.encode(after)


class RunFold:
    """Builds the state of a run from its events. `document` is the state so far, as JSON."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self._count = 0

    def add(self, event: RunEvent) -> None:
        """Apply an event. Raises ProtocolError for one that does not continue the events before."""
        if event.kind == "start":
            self.document = msgspec.to_builtins(_EMPTY)
        elif not self._count:
            raise ProtocolError(f"the first event of a run must be its start, got {event.kind!r}")
        self._count += 1
        if event.compaction is not None:
            self.document["compacted"] = self._apply_view_change(event.compaction)
        for name, value in event.fields.items():
            holder, key = self._locate(name)
            holder[key] = value
        for splice in event.splices:
            holder, key = self._locate(splice.field)
            items = holder.setdefault(key, [])
            if not isinstance(items, list) or splice.start + splice.removed > len(items):
                raise ProtocolError(
                    f"event {self._count} of a run changes items of {splice.field} that it does not have"
                )
            items[splice.start : splice.start + splice.removed] = splice.items

    def _locate(self, name: str) -> tuple[dict[str, Any], str]:
        outer, _, inner = name.partition(".")
        return (self.document.setdefault(outer, {}), inner) if inner else (self.document, outer)

    def view(self) -> list[Any]:
        """Return the conversation as it is sent: its compacted form, then the messages since then."""
        messages: list[Any] = self.document["request"].get("messages", [])
        prefix = self.document.get("compacted")
        return messages if prefix is None else [*prefix["messages"], *messages[prefix["replaces"] :]]

    def _apply_view_change(self, change: ViewChange) -> dict[str, Any]:
        view = self.view()
        messages: list[Any] = []
        for item in change.items:
            messages += view[item[0] : item[1]] if isinstance(item, list) else [item]
        return {"messages": messages, "replaces": change.replaces}

    def state(self, revision: int = 0) -> RunState:
        """Return the state after the events. Raises ProtocolError if they are malformed."""
        if not self._count:
            raise ProtocolError("the run has no events")
        try:
            state = msgspec.convert(self.document, RunState)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"the events of a run cannot be read: {error}") from None
        return check_state_version(replace(state, revision=revision))


_decode_event = msgspec.json.Decoder(RunEvent).decode


def decode_events(rows: Iterable[bytes]) -> Iterator[RunEvent]:
    """Decode the rows of a run, whose concatenation has one event per line. Raises ProtocolError for other bytes."""
    pieces: list[bytes] = []  # of a line that continues in the next row
    for row in rows:
        *lines, rest = row.split(b"\n")
        for line in lines:
            yield _decode_line(b"".join([*pieces, line]))
            pieces = []
        if rest:
            pieces.append(rest)
    if pieces:
        raise ProtocolError(
            "the last event of a run is incomplete", hint="the store lost a part of it; start a new run"
        )


def _decode_line(line: bytes) -> RunEvent:
    try:
        return _decode_event(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"an event of a run cannot be decoded: {error}") from None


def fold_events(rows: Iterable[bytes], revision: int = 0) -> RunState:
    """Return the state of a run from its rows in a store."""
    fold = RunFold()
    for event in decode_events(rows):
        fold.add(event)
    return fold.state(revision)
