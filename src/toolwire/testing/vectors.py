"""Test vectors: documents of wires and texts of models, with their meaning.

Test vectors for wires: documents, and their meaning.

A vector file is a JSON list of objects:

    name      the subject of the vector
    source    the origin of the data: "spec: …", "sdk: …", "recorded: …", "issue: …", "facts: …"; never absent
    kind      request | response | stream | tools | error
    body      the document (for a stream: `events`, a list of strings to concatenate; in a binary event stream, each
              event is an object with its payload under its type)
    meaning   the canonical value as JSON, without `extra`; optional if the round trip of `body` is enough
    whole     for a stream: the equivalent response body in one piece; optional
    status    for an error: its HTTP status

Test vectors for text formats: the text of a model, and the calls in it.

A vector file is a JSON object: `tools`, which were offered to the model (name → input schema), and `vectors`, a list of

    name         the subject of the vector
    source       the origin of the data: a table, a public parser's test, "written here: grammar"; never absent
    text         the text of the model
    calls        the calls in it: name, arguments (for a complete call), state, id where the text gives one
    content      the remaining text, byte for byte
    reasoning    the reasoning text
    diagnostics  the codes of the diagnostics, each once
    finished     false if the text is truncated
    thinking     true if the prompt opened the reasoning, so that the text begins inside it
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from ..ir.errors import ConfigError
from ..ir.parts import CallState, Reasoning
from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from ..stream.event_stream import encode_event, encode_exception
from ..text.engine.format import Parsed
from ..wire.protocol import Kind


class Vector(Value, frozen=True):
    """One test vector; the fields are described in the module docstring."""

    name: str
    source: str
    kind: Kind
    body: JSON = None
    events: tuple[str | Object, ...] = ()
    meaning: JSON = None
    whole: JSON = None
    status: int = 200

    @property
    def data(self) -> bytes:
        """The bytes of a stream."""
        return b"".join([event.encode() if isinstance(event, str) else _binary_event(event) for event in self.events])

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def _binary_event(event: Object) -> bytes:
    """Return the message of an event `{type: payload}`; a type that ends in `Exception` is one."""
    [(kind, payload)] = event.items()
    encode = encode_exception if kind.endswith("Exception") else encode_event
    return encode(kind, dumps(payload).encode())


def load_vectors(path: str | Path) -> list[Vector]:
    """Load the vectors of a file. Raises `ConfigError` for a vector without a source."""
    import msgspec

    raw = json.loads(Path(path).read_text(encoding="utf-8"))
    vectors = msgspec.convert(raw, list[Vector])
    for vector in vectors:
        if not vector.source.strip():
            raise ConfigError(f"the vector {vector.name!r} has no source", pointer=str(path))
    return vectors


class ExpectedCall(Value, frozen=True):
    """A call that the parser should find; `arguments` only for a complete call."""

    name: str
    arguments: JSON = None
    state: CallState = "complete"
    id: str = ""


class TextVector(Value, frozen=True):
    """One test vector; the fields are described in the module docstring."""

    name: str
    source: str
    text: str
    calls: tuple[ExpectedCall, ...] = ()
    content: str = ""
    reasoning: str = ""
    diagnostics: tuple[str, ...] = ()
    finished: bool = True
    thinking: bool = False
    tools: tuple[Tool, ...] = ()

    def __str__(self) -> str:
        return self.name

    def differences(self, parsed: Parsed) -> list[str]:
        """Describe the differences between the parsed text and this vector."""
        reasoning = "".join(part.text for part in parsed.parts if isinstance(part, Reasoning))
        found: dict[str, tuple[object, object]] = {
            "content": (parsed.text, self.content),
            "reasoning": (reasoning, self.reasoning),
            "diagnostics": (sorted({one.code for one in parsed.diagnostics}), sorted(self.diagnostics)),
            "calls": (
                [(call.name, call.state, call.arguments) for call in parsed.calls],
                [(call.name, call.state, call.arguments) for call in self.calls],
            ),
            "ids": (
                [call.id for call, said in zip(parsed.calls, self.calls, strict=False) if said.id],
                [said.id for said in self.calls if said.id],
            ),
        }
        return [
            f"{what}: expected {said!r}, got {got!r}" for what, (got, said) in found.items() if repr(got) != repr(said)
        ]


class _VectorFile(Value, frozen=True):
    """The content of a vector file: the input schema of each tool by name, and the vectors."""

    tools: dict[str, Object]
    vectors: tuple[TextVector, ...]


def load_text_vectors(path: str | Path) -> list[TextVector]:
    """Load the vectors of a file; raise ConfigError for one without a source."""
    file = msgspec.json.decode(Path(path).read_bytes(), type=_VectorFile)
    tools = tuple(Tool(name, None, schema) for name, schema in file.tools.items())
    for vector in file.vectors:
        if not vector.source.strip():
            raise ConfigError(f"the vector {vector.name!r} has no source", pointer=str(path))
    return [msgspec.structs.replace(vector, tools=vector.tools or tools) for vector in file.vectors]
