"""Normalise a conversation into a form that the target accepts: ordered results, merged and complete turns.

Every part keeps its location in the original request: a message index and a part number, packed into one integer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...ir.folding import merge_extras
from ...ir.losses import Losses
from ...ir.parts import Artefact, Extra, Part, Text, ToolCall, ToolResult
from ...ir.request import Message, Role
from ...ir.text import dumps
from ...wire.protocol import Capabilities, Wire

BLANK = "[blank message]"
"""The text of a last user message of which nothing else remains."""


# The origin of a part of a fitted request: a message index and a part number, packed into one integer.
#
# An unchanged message has the places `message_locations(index, len(parts))`, a range of constant cost at any length;
# only moved parts need a list.


PartLocation: TypeAlias = int
_BITS = 24  # 16 million parts per message, more than a document of 64 MB can have
LOCATIONS_PER_MESSAGE = 1 << _BITS
"""The distance between the first parts of two adjacent messages."""
_PART_MASK = LOCATIONS_PER_MESSAGE - 1


def message_locations(index: int, parts: int) -> range:
    return range(index << _BITS, (index << _BITS) + parts)


def message_index(location: PartLocation) -> int:
    return location >> _BITS


def location_pointer(location: PartLocation) -> str:
    return f"/messages/{location >> _BITS}/parts/{location & _PART_MASK}"


# Every provider requires that each call is answered once, directly after the turn that made it. Clients trim,
# interrupt, repeat and reorder. The normaliser pairs results with calls (by id; without ids, by name and order), puts
# them after their calls in call order, adds results for unanswered calls, turns results without a call into text, and
# drops second results. A history that is already valid is recognised in one pass and only gathered into turns.


INTERRUPTED = "No result: the call was interrupted before it was answered."


class DraftMessage(Struct, frozen=True, eq=False):
    """A message under construction: its parts, and the place that each came from."""

    message: Message
    parts: Sequence[Part]
    locations: Sequence[PartLocation]


def normalise(messages: tuple[Message, ...], losses: Losses) -> list[DraftMessage]:
    """Return the same conversation with every call followed by its result."""
    turns = draft_if_normal(messages)
    return _reorder_results(messages, losses) if turns is None else turns


def gather(messages: tuple[Message, ...]) -> list[DraftMessage]:
    """Return the messages unchanged, for a conversation whose other calls and results are stored elsewhere."""
    return [
        DraftMessage(message, message.parts, message_locations(index, len(message.parts)))
        for index, message in enumerate(messages)
    ]


def draft_if_normal(messages: tuple[Message, ...], start: int = 0) -> list[DraftMessage] | None:
    """Return the turns of a history whose calls are all answered, in call order, before any other part; else None.

    `start` is the index of the first of these messages in the request.
    """
    turns: list[DraftMessage] = []
    calls: list[str] = []  # ids of the calls of the last turn
    answered = 0
    last_role = ""
    for index, message in enumerate(messages, start):
        parts = message.parts
        if message.role == "assistant":
            if last_role != "assistant":
                if answered < len(calls):
                    return None
                calls, answered = [], 0  # adjacent assistant messages share one list of calls
            for part in parts:
                if type(part) is ToolCall:
                    calls.append(part.id)
        else:
            for part in parts:
                if type(part) is ToolResult:
                    if answered == len(calls) or part.call_id != calls[answered] or not part.call_id:
                        return None
                    answered += 1
                elif answered < len(calls):
                    return None  # text before the results
        turns.append(DraftMessage(message, parts, message_locations(index, len(parts))))
        last_role = message.role
    return turns if answered == len(calls) else None


def merge_turns(turns: list[DraftMessage], can: Capabilities) -> list[DraftMessage]:
    """Merge messages that the target requires to be one."""
    if can.one_message_a_turn:
        return _merge_roles(turns, lone_results=can.lone_results)
    return _merge_open_calls(turns) if can.adjacent_results else turns


def _merge_roles(turns: list[DraftMessage], *, lone_results: bool) -> list[DraftMessage]:
    """Merge adjacent messages of one role; with `lone_results`, results and other parts are not merged."""
    if lone_results:
        turns = _split_results(turns)
    merged: list[DraftMessage] = []
    for _, run in groupby(turns, _role_and_content if lone_results else _role):
        group = [*run]
        if len(group) == 1 or group[0].message.role in ("system", "developer"):
            merged += group
        else:
            merged.append(_merge_group(group))
    return merged


def _merge_open_calls(turns: list[DraftMessage]) -> list[DraftMessage]:
    """Merge an assistant message with calls and the assistant messages after it.

    Their results follow the last of them, but must directly follow the message with the calls.
    """
    merged: list[DraftMessage] = []
    open_group: list[DraftMessage] = []  # an assistant message with calls, and the assistant messages after it
    for turn in turns:
        is_assistant = turn.message.role == "assistant"
        if open_group and not is_assistant:
            merged.append(open_group[0] if len(open_group) == 1 else _merge_group(open_group))
            open_group = []
        if is_assistant and (open_group or any(type(part) is ToolCall for part in turn.parts)):
            open_group.append(turn)
        else:
            merged.append(turn)
    if open_group:
        merged.append(open_group[0] if len(open_group) == 1 else _merge_group(open_group))
    return merged


def _split_results(turns: list[DraftMessage]) -> list[DraftMessage]:
    """Split each message that begins with results and goes on with other parts into two messages."""
    split: list[DraftMessage] = []
    for turn in turns:
        # results come first in a normalised message, so the last part shows whether there are only results
        if not _begins_with_result(turn) or type(turn.parts[-1]) is ToolResult:
            split.append(turn)
            continue
        message, parts, locations = turn.message, turn.parts, turn.locations
        count = next(index for index, part in enumerate(parts) if type(part) is not ToolResult)
        for half in (slice(0, count), slice(count, None)):
            halved = Message(message.role, tuple(parts[half]), message.extra)
            split.append(DraftMessage(halved, parts[half], locations[half]))
    return split


def _begins_with_result(turn: DraftMessage) -> bool:
    return bool(turn.parts) and type(turn.parts[0]) is ToolResult


_role, _extra = attrgetter("message.role"), attrgetter("message.extra")
_parts, _locations = attrgetter("parts"), attrgetter("locations")


def _role_and_content(turn: DraftMessage) -> tuple[Role, bool]:
    return turn.message.role, _begins_with_result(turn)


def _merge_group(group: list[DraftMessage]) -> DraftMessage:
    parts: list[Part] = [*chain.from_iterable(map(_parts, group))]
    locations: list[PartLocation] = [*chain.from_iterable(map(_locations, group))]
    extras = [*filter(None, map(_extra, group))]
    extra = merge_extras([*map(_strip_form, extras)]) if extras else {}
    return DraftMessage(Message(group[0].message.role, tuple(parts), extra), parts, locations)


def _strip_form(extra: Extra) -> Extra:
    return {name: fields for name, fields in extra.items() if not name.endswith("~")}


class _Pair:
    """A call and its result."""

    __slots__ = ("call", "is_late", "location", "result", "result_location")

    def __init__(self, call: ToolCall, location: PartLocation) -> None:
        self.call = call
        self.location = location
        self.result: ToolResult | None = None
        self.result_location = location
        self.is_late = False  # a part that is no result is between the call and its result


def _reorder_results(messages: tuple[Message, ...], losses: Losses) -> list[DraftMessage]:
    """Move every result to the message after its assistant turn, because it must directly follow its call.

    An unanswered call gets an error result, and a result without a call becomes text. Fields of a message that had only
    results move to the turn before it. Every change is added to `losses`.
    """
    pairs, orphan_results = _pair_results(messages, losses)
    turns: list[DraftMessage] = []
    waiting: list[_Pair] = []  # calls of the current assistant turn
    moved_fields: dict[int, list[Extra]] = {}  # fields of messages that had only results, by the turn that gets them
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turns.append(DraftMessage(message, message.parts, message_locations(index, len(message.parts))))
            waiting += pairs.get(index, ())
            continue
        if waiting:
            turns.append(_result_message(waiting, losses))
            waiting = []
        turn = _without_results(message, index, orphan_results)
        if turn.parts:
            turns.append(turn)
        elif turns and (extra := _strip_form(message.extra)):  # fields around the results move with them
            moved_fields.setdefault(len(turns) - 1, []).append(extra)
    if waiting:
        turns.append(_result_message(waiting, losses))
    for number, extras in moved_fields.items():
        turn = turns[number]
        merged = replace(turn.message, extra=merge_extras((turn.message.extra, *extras)))
        turns[number] = DraftMessage(merged, turn.parts, turn.locations)
    return turns


def _pair_results(
    messages: tuple[Message, ...], losses: Losses
) -> tuple[dict[int, list[_Pair]], dict[PartLocation, Text]]:
    """Return the pairs by the message index of their call, and the text for each result without a call.

    Second results are left out; these and results without a call are added to `losses`.
    """
    pairs: dict[int, list[_Pair]] = {}
    orphan_results: dict[PartLocation, Text] = {}
    calls = _OpenCalls()
    last_text: PartLocation = -1  # the last place of a part that is not a result
    for index, message in enumerate(messages):
        for location, part in zip(message_locations(index, len(message.parts)), message.parts, strict=True):
            if isinstance(part, ToolCall) and message.role == "assistant":
                pair = _Pair(part, location)
                pairs.setdefault(index, []).append(pair)
                calls.add(pair)
            elif isinstance(part, ToolResult):
                open_pair = calls.take(part)
                if open_pair is not None:
                    open_pair.result, open_pair.result_location = part, location
                    open_pair.is_late = last_text > open_pair.location
                elif part.call_id and part.call_id in calls.answered:
                    detail = f"{part.call_id} already has a result"
                    losses.add(location_pointer(location), "second result", "dropped", detail)
                else:
                    orphan_results[location] = _result_text(part)
                    detail = "its call is not in the history; sent as text"
                    losses.add(location_pointer(location), "result without a call", "rewritten", detail)
            elif message.role != "assistant":
                last_text = location
    return pairs, orphan_results


class _OpenCalls:
    """Calls without a result so far, by id and by name, in order."""

    __slots__ = ("_by_id", "_by_name", "_in_order", "answered")

    def __init__(self) -> None:
        self._by_id: dict[str, deque[_Pair]] = {}
        self._by_name: dict[str, deque[_Pair]] = {}
        self._in_order: deque[_Pair] = deque()
        self.answered: set[str] = set()

    def add(self, pair: _Pair) -> None:
        self._by_id.setdefault(pair.call.id, deque()).append(pair)
        self._by_name.setdefault(pair.call.name, deque()).append(pair)
        self._in_order.append(pair)

    def take(self, result: ToolResult) -> _Pair | None:
        """Return the open call that `result` answers and note its id in `answered`, or return None.

        The call has the id of the result. If one of them has no id, it is the first call of that name; without a name,
        the first of all.
        """
        pair = _first_open(self._by_id.get(result.call_id)) if result.call_id else None
        if pair is None:
            candidates = self._in_order if result.name is None else self._by_name.get(result.name)
            pair = _first_open(candidates)
            if pair is not None and result.call_id and pair.call.id:
                return None  # both have ids, and they differ
        if pair is not None:
            self.answered.add(result.call_id or pair.call.id)
        return pair


def _first_open(pairs: deque[_Pair] | None) -> _Pair | None:
    while pairs:
        if pairs[0].result is None:
            return pairs[0]
        pairs.popleft()
    return None


def _result_text(result: ToolResult) -> Text:
    text = result.text or dumps(result.structured)
    return Text(f"[result of {result.name or 'a call'} {result.call_id}] {text}".replace(" ]", "]"))


def _result_message(pairs: list[_Pair], losses: Losses) -> DraftMessage:
    """Return the message with the results of `pairs`; a call without a result gets an error result."""
    parts: list[Part] = []
    for pair in pairs:
        call = pair.call
        if pair.result is None:
            detail = "the call has no result; an error result was added"
            losses.add(location_pointer(pair.location), "missing result", "rewritten", detail)
            parts.append(ToolResult(call.id, call.name, (Text(INTERRUPTED),), None, True, call.kind, call.namespace))
            continue
        if pair.is_late:
            detail = "results must directly follow their calls"
            losses.add(location_pointer(pair.result_location), "late result", "moved", detail, "info")
        parts.append(pair.result if pair.result.call_id == call.id else replace(pair.result, call_id=call.id))
    return DraftMessage(Message("user"), parts, [pair.result_location for pair in pairs])


def _without_results(message: Message, index: int, orphan_results: dict[PartLocation, Text]) -> DraftMessage:
    """Return the message without results that move to their calls; a result without a call is kept as text."""
    parts: list[Part] = []
    locations: list[PartLocation] = []
    for location, part in zip(message_locations(index, len(message.parts)), message.parts, strict=True):
        kept_part = orphan_results.get(location) if type(part) is ToolResult else part
        if kept_part is not None:
            parts.append(kept_part)
            locations.append(location)
    return DraftMessage(message, parts, locations)


# JSON numbers that a reader with doubles may round: sixteen digits, with or without a decimal point
_LONG_NUMBER = re.compile(r"[0-9.]{16}").search


def may_round_numbers(arguments: str) -> bool:
    """Return whether the text of arguments may have numbers with more digits than a double can hold."""
    return len(arguments) > 15 and _LONG_NUMBER(arguments) is not None


def sign_first_call(turn: DraftMessage, parts: list[Part], wire: Wire, losses: Losses) -> bool:
    """Replace the first call in `parts` with a signed copy if it has no signature; return whether this was done.

    The signature is the provider's documented placeholder: the model requires one, and calls of another provider have
    none. The change is added to `losses`.
    """
    if wire.capabilities.unsigned_call is None:
        return False
    number, call = next(((n, part) for n, part in enumerate(parts) if isinstance(part, ToolCall)), (0, None))
    if call is None or call.artefacts:
        return False
    placeholder = Artefact(wire.provider, "thought_signature", wire.capabilities.unsigned_call)
    first = next(location for part, location in zip(turn.parts, turn.locations, strict=True) if type(part) is ToolCall)
    detail = "the call is not signed by its model; sent with the documented placeholder"
    losses.add(f"{location_pointer(first)}/artefacts", "signature", "rewritten", detail, "info")
    parts[number] = replace(call, artefacts=(placeholder,))
    return True
