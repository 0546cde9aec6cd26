"""The conformance suite for wires: the checks that every wire must pass.

decode, encode and decode again give the same value                  (same wire: the same document)
the meaning is the one that the vector states
any chunking of a stream gives the same events; folded, they are the whole response
a stream that stops before its terminal mark raises TruncatedStream; after it, only usage may be missing
broken input raises only toolwire's errors
to every other wire and back: equal, except for the reported losses
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ..wire import get, names
from ..wire.protocol import Wire
from .document_checks import DOCUMENT_CHECKS
from .pair_checks import PAIR_CHECKS
from .stream_checks import STREAM_CHECKS
from .vectors import Vector

__all__ = ["Check", "wire_checks"]

_REQUIRED_KINDS = {"request", "response", "stream", "error"}


class Check:
    """One check. Calling it raises AssertionError with the reason if the check fails."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self._run = run

    def __call__(self) -> None:
        self._run()

    def __str__(self) -> str:
        return self.name


def wire_checks(wire: Wire | str, vectors: Iterable[Vector], others: Iterable[str] | None = None) -> list[Check]:
    """Return all checks of a wire. `others`: the wires for round trips; by default all registered ones."""
    codec = get(wire) if isinstance(wire, str) else wire
    vectors = list(vectors)
    checks = [Check("vectors exist", partial(_has_vectors, codec, vectors))]
    for vector in vectors:
        for about, run in STREAM_CHECKS if vector.kind == "stream" else DOCUMENT_CHECKS:
            checks.append(Check(f"{vector}: {about}", partial(run, codec, vector)))
        for other_wire in names() if others is None else others:
            run_pair = PAIR_CHECKS.get(vector.kind)
            if run_pair is not None and other_wire != codec.name:
                checks.append(
                    Check(f"{vector}: to {other_wire} and back", partial(run_pair, codec, vector, get(other_wire)))
                )
    return checks


def _has_vectors(wire: Wire, vectors: list[Vector]) -> None:
    missing = _REQUIRED_KINDS - {vector.kind for vector in vectors}
    assert not missing, f"{wire.name} has no vectors for {', '.join(sorted(missing))}"
    for vector in vectors:
        assert vector.source.strip(), f"{vector} has no source"
