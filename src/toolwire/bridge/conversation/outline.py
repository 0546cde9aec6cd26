"""The outline of a history: facts that several rules depend on, found in one pass.

Most histories are plain: only texts, function calls and their results, each in its place. Most targets accept them as
they are, so one pass recognises them, and a rule that concerns something else needs no pass of its own. `fit_history`
fits any other history, and gives the same result for these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from operator import add, attrgetter

from msgspec import Struct

from ...ir.losses import Losses
from ...ir.parts import Opaque, Part, Text, ToolCall, ToolResult
from ...ir.request import Message
from ...wire.protocol import Wire
from .history import LOCATIONS_PER_MESSAGE, DraftMessage, may_round_numbers, merge_turns, sign_first_call
from .names import NameMap, are_usable


class PlainHistory(Struct, eq=False):
    """The messages, in which each result has the name of its call, and the calls in order."""

    turns: list[DraftMessage]
    calls: list[ToolCall]
    has_errors: bool = False  # a result is an error
    has_assistant_run: bool = False  # an assistant message follows another one


def read_plain(messages: Sequence[Message], first_index: int = 0) -> PlainHistory | None:
    """Return the history if it is plain, or None; its system messages must be at the start.

    `first_index` is the index of the first of these messages in the request.
    """
    plain, all_parts = [*messages], [*map(_parts, messages)]
    calls: list[ToolCall] = []
    waiting: deque[ToolCall] = deque()  # calls without a result so far
    results: list[ToolResult] = []
    texts: list[Part] = []  # parts that have to be plain texts
    last_role, has_assistant_run = "system", False
    for number, role in enumerate(map(_role, messages)):
        if role == "user":
            if waiting:
                named_parts = _name_results(all_parts[number], waiting, results, texts)
                if named_parts is None:
                    return None
                plain[number] = Message(role, named_parts, plain[number].extra)
                all_parts[number] = named_parts
            else:
                texts += all_parts[number]
        elif role == "assistant":
            if last_role == role:
                has_assistant_run = True
            elif waiting:
                return None
            for part in all_parts[number]:
                if type(part) is ToolCall:
                    calls.append(part)
                    waiting.append(part)
                else:
                    texts.append(part)
        elif role == last_role == "system":
            texts += all_parts[number]
        else:
            return None
        last_role = role
    # an unanswered call, no message besides system messages, an empty message, or an unusual part
    if waiting or last_role == "system" or () in all_parts or not _are_plain(plain, texts, calls, results):
        return None
    return PlainHistory(
        _draft_all(plain, all_parts, first_index), calls, any(map(_is_error, results)), has_assistant_run
    )


def _name_results(
    parts: tuple[Part, ...], waiting: deque[ToolCall], results: list[ToolResult], texts: list[Part]
) -> tuple[Part, ...] | None:
    """Return the parts of a message that begins with the results of `waiting` calls, with the names of the calls.

    Return None if a result does not belong to the next call. Some wires do not repeat the names, and others require
    them. The calls are removed from `waiting`, the parts added to `results` and `texts`.
    """
    named_parts: list[Part] = []
    for part in parts:
        if waiting:
            call = waiting.popleft()
            if type(part) is not ToolResult or part.call_id != call.id:
                return None
            results.append(part)
            if part.name != call.name:
                part = ToolResult(call.id, call.name, part.parts, None, part.is_error, extra=part.extra)
        else:
            texts.append(part)
        named_parts.append(part)
    return tuple(named_parts)


def _draft_all(messages: list[Message], all_parts: list[tuple[Part, ...]], first_index: int) -> list[DraftMessage]:
    """Return the messages with the locations of their parts: `message_locations` for all messages at once."""
    first, size = first_index * LOCATIONS_PER_MESSAGE, LOCATIONS_PER_MESSAGE
    starts = range(first, first + size * len(messages), size)
    return [*map(DraftMessage, messages, all_parts, map(range, starts, map(add, starts, map(len, all_parts))))]


# All parts of a kind are checked at once, because a loop over them costs several times as much.
_role, _parts, _extra = attrgetter("role"), attrgetter("parts"), attrgetter("extra")
_id, _name = attrgetter("id"), attrgetter("name")
_text, _raw, _is_error = attrgetter("text"), attrgetter("raw"), attrgetter("is_error")
_text_options = attrgetter("cache", "artefacts")
_call_options = attrgetter("state", "kind", "namespace", "cache", "artefacts")
_result_options = attrgetter("structured", "kind", "namespace", "cache", "found")


def _are_plain(messages: list[Message], parts: list[Part], calls: list[ToolCall], results: list[ToolResult]) -> bool:
    """Return whether every target accepts the texts in `parts`, the calls and the results: no option is set.

    Each result must have one part, a text.
    """
    if results:
        result_parts = [*map(_parts, results)]
        if [*map(len, result_parts)].count(1) < len(results):
            return False
        parts = [*parts, *chain.from_iterable(result_parts)]
    count = len(parts)
    if [*map(type, parts)].count(Text) < count or [*map(_text_options, parts)].count((None, ())) < count:
        return False
    if not _have_source_forms(chain(messages, parts, calls, results)):
        return False
    texts = [*map(_text, parts)]
    if "" in texts or True in map(str.isspace, texts):
        return False
    if not calls:
        return True
    return (
        [*map(_call_options, calls)].count(("complete", "function", None, None, ())) == len(calls)
        and "" not in map(_raw, calls)  # the text of the arguments
        and [*map(_result_options, results)].count((None, "function", None, None, ())) == len(results)
    )


def _have_source_forms(values: Iterable[Message | Part]) -> bool:
    """Return whether the fields of messages and parts only have the form of the source, which no target loses."""
    extras = [*filter(None, map(_extra, values))]
    return all(name.endswith("~") for extra in extras for name in extra) if extras else True


def fit_plain(
    history: PlainHistory, wire: Wire, names: NameMap, losses: Losses, lifts: Container[str]
) -> list[DraftMessage] | None:
    """Return the turns of a plain history on a target, or None if the target changes a call or a result.

    `names` get the names of the calls, as in `fit_history`, and `losses` the placeholder signatures. `lifts` are the
    tools whose arguments change shape.
    """
    can, turns, calls = wire.capabilities, history.turns, history.calls
    if history.has_errors and not can.result_error:
        return None
    if calls:
        if not are_usable([*map(_id, calls)], wire.limits):
            return None
        for name in dict.fromkeys(map(_name, calls)):
            if names.to_wire(None, name) != name or name in lifts:
                return None
        if can.object_arguments and any(map(may_round_numbers, filter(None, map(_raw, calls)))):
            return None
        if can.unsigned_call is not None:
            turns = [_sign_turn(turn, wire, losses) for turn in turns]
    return merge_turns(turns, can) if can.one_message_a_turn or history.has_assistant_run else turns


def _sign_turn(turn: DraftMessage, wire: Wire, losses: Losses) -> DraftMessage:
    if turn.message.role != "assistant":
        return turn
    parts = list(turn.parts)
    if not sign_first_call(turn, parts, wire, losses):
        return turn
    return DraftMessage(Message("assistant", tuple(parts), turn.message.extra), parts, turn.locations)


class HistoryOutline(Struct, eq=False):
    """The names of the calls in their order, the fields of `extra` of all parts, and the presence of rare parts."""

    call_names: dict[str, None] = {}
    plain: PlainHistory | None = None  # the history, if it is plain and was read as a whole
    fields: dict[str, set[str]] = {}  # by key of `extra`
    has_empty_messages: bool = False  # without parts, but with fields
    has_found_tools: bool = False  # in results of searches
    has_opaque_parts: bool = False

    @property
    def may_refer(self) -> bool:
        """True if a part or a message may refer to state that a provider stores (see `provider_state`)."""
        return self.has_opaque_parts or self.has_empty_messages

    def has_fields(self, names: Mapping[str, frozenset[str]]) -> bool:
        """Return whether a part has one of these fields, by key of `extra`."""
        return any(not names[group].isdisjoint(fields) for group, fields in self.fields.items() if group in names)

    def joined(self, later: HistoryOutline) -> HistoryOutline:
        """Return the outline of this history and the messages after it, without `plain`."""
        both = HistoryOutline()
        both.call_names = {**self.call_names, **later.call_names}
        both.fields = {group: set(fields) for group, fields in self.fields.items()}
        for group, fields in later.fields.items():
            both.fields.setdefault(group, set()).update(fields)
        both.has_empty_messages = self.has_empty_messages or later.has_empty_messages
        both.has_found_tools = self.has_found_tools or later.has_found_tools
        both.has_opaque_parts = self.has_opaque_parts or later.has_opaque_parts
        return both


def outline_history(messages: Sequence[Message]) -> HistoryOutline:
    """Return the outline of a whole history."""
    plain = read_plain(messages)
    if plain is None:
        return outline_parts(messages)
    return HistoryOutline(dict.fromkeys(map(_name, plain.calls)), plain)


def outline_parts(messages: Iterable[Message]) -> HistoryOutline:
    """Return the outline of some messages of a history, without `plain`."""
    outline = HistoryOutline()
    call_names, all_fields = outline.call_names, outline.fields
    for message in messages:
        if not message.parts and message.extra:
            outline.has_empty_messages = True
        for part in message.parts:
            if isinstance(part, Opaque):
                outline.has_opaque_parts = True
                continue
            if isinstance(part, ToolCall):
                call_names[part.name] = None
            elif isinstance(part, ToolResult) and part.found:
                outline.has_found_tools = True
            for group, fields in part.extra.items() if part.extra else ():
                known = all_fields.get(group)
                if known is None:
                    all_fields[group] = set(fields)
                elif not known.issuperset(fields):
                    known.update(fields)
    return outline
