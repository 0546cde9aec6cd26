"""Convert the text of an object, property by property, from a lowered schema to the original one.

A value that is carried unchanged passes through as it arrives; any other value waits for its own end. Each character is
scanned once, so the result does not depend on the fragments in which the text arrives.
"""

from __future__ import annotations

from ..ir.errors import ProtocolError
from ..ir.text import dumps
from ..schema.lowering.codec import FieldCodec, apply_codec
from ..stream.scanner import Scanner
from ..stream.strict import parse

__all__ = ["PropertyLifter"]


class PropertyLifter:
    """Lift the text of one object; after a text that cannot be converted (`failed`), nothing more is returned."""

    __slots__ = ("_names", "_properties", "_scanner", "_sent_length", "_waiting", "failed", "started", "streaming")

    def __init__(self, properties: dict[str, FieldCodec]) -> None:
        self.failed = False
        self.started = False  # the opening brace was returned
        self.streaming = False  # the value in progress passes through
        self._properties = properties
        self._scanner = Scanner()
        self._names: set[str] = set()  # properties that are complete and converted
        self._waiting = ""  # the name, as JSON, of a value in progress that waits for its end
        self._sent_length = 0  # length of the returned part of the value in progress

    @property
    def complete(self) -> bool:
        """True after the closing brace, which is not returned: the caller ends the text."""
        return self._scanner.complete and not self.failed

    @property
    def count(self) -> int:
        """The number of converted properties."""
        return len(self._names)

    def feed(self, text: str) -> str:
        """Return the converted text that is certain now."""
        if self.failed:
            return ""
        out: list[str] = []
        try:
            for name, raw in self._scanner.feed(text):
                out.append(self._complete_field(name, raw))
                self._names.add(name)
            if self._scanner.partial is not None:
                out.append(self._partial_field(*self._scanner.partial))
        except ProtocolError:  # the scanner checks only the outline of names and values
            self.failed = True
        self.failed = self.failed or self._scanner.invalid
        return "".join(out)

    def _field_codec(self, name: str) -> FieldCodec:
        return self._properties.get(name) or FieldCodec(name, name, None, False)

    def _field_prefix(self, field: FieldCodec) -> str:
        mark, self.started = "," if self.started else "{", True
        return f"{mark}{dumps(field.name)}:"

    def _complete_field(self, name: str, raw: str) -> str:
        """Return the text that completes a property; empty if its value means that it is absent."""
        if self.streaming:
            self.streaming = False
            return raw[self._sent_length :]
        field = self._field_codec(name)
        value = parse(raw)
        if field.is_filled and (value is None or value == field.absent):
            return ""
        return self._field_prefix(field) + (raw if field.codec is None else dumps(apply_codec(field.codec.lift, value)))

    def _partial_field(self, name_as_json: str, piece: str) -> str:
        """Return the text of an incomplete property, if its value is carried unchanged and cannot mean absence."""
        if self.streaming:
            self._sent_length += len(piece)
            return piece
        if name_as_json == self._waiting:
            return ""
        name = parse(name_as_json)
        if name in self._names:  # the second property of this name
            self.failed = True
            return ""
        field = self._field_codec(name)
        if field.codec is not None or field.absent is not None or piece[:1] not in ('"', "{", "["):
            self._waiting = name_as_json
            return ""
        self.streaming, self._sent_length = True, len(piece)
        return self._field_prefix(field) + piece
