"""State of a Chat stream that is being decoded: choices, and the calls in them."""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.parts import Artefact, CallKind, Extra, Part, Reasoning, Refusal, Text
from ...ir.pointer import JSON, Object
from ...ir.text import unescape
from ...stream.scanner import Scanner
from ..fields import read_index, read_optional_string, read_unknown
from ..streaming.copies import MAX_ESCAPED, MAX_OPEN, Copy, equal_arguments, is_near
from ..streaming.decoder import Fragments
from .content import NAME, read_parts
from .messages import (
    DETAILS,
    REASONING_FIELDS,
    find_reasoning,
    read_call_id,
    read_function,
    read_signature,
    report_other_reasoning,
)

FORM = "openai_chat~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
THOUGHTS = ":thinking"  # the reasoning of all fields, and the field of reasoning in an array of content (Mistral)
REASONING = frozenset({*REASONING_FIELDS, DETAILS, THOUGHTS})
PART_FIELDS: dict[type[Part], str] = {Text: "content", Reasoning: THOUGHTS, Refusal: "refusal"}

_CALL = frozenset({"index", "id", "type", "function", "custom", ":call"})
_FUNCTION = frozenset({"name", "arguments", "input"})


class OpenText:
    """Text, a refusal or reasoning that is still growing. `field` is the field of the delta that carries it."""

    __slots__ = ("extra", "field", "key", "remember")

    def __init__(self, field: str, key: int, so_far: bytearray) -> None:
        self.field = field
        self.key = key
        self.remember = so_far.extend  # adds to all text of this field in the choice, JSON-escaped
        self.extra = Fragments()


class GrowingCall:
    """A call that is still growing."""

    __slots__ = (
        "artefacts",
        "ended",
        "extra",
        "has_started",
        "id",
        "index",
        "inner",
        "key",
        "kind",
        "name",
        "original",
        "outer",
        "pieces",
        "position",
        "scanned",
        "scanner",
    )

    def __init__(self, key: int, position: int, index: int, call_id: str, kind: CallKind, extra: Extra) -> None:
        """Create a call without a name and arguments; `key` is the key of its events."""
        self.key = key
        self.position = position  # among the calls of its choice
        self.index = index  # of its deltas
        self.id = call_id
        self.kind: CallKind = kind
        self.name = ""  # so far; complete when the call starts
        self.has_started = False
        self.pieces: list[bytes] = []  # arguments so far, JSON-escaped
        self.artefacts: tuple[Artefact, ...] = ()
        self.extra = extra
        self.ended = False
        self.original: GrowingCall | None = None  # the call that this one may repeat; it starts when it is complete
        self.scanner: Scanner | None = None  # for servers that do not mark the end of a call
        self.scanned = 0  # number of pieces that the scanner has read
        self.outer = Fragments()  # unknown fields of the call
        self.inner = Fragments()  # unknown fields of its function

    def add_name(self, name: str) -> None:
        """Add a piece of the name. A name that is repeated in full, or that grows with each delta, counts once."""
        if not self.has_started:
            self.name = name if name.startswith(self.name) else self.name + name if name != self.name else name

    def may_be_other(self, name: str) -> bool:
        """Return whether `name`, which begins with the name so far, may be the name of another call: no id decides."""
        return not self.has_started and not self.id and 0 < len(self.name) < len(name) and name.startswith(self.name)

    def may_start(self, *, is_end: bool) -> bool:
        """Return whether the call has a name, and is no part of a repetition; `is_end`: no more of it follows."""
        return bool(self.name) and (is_end or self.original is None or self.is_complete())

    def keep_fields(self, raw: Object, inner: Object) -> None:
        """Keep the signature of the call, and unknown fields."""
        if not _CALL.issuperset(raw):
            signature = read_signature(raw)
            self.artefacts = self.artefacts or signature
            self.outer.add(read_unknown(raw, (*_CALL, "extra_content") if signature else _CALL, NAME).get(NAME, {}))
        if not _FUNCTION.issuperset(inner):
            self.inner.add(read_unknown(inner, _FUNCTION, NAME).get(NAME, {}))

    def has_placeholder(self, index: int | None) -> bool:
        """Return whether the only arguments so far are `{}`, which may precede the real ones under the same index."""
        return index is not None and not self.has_started and self.pieces == [b"{}"]

    def has_arguments(self, text: str) -> bool:
        """Return whether `text` is the arguments so far, perhaps formatted differently."""
        if not is_near(self.pieces, text):
            return False
        own = self.read_arguments()
        return text == own or (self.kind == "function" and equal_arguments(text, own))

    def as_copy(self) -> Copy:
        copy = Copy(self.kind, self.name, (self.id,), self.read_arguments, self.kind == "function")
        copy.is_open = not self.ended
        copy.has_partial_name = not self.has_started
        return copy

    def read_arguments(self) -> str:
        return "" if self.has_placeholder(0) else unescape(b"".join(self.pieces))

    def missing_arguments(self, copy: Copy) -> str | None:
        """Return the rest of a message's arguments after the pieces so far, or None if they differ."""
        if not copy.text or not self.pieces or self.has_placeholder(0):
            return copy.text
        if not is_near(self.pieces, copy.text):
            return None
        own = self.as_copy()
        if copy.text.startswith(own.text) and not self.ended:
            return copy.text[len(own.text) :]
        return "" if copy.content == own.content else None

    def restart(self) -> None:
        """Forget the arguments so far."""
        self.pieces.clear()
        self.scanner, self.scanned = None, 0

    def is_complete(self) -> bool:
        """Return whether the arguments so far are a complete object. Each piece is scanned once over all calls."""
        if not self.pieces or self.kind == "freeform":
            return False
        if self.scanner is None:
            self.scanner = Scanner()
        news, self.scanned = self.pieces[self.scanned :], len(self.pieces)
        if news:
            self.scanner.feed(unescape(b"".join(news)))
        return self.scanner.complete

    def has_failed(self) -> bool:
        """Return whether no further text makes the arguments so far an object."""
        return not self.is_complete() and self.scanner is not None and self.scanner.invalid


class GrowingChoice:
    """A choice that is still growing."""

    __slots__ = (
        "begins_open",
        "by_id",
        "by_index",
        "calls",
        "checked",
        "details",
        "ends_with_call",
        "extra",
        "grown",
        "has_deltas",
        "has_early_reason",
        "has_fragments",
        "index",
        "is_cumulative",
        "last",
        "logprobs",
        "message",
        "open",
        "ready",
        "reason",
        "refused",
        "repeated",
        "row",
        "shown",
        "starting",
        "texts",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.open: OpenText | None = None  # the text, refusal or reasoning that is open
        self.calls: list[GrowingCall] = []
        self.details = Fragments()  # of the reasoning that is open, or comes next
        self.starting = 0  # the number of calls that have started
        self.ready = 0  # the number of calls that may start
        self.by_index: dict[int, GrowingCall] = {}  # by `index` of the call deltas
        self.by_id: dict[str, GrowingCall] = {}
        self.last: GrowingCall | None = None  # the call of the last delta
        self.grown: list[GrowingCall] = []  # calls that have changed since the last call began
        self.logprobs: dict[str, list[JSON]] = {}
        self.refused = False
        self.reason = ""  # the last finish reason that is not empty
        self.begins_open = False  # a chunk came before the first reason
        self.ends_with_call = False  # the delta with the finish reason has a call
        self.has_early_reason = False  # that reason came before, or is not about calls
        self.has_deltas = False  # not only messages
        self.has_fragments = False  # each message holds a fragment of the text
        self.is_cumulative = False  # each message holds all text so far
        self.repeated: dict[str, int] = {}  # by field: the number of messages that equal the first
        self.checked = 0  # the number of calls at the last message that had calls
        self.shown: list[GrowingCall] = []  # calls of the last message that had calls
        self.row: list[GrowingCall] = []  # calls of the last array of several
        self.texts: dict[str, bytearray] = {}  # by field: all text so far, JSON-escaped
        self.extra: Extra = {}
        self.message = Fragments()  # unknown fields of the message

    def continue_call(self, call: GrowingCall) -> None:
        """Make `call` the call of the last delta."""
        if self.last is not call:
            self.last = call
            self.grown.append(call)

    def continue_row(self, number: int, raw: Object, row: list[GrowingCall]) -> None:
        """Prepare for the entry `number` of an array of several, which has no id; `row` has the calls of the others.

        The position replaces a missing index. A name after a complete call in the same array starts another call.
        """
        if raw.get("index") is None:
            if number < len(self.row):
                self.continue_call(self.row[number])
            elif number:
                self.last = None  # another place in the array is another call
            return
        index = read_index(raw, "index")
        call = None if index is None else self.by_index.get(index)
        if call is None or not row or call is not row[-1]:
            return
        _, inner, fragment = read_function(raw)
        if inner.get("name") == call.name and (call.is_complete() or not (call.pieces or fragment)):
            del self.by_index[call.index]

    def add_call(self, call: GrowingCall) -> GrowingCall:
        self.by_index[call.index] = call
        self.calls.append(call)
        if call.id:
            self.by_id[call.id] = call
        return call

    def set_id(self, call: GrowingCall, call_id: str) -> None:
        """Set the id of a call, unless it has an id."""
        if call_id and not call.id:
            call.id = call_id
            self.by_id.setdefault(call_id, call)

    def recent_calls(self, copies: list[Copy]) -> tuple[list[GrowingCall], list[Copy]]:
        """Return the calls that a message may repeat: the last message's, all later ones, and some before.

        So the cost of many messages is linear; other calls are found by id only. Calls that are much longer than all
        copies are not compared with them.
        """
        longest = max([copy.text for copy in copies], key=len)
        start, self.checked = max(0, self.checked - MAX_OPEN - len(copies)), len(self.calls)
        recent = {call.position: call for call in (*self.shown, *self.calls[start:])}
        calls = [call for _, call in sorted(recent.items()) if call.has_started or not call.ended]
        items = [call.as_copy() for call in calls]
        for call, item in zip(calls, items, strict=True):
            item.is_far = not is_near(call.pieces, longest)
        return calls, items

    def text_of(self, field: str) -> bytearray:
        """Return all text of `field` so far; the fields of reasoning have one text."""
        text = self.texts[field] = self.texts.setdefault(THOUGHTS if field in REASONING else field, bytearray())
        return text

    def unseen_content(self, message: Object, losses: Losses) -> tuple[Object, list[Part] | None]:
        """Return a message without the text of earlier chunks, and the parts of its content if it is an array."""
        delta = dict(message)
        thoughts = find_reasoning(message)
        if thoughts is not None and (missing := self.missing_text(THOUGHTS, thoughts[1], losses)) != thoughts[1]:
            report_other_reasoning(message, *thoughts, losses)
            has_new_details = not self.details and not self.texts.keys().isdisjoint(REASONING_FIELDS)
            known = REASONING - {DETAILS} if has_new_details else REASONING
            delta = {key: value for key, value in message.items() if key not in known}
            delta["reasoning" if thoughts[0] == DETAILS else thoughts[0]] = missing
        for field in ("content", "refusal"):
            text = message.get(field)
            if type(text) is str and text:
                delta[field] = self.missing_text(field, text, losses)
        content = message.get("content")
        if type(content) is list or type(content) is dict:
            return delta, self._unseen_parts(read_parts(content), losses)
        return delta, None

    def _unseen_parts(self, parts: list[Part], losses: Losses) -> list[Part]:
        """Return parts without the text of earlier chunks; report fields of text that has been sent."""
        texts: dict[type[Text | Reasoning | Refusal], list[str]] = {}
        for part in parts:
            if isinstance(part, (Text, Reasoning, Refusal)) and part.text:
                texts.setdefault(type(part), []).append(part.text)
        known: dict[type[Part], int] = {}  # characters that earlier chunks contained
        unseen: list[Part] = []
        for kind, pieces in texts.items():
            text = "".join(pieces)
            missing = self.missing_text(PART_FIELDS[kind], text, losses)
            known[kind] = max(0, len(text) - len(missing))
            if len(missing) > len(text):  # the text that the message before this one repeated
                unseen.append(kind(missing[: -len(text)]))
        for part in parts:
            if not isinstance(part, (Text, Reasoning, Refusal)) or not known.get(type(part)):
                unseen.append(part)
                continue
            seen = min(known[type(part)], len(part.text))
            known[type(part)] -= seen
            is_open = self.open is not None and self.open.field == PART_FIELDS[type(part)]
            if is_open or seen < len(part.text):
                unseen.append(replace(part, text=part.text[seen:]))
            elif any((fields := part.extra.get(NAME, {})).values()):
                detail = f"a message adds {', '.join(fields)} to text that has been sent"
                losses.add("/parts", "content", "dropped", detail)
        return unseen

    def missing_text(self, field: str, text: str, losses: Losses) -> str:
        """Return the rest of a message's text after the chunks so far; report text that differs from them.

        Without deltas, the second message shows whether each message holds all text so far or a fragment. If it equals
        the first, the next message shows it; without a next message the text was sent twice.
        """
        concept = "reasoning" if field == THOUGHTS else field
        escaped = self.text_of(field)
        if not escaped or (self.has_fragments and not self.has_deltas):
            return text
        so_far = unescape(bytes(escaped)) if len(escaped) <= MAX_ESCAPED * len(text) else None  # linear cost
        if so_far is not None and text.startswith(so_far):
            losses.add("/parts", concept, "rewritten", "a message repeats the text of earlier chunks", "info")
            if text == so_far:
                self.repeated[field] = self.repeated.get(field, 0) + 1
            else:
                self.is_cumulative = True
            return text[len(so_far) :]
        if self.has_deltas:
            detail = "the final message differs from the deltas, which have been sent"
            losses.add("/parts", concept, "dropped", detail)
            return ""
        if self.is_cumulative:
            detail = "messages that extend the text before them were read as all text so far, but one is a fragment"
            losses.add("/parts", concept, "dropped", detail)
            return text
        self.has_fragments = True
        return unescape(bytes(escaped)) * self.repeated.get(field, 0) + text


def is_new_call(call: GrowingCall, index: int | None, call_id: str, name: str, fragment: str) -> bool:
    """Return whether a delta with this index, id, name and arguments starts another call than `call`.

    Only a delta with a name starts a call, because some servers make a new id for every delta (poolsideai/pool#9). Others
    use one index for all calls (ollama/ollama#15457), send a name in pieces (continuedev/continue#5849), or repeat it
    (NousResearch/hermes-agent#8259).
    """
    has_other_id = bool(call_id and call.id and call_id != call.id)
    if not name or not call.name:
        return bool(name) and has_other_id
    if name != call.name:  # of the next call, or a piece of this name
        is_other = index is None and not (call.id and call_id in ("", call.id))
        return has_other_id or is_other or bool(call.pieces) or call.has_started
    if has_other_id:
        if index is None or not call.pieces or call.kind == "freeform" or call.is_complete():
            return True
        return fragment[:1] in ("", "{") and call.has_failed()
    if not fragment or fragment.isspace() or not (call.ended or call.is_complete()) or call.has_placeholder(index):
        return False
    return not call_id or not call.has_arguments(fragment)  # else the call is repeated


def call_form(raw: Object) -> Extra:
    return {FORM: {":call": raw[":call"]}} if ":call" in raw else {}


def as_copy(raw: Object) -> Copy:
    kind, inner, arguments = read_function(raw)
    name = read_optional_string(inner, "name") or ""
    return Copy(kind, name, (read_call_id(raw),), lambda: arguments, kind == "function")


def collect_logprobs(choice: GrowingChoice, fields: Object) -> None:
    """Collect log probabilities, which arrive token by token; all other fields of a choice arrive once."""
    new = fields.get("logprobs")
    if type(new) is not dict:
        return
    for key, value in new.items():
        if type(value) is list:
            choice.logprobs.setdefault(key, []).extend(value)
    fields["logprobs"] = {**new, **choice.logprobs}
