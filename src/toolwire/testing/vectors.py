"""Test vectors for wires: documents, and their meaning.

A vector file is a JSON list of objects:

    name      the subject of the vector
    source    the origin of the data: "spec: …", "sdk: …", "recorded: …", "issue: …", "facts: …"; never absent
    kind      request | response | stream | tools | error
    body      the document (for a stream: `events`, a list of strings to concatenate)
    meaning   the canonical value as JSON, without `extra`; optional if the round trip of `body` is enough
    whole     for a stream: the equivalent response body in one piece; optional
    status    for an error: its HTTP status
"""

from __future__ import annotations

import json
from pathlib import Path

from ..ir.errors import ConfigError
from ..ir.pointer import JSON
from ..ir.value import Value
from ..wire.protocol import Kind

__all__ = ["Vector", "load_vectors"]


class Vector(Value, frozen=True):
    """One test vector; the fields are described in the module docstring."""

    name: str
    source: str
    kind: Kind
    body: JSON = None
    events: tuple[str, ...] = ()
    meaning: JSON = None
    whole: JSON = None
    status: int = 200

    @property
    def data(self) -> bytes:
        """The bytes of a stream."""
        return "".join(self.events).encode()

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def load_vectors(path: str | Path) -> list[Vector]:
    """Load the vectors of a file; raise ConfigError for one without a source."""
    import msgspec

    raw = json.loads(Path(path).read_text(encoding="utf-8"))
    vectors = msgspec.convert(raw, list[Vector])
    for vector in vectors:
        if not vector.source.strip():
            raise ConfigError(f"the vector {vector.name!r} has no source", pointer=str(path))
    return vectors
