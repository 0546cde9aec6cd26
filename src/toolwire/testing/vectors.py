"""Truth as data: what a wire says, and what it means.

A vector file is a JSON list of objects:

    name      what it is about
    source    where the truth comes from: "spec: …", "sdk: …", "recorded: …", "issue: …", "facts: …"; never absent
    kind      request | response | stream | tools | error
    body      the document (for a stream: `events`, a list of strings that are put together)
    meaning   the canonical value as JSON, without `extra`; optional where `body` says enough by coming back
    whole     for a stream: the response body that says the same in one piece; optional
    status    for an error: the HTTP status it came with
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
    """The vectors of a file; ConfigError for one without a source."""
    import msgspec

    raw = json.loads(Path(path).read_text(encoding="utf-8"))
    vectors = msgspec.convert(raw, list[Vector])
    for vector in vectors:
        if not vector.source.strip():
            raise ConfigError(f"the vector {vector.name!r} does not say where it comes from", pointer=str(path))
    return vectors
