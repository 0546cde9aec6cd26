"""State of a Chat stream that is being decoded: choices, and the calls in them."""

from __future__ import annotations

from ...ir.parts import Artefact, CallKind, Extra
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.text import unescape
from ...stream.scanner import Scanner
from ..fragments import Fragments

__all__ = ["GrowingCall", "GrowingChoice", "OpenText", "collect_logprobs", "is_new_call"]


class OpenText:
    """Text, a refusal or reasoning that is still growing. `field` is the field of the delta that carries it."""

    __slots__ = ("extra", "field", "key")

    def __init__(self, field: str, key: int) -> None:
        self.field = field
        self.key = key
        self.extra = Fragments()


class GrowingCall:
    """A call that is still growing."""

    __slots__ = (
        "artefacts",
        "ended",
        "extra",
        "id",
        "inner",
        "key",
        "kind",
        "name",
        "outer",
        "pieces",
        "scanned",
        "scanner",
    )

    def __init__(self, key: int, call_id: str, kind: CallKind, extra: Extra) -> None:
        self.key = key
        self.id = call_id
        self.kind: CallKind = kind
        self.name = ""  # empty until the call starts
        self.pieces: list[bytes] = []  # arguments so far, JSON-escaped
        self.artefacts: tuple[Artefact, ...] = ()
        self.extra = extra
        self.ended = False
        self.scanner: Scanner | None = None  # for servers that do not mark the end of a call
        self.scanned = 0  # number of pieces that the scanner has read
        self.outer = Fragments()  # unknown fields of the call
        self.inner = Fragments()  # unknown fields of its function

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
        "by_index",
        "calls",
        "extra",
        "grown",
        "index",
        "last",
        "logprobs",
        "message",
        "open",
        "refused",
        "stop",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.open: OpenText | None = None  # the text, refusal or reasoning that is open
        self.calls: list[GrowingCall] = []
        self.by_index: dict[int, GrowingCall] = {}  # by `index` of the call deltas
        self.last: GrowingCall | None = None  # the call of the last delta
        self.grown: list[GrowingCall] = []  # calls that have changed since the last call began
        self.logprobs: dict[str, list[JSON]] = {}
        self.refused = False
        self.stop: Stop | None = None
        self.extra: Extra = {}
        self.message = Fragments()  # unknown fields of the message


def is_new_call(call: GrowingCall, call_id: str, name: str, has_arguments: bool) -> bool:
    """Return whether a delta with this id and name starts another call. `has_arguments`: the delta carries some."""
    if call_id and call.id:
        return call_id != call.id
    if name and call.name:
        return name != call.name or (has_arguments and (call.ended or call.is_complete()))
    return False


def collect_logprobs(choice: GrowingChoice, fields: Object) -> None:
    """Collect log probabilities, which arrive token by token; all other fields of a choice arrive once."""
    new = fields.get("logprobs")
    if type(new) is not dict:
        return
    for key, value in new.items():
        if type(value) is list:
            choice.logprobs.setdefault(key, []).extend(value)
    fields["logprobs"] = {**new, **choice.logprobs}
