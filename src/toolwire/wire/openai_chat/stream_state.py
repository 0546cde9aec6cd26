"""State of a Chat stream that is being decoded: choices, and the calls in them."""

from __future__ import annotations

from ...ir.parts import Artefact, CallKind, Extra
from ...ir.pointer import JSON, Object
from ...ir.text import unescape
from ...stream.scanner import Scanner
from ..fragments import Fragments

__all__ = ["GrowingCall", "GrowingChoice", "OpenText", "collect_logprobs", "is_new_call"]


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
        "outer",
        "pieces",
        "position",
        "scanned",
        "scanner",
    )

    def __init__(self, key: int, position: int, index: int, call_id: str, kind: CallKind, extra: Extra) -> None:
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
        self.scanner: Scanner | None = None  # for servers that do not mark the end of a call
        self.scanned = 0  # number of pieces that the scanner has read
        self.outer = Fragments()  # unknown fields of the call
        self.inner = Fragments()  # unknown fields of its function

    def add_name(self, name: str) -> None:
        """Add a piece of the name. A name that is repeated in full, or that grows with each delta, counts once."""
        if not self.has_started:
            self.name = name if name.startswith(self.name) else self.name + name if name != self.name else name

    def has_placeholder(self, index: int | None) -> bool:
        """Return whether the only arguments so far are `{}`, which may precede the real ones under the same index."""
        return index is not None and not self.has_started and self.pieces == [b"{}"]

    def restart(self) -> None:
        """Forget the arguments so far."""
        self.pieces.clear()
        self.scanner, self.scanned = None, 0

    def is_complete(self) -> bool:
        """Return whether the arguments so far are a complete object. Each piece is scanned once over all calls."""
        if not self.pieces:
            return False
        if self.scanner is None:
            self.scanner = Scanner()
        news, self.scanned = self.pieces[self.scanned :], len(self.pieces)
        if news:
            self.scanner.feed(unescape(b"".join(news)))
        return self.scanner.complete


class GrowingChoice:
    """A choice that is still growing."""

    __slots__ = (
        "by_id",
        "by_index",
        "calls",
        "details",
        "ends_with_call",
        "extra",
        "grown",
        "has_deltas",
        "has_early_reason",
        "index",
        "last",
        "logprobs",
        "message",
        "open",
        "ready",
        "reason",
        "refused",
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
        self.ends_with_call = False  # the delta with the finish reason has a call
        self.has_early_reason = False  # that reason came before, or is not about calls
        self.has_deltas = False  # not only messages
        self.texts: dict[str, bytearray] = {}  # by field: all text so far, JSON-escaped
        self.extra: Extra = {}
        self.message = Fragments()  # unknown fields of the message


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
        return has_other_id or index is None or bool(call.pieces) or call.has_started
    if has_other_id:
        return index is None or not call.pieces or call.is_complete()
    if not fragment or not (call.ended or call.is_complete()) or call.has_placeholder(index):
        return False
    return not call_id or fragment != unescape(b"".join(call.pieces))  # else the call is repeated


def collect_logprobs(choice: GrowingChoice, fields: Object) -> None:
    """Collect log probabilities, which arrive token by token; all other fields of a choice arrive once."""
    new = fields.get("logprobs")
    if type(new) is not dict:
        return
    for key, value in new.items():
        if type(value) is list:
            choice.logprobs.setdefault(key, []).extend(value)
    fields["logprobs"] = {**new, **choice.logprobs}
