"""Put stored turns in place of the client's copies of them, and reasoning in place of its envelopes.

A turn is found by the id of its first call, by the call itself if the client returns no ids, or by its text if it has no
calls. The client's copy has precedence for content: a call that the client removed stays removed, and text that
it changed stays changed. Everything else, and the order, comes from the stored turn. Envelopes are opened first: they
contain the reasoning of turns that are not stored, or are stored elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import attrgetter, is_, or_

import msgspec
from msgspec.structs import replace

from ...ir.folding import merge_extras
from ...ir.parts import Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON
from ...ir.request import Message, Request
from .fitted_prefix import PrefixStore, RestoredPrefix, begins_with
from .reasoning_envelope import EnvelopeReader, ModelEnvelopes
from .turns import StoredTurn

_artefacts = attrgetter("artefacts")


def turn_is_incomplete(turn: StoredTurn, *, same_wire: bool) -> bool:
    """Return whether the client's copy of a turn will lack something.

    On the same wire only signatures are at risk, which some clients drop. Another wire also loses reasoning, parts of
    the provider's own, and text after a call.
    """
    if turn.uses_gateway_tools:
        return True
    parts = turn.parts
    if [*map(type, parts)].count(ToolCall) == len(parts):
        return any(map(_artefacts, parts))
    has_calls = has_own_parts = has_reasoning = has_late_text = False
    for part in parts:
        kind = type(part)
        if kind is ToolCall:
            has_calls = True
        elif kind is Text:
            has_late_text = has_late_text or has_calls
        elif kind is Reasoning:
            has_reasoning = True
        else:
            has_own_parts = has_own_parts or kind is Opaque
            continue
        if part.artefacts:  # type: ignore[union-attr]
            return True
    if same_wire:
        return False
    return has_own_parts or (has_calls and (has_reasoning or has_late_text))


def turn_keys(turn: StoredTurn) -> list[str]:
    """Return the keys under which a turn is stored: by id, and by content for clients that return no ids."""
    calls = turn.calls
    if not calls:
        return [_text_key(turn.text)] if turn.text.strip() else []
    return [calls[0].id, _call_key(calls[0])]


def find_turn_keys(request: Request, *, by_text: bool, store: PrefixStore | None = None) -> list[str]:
    """Return the keys of all turns that may be stored; `by_text` includes turns without calls.

    `store` has the keys of the first messages, if the request was read with a TranslationCache.
    """
    if store is None:
        return list(_read_keys(request.messages, by_text=by_text))
    read = partial(_read_keys, by_text=by_text)
    return list(store.scan(("turn keys", by_text), request.messages, read, or_))


def _read_keys(messages: tuple[Message, ...], *, by_text: bool) -> dict[str, None]:
    """Return the keys of the model's turns in their order; `by_text` includes turns without calls."""
    keys: dict[str, None] = {}
    for is_assistant, run in groupby(messages, _is_assistant):
        if is_assistant:
            parts = [part for message in run for part in message.parts]
            calls = [part for part in parts if isinstance(part, ToolCall)]
            keys.update(dict.fromkeys(_client_key(call) for call in calls))
            if by_text and not calls:
                keys[_text_key(_joined_text(parts))] = None
    return keys


def restore_turns(
    request: Request, known: Mapping[str, StoredTurn], origin: str, reader: EnvelopeReader | None = None
) -> Request:
    """Restore the turns in `known`, in full if they go to the model that made them, and the envelopes for `reader`.

    Another model gets only the gateway's own calls and results. Return the same object if nothing changes.
    """
    usable = {key: turn if turn.origin == origin else turn.to_portable() for key, turn in known.items()}
    usable = {key: turn for key, turn in usable.items() if turn.origin == origin or turn.uses_gateway_tools}
    messages: list[Message] = []
    results: tuple[ToolResult, ...] = ()  # of the gateway's calls, for the message after the turn
    changed = False
    for is_assistant, group in groupby(request.messages, _is_assistant):
        run = list(group)
        if not is_assistant and results:
            run[0] = replace(run[0], parts=(*results, *run[0].parts))
        opened = reader.open_messages(run) if is_assistant and reader is not None else run
        restored, results = _restore_run(opened, usable) if is_assistant else (run, ())
        changed = changed or restored is not run or bool(results)
        messages += restored
    if results:
        messages.append(Message("user", results))
    return replace(request, messages=tuple(messages)) if changed else request


def restore_known_turns(
    request: Request,
    known: Mapping[str, StoredTurn],
    origin: str,
    store: PrefixStore | None,
    envelopes: ModelEnvelopes | None = None,
) -> tuple[Request, PrefixStore | None]:
    """Like `restore_turns`, for a request that was read with a TranslationCache.

    The turns of the first messages are restored once and saved in `store`. Return also the store for the restored
    messages.
    """
    messages, reader = request.messages, None if envelopes is None else EnvelopeReader(envelopes)
    if store is None or not (known or reader) or not store.is_split(messages):
        return restore_turns(request, known, origin, reader), store
    key = origin if envelopes is None else f"{origin} {envelopes.identity}"
    prefix = store.restored.get(key)
    if prefix is not None and not _has_same_turns(prefix, messages, known):
        prefix = None
    if prefix is not None and reader is not None:
        reader.opened = prefix.opened
    if prefix is None or len(prefix.source) < store.boundary:
        prefix = _restore_prefix(messages[: store.boundary], known, origin, prefix, reader)
        store.save_restored(key, prefix)
    prefix.store.on_growth = store.on_growth
    later_messages = _restore_segment(messages[len(prefix.source) :], known, origin, reader)
    return replace(request, messages=(*prefix.messages, *later_messages)), prefix.store


def _has_same_turns(prefix: RestoredPrefix, messages: tuple[Message, ...], known: Mapping[str, StoredTurn]) -> bool:
    if not begins_with(messages, prefix.source):
        return False
    return all(_is_same_turn(turn, known.get(key)) for key, turn in prefix.turns.items())


def _is_same_turn(turn: StoredTurn | None, other: StoredTurn | None) -> bool:
    """Compare the JSON of two turns, because equal values may differ: 1 and 1.0."""
    if turn is None or other is None:
        return turn is other
    return turn is other or turn.to_json() == other.to_json()


def _restore_prefix(
    messages: tuple[Message, ...],
    known: Mapping[str, StoredTurn],
    origin: str,
    earlier: RestoredPrefix | None,
    reader: EnvelopeReader | None,
) -> RestoredPrefix:
    """Restore the turns of a prefix; the messages of an `earlier` prefix are already restored."""
    new_messages = messages if earlier is None else messages[len(earlier.source) :]
    turns = {key: known.get(key) for key in _read_keys(new_messages, by_text=True)}
    restored = _restore_segment(new_messages, known, origin, reader)
    opened = 0 if reader is None else reader.opened
    if earlier is None:
        return RestoredPrefix(messages, turns, restored, PrefixStore(len(restored)), opened)
    restored, turns = (*earlier.messages, *restored), {**earlier.turns, **turns}
    return RestoredPrefix(messages, turns, restored, PrefixStore(len(restored), earlier.store), opened)


def _restore_segment(
    messages: tuple[Message, ...], known: Mapping[str, StoredTurn], origin: str, reader: EnvelopeReader | None
) -> tuple[Message, ...]:
    """Restore turns between two boundaries, which are before messages of the model: no turn crosses one."""
    own = {key: known[key] for key in _read_keys(messages, by_text=True) if key in known}
    return restore_turns(Request(messages=messages), own, origin, reader).messages if own or reader else messages


def _restore_run(run: list[Message], known: Mapping[str, StoredTurn]) -> tuple[list[Message], tuple[ToolResult, ...]]:
    """Restore adjacent assistant messages, which may be one turn, a part of one, or several.

    Return the messages (the same list if nothing changes) and the results of the gateway's calls, for the next message.
    """
    parts = [part for message in run for part in message.parts]
    restored: list[Part] = []
    before: list[Message] = []
    results: list[ToolResult] = []
    changed = False
    for turn, segment in _split_at_turns(parts, known):
        merged = segment if turn is None else _merge(turn, segment)
        changed = changed or merged is not segment or (turn is not None and turn.uses_gateway_tools)
        if turn is not None:
            if turn.before:
                before += [*([Message("assistant", tuple(restored))] if restored else []), *turn.before]
                restored = []
            results += turn.results
        restored += merged
    if not changed:
        return run, ()
    extra = merge_extras(message.extra for message in run)
    return [*before, Message("assistant", tuple(restored), extra)], tuple(results)


def _split_at_turns(
    parts: list[Part], known: Mapping[str, StoredTurn]
) -> Iterator[tuple[StoredTurn | None, list[Part]]]:
    """Yield the stored turns in the parts of adjacent messages, each with its parts; None for parts of no stored turn.

    A turn is found by its first call, or by the whole text if there are no calls.
    """
    starts: list[tuple[int, StoredTurn]] = []  # where the calls before the turn end, and the turn
    end_of_calls = 0
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall):
            turn = known.get(_client_key(part))
            if turn is not None and turn.calls and _is_same_call(part, turn.calls[0]):
                starts.append((end_of_calls, turn))
            end_of_calls = index + 1
    if not starts:
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        yield (None if has_calls else known.get(_text_key(_joined_text(parts)))), parts
        return
    begin = 0
    for number, (_, turn) in enumerate(starts):
        # text and reasoning before the next turn's first call belong to that turn
        end = len(parts) if number + 1 == len(starts) else starts[number + 1][0]
        yield turn, parts[begin:end]
        begin = end


def _merge(turn: StoredTurn, segment: list[Part]) -> list[Part]:
    """Return the stored parts with the client's changes; the same list if the client returned everything in order."""
    if _outline(segment) == _outline(turn.parts):
        return _with_stored_reasoning(turn, segment)
    client_calls = _ClientCalls(segment)
    client_text = [part for part in segment if isinstance(part, Text) and part.text.strip()]
    keeps_text = not client_text or _squeeze(_joined_text(segment)) == _squeeze(turn.text)
    pending_text: list[Part] = [] if keeps_text else list(client_text)
    merged: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Text):
            if keeps_text:
                merged.append(part)
            else:
                merged += pending_text
                pending_text = []
        elif isinstance(part, ToolCall) and part.id not in turn.hidden:
            merged += pending_text
            pending_text = []
            found = client_calls.take(part)
            if found is not None:
                is_same = _is_same_call(found, part)
                merged.append(replace(part, id=found.id, cache=found.cache) if is_same else found)
        else:
            merged.append(part)
    others = [part for part in segment if isinstance(part, (Media, Refusal))]
    rest = client_calls.rest()
    return _with_cache_mark([*merged, *pending_text, *others, *rest], client_text if keeps_text else [])


def _with_stored_reasoning(turn: StoredTurn, segment: list[Part]) -> list[Part]:
    """Replace reasoning that the client returned verbatim, but without the fields by which its provider knows it."""
    stored = iter([part for part in turn.parts if isinstance(part, Reasoning)])
    merged = [_more_complete(part, next(stored)) if isinstance(part, Reasoning) else part for part in segment]
    return segment if all(map(is_, merged, segment)) else merged


def _more_complete(part: Reasoning, stored: Reasoning) -> Reasoning:
    return part if part.artefacts or part.extra.keys() >= stored.extra.keys() else stored


class _ClientCalls:
    """The calls of the client's copy, by id, or by content if they have none."""

    def __init__(self, parts: list[Part]) -> None:
        self._by_key: dict[str, deque[ToolCall]] = {}
        for part in parts:
            if isinstance(part, ToolCall):
                self._by_key.setdefault(_client_key(part), deque()).append(part)

    def take(self, stored: ToolCall) -> ToolCall | None:
        """Return the client's copy of a stored call, which is then no longer in the rest."""
        calls = self._by_key.get(stored.id) or self._by_key.get(_call_key(stored))
        return calls.popleft() if calls else None

    def rest(self) -> list[ToolCall]:
        return [call for calls in self._by_key.values() for call in calls]


def _with_cache_mark(parts: list[Part], client_text: list[Text]) -> list[Part]:
    """Move the client's cache mark on the text to the last stored text."""
    mark = next((part.cache for part in client_text if part.cache is not None), None)
    if mark is not None:
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if isinstance(part, Text):
                parts[index] = replace(part, cache=mark)
                break
    return parts


def _outline(parts: list[Part] | tuple[Part, ...]) -> list[tuple[str, object]]:
    """Return the kind and the signatures of each part in order; reasoning without signatures has its text instead."""
    outline: list[tuple[str, object]] = []
    for part in parts:
        if isinstance(part, ToolCall):
            outline.append((f"call {part.name}", [item.data for item in part.artefacts]))
        elif isinstance(part, Text):
            if part.text or part.artefacts:
                outline.append(("text", [item.data for item in part.artefacts]))
        elif isinstance(part, Reasoning):
            outline.append(("reasoning", [item.data for item in part.artefacts] or part.text))
        elif isinstance(part, Opaque):
            outline.append(("opaque", part.type))
    return outline


def _is_assistant(message: Message) -> bool:
    return message.role == "assistant"


def _joined_text(parts: list[Part]) -> str:
    return "".join([part.text for part in parts if isinstance(part, Text)])


def _squeeze(text: str) -> str:
    """Remove all whitespace: clients join and trim the text of a turn in different ways."""
    return "".join(text.split())


def _is_same_call(client_call: ToolCall, stored: ToolCall) -> bool:
    """Compare name and arguments, because some servers number their calls from zero in every answer."""
    return _call_key(client_call) == _call_key(stored)


def _client_key(call: ToolCall) -> str:
    return call.id or _call_key(call)


def _call_key(call: ToolCall) -> str:
    """Hash a call, independent of a client's spelling of its arguments."""
    content: JSON = call.raw if call.arguments is None else _normalise_numbers(call.arguments)
    return "call " + sha256(msgspec.json.encode((call.name, content), order="sorted")).hexdigest()


def _text_key(text: str) -> str:
    return "text " + sha256(_squeeze(text).encode("utf-8", "surrogatepass")).hexdigest()


def _normalise_numbers(value: JSON) -> JSON:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value  # JavaScript has no 1.0
    if isinstance(value, dict):
        return {name: _normalise_numbers(item) for name, item in value.items()}
    return [_normalise_numbers(item) for item in value] if isinstance(value, list) else value
