"""State of a Messages stream that is being decoded: content blocks that are open or may be repeated."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.events import CallDelta, Event, ReasoningDelta, TextDelta
from ...ir.parts import Artefact, CallState
from ...ir.pointer import JSON, Object
from ...ir.text import unescape
from ...stream.strict import parse_arguments
from ..streaming.copies import ArgumentsEnd
from ..streaming.decoder import Fragments


class OpenBlock:
    """A content block that is not closed yet, or that may be repeated."""

    def __init__(self, key: int, kind: str, fields: Object) -> None:
        """Create a block with the key of its events and the `fields` of its start."""
        self.key = key
        self.kind = kind
        self.fields = fields
        self.delta: Callable[[int, bytes], Event] | None = _DELTAS.get(kind)
        self.pieces: list[bytes] = []  # escaped input of a call or an unknown block, parsed at its end
        self.held = b""  # a closing brace at the end of a call's input so far, which is not emitted yet
        self.end = ArgumentsEnd()
        self.is_stopped = False  # a call is closed later, since more of its input may follow
        self.is_ended = False
        self.arguments: Object | None = None
        self.start_input: JSON = None  # the parsed input of `fields`
        self.state: CallState | None = None  # of the input; None if it has grown since it was parsed
        self.late: list[bytes] = []  # input after the complete one
        self.artefacts: tuple[Artefact, ...] = ()
        self.citations = [*fields["citations"]] if type(fields.get("citations")) is list else []
        self.extra_fragments = Fragments()  # fields from deltas of an unknown type

    @property
    def raw_input(self) -> str:
        return unescape(b"".join(self.pieces))

    def parse_input(self) -> CallState:
        if self.state is None:
            self.arguments, self.state = parse_arguments(self.raw_input)
        return self.state

    def is_repeated_in(self, fields: Object, *, has_index: bool) -> bool:
        """Return whether the later start `fields` has the same id.

        Without an index, another name or other input is another call.
        """
        if self.fields.get("id") != fields.get("id"):
            return False
        if has_index:
            return True
        if fields.get("name") and fields["name"] != self.fields.get("name"):
            return False
        repeated = _read_input(fields)
        return not repeated or not self.known_input or repeated == self.known_input

    @property
    def known_input(self) -> JSON:
        """The arguments that are complete, by deltas or in the start. Each is parsed once, as many starts may follow."""
        if self.start_input is None:
            self.start_input = _read_input(self.fields) or {}
        if self.pieces and self.state is None and self.is_stopped and self.is_full():
            self.parse_input()
        return self.arguments or self.start_input

    def is_full(self) -> bool:
        """Return whether the input is complete, so that more of it is a repetition."""
        return bool(self.late) or self.is_ended or (bool(self.pieces) and self.end.is_after(self.pieces))


_DELTAS: dict[str, Callable[[int, bytes], Event]] = {
    "text": TextDelta,
    "tool_use": CallDelta,
    "thinking": ReasoningDelta,
}


def _read_input(fields: Object) -> JSON:
    """Return the input in the start of a block; some servers send it as text."""
    value = fields.get("input")
    return parse_arguments(value)[0] if type(value) is str else value


def is_whole(block: OpenBlock) -> bool:
    """Return whether nothing shows that the block has been cut: a call without input may still get it."""
    if block.is_stopped or not (block.pieces or block.kind == "tool_use"):
        return True
    return bool(block.pieces or block.fields.get("input")) and block.parse_input() == "complete"
