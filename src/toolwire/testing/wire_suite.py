"""The conformance suite: everything that must hold for every wire, whoever wrote it.

decode, encode and decode again give the same                      (same wire: the document itself comes back)
the meaning is the one that the vector states
any cutting of a stream gives the same events; folded, they are the whole response
a stream that stops before its terminal mark is TruncatedStream; behind it, only usage may be missing
what is broken raises toolwire's errors and nothing else
to every other wire and back: equal, but for what the losses say
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

_NEEDED = {"request", "response", "stream", "error"}


class Check:
    """One thing that must hold. Call it; AssertionError says what does not."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self._run = run

    def __call__(self) -> None:
        self._run()

    def __str__(self) -> str:
        return self.name


def wire_checks(wire: Wire | str, vectors: Iterable[Vector], others: Iterable[str] | None = None) -> list[Check]:
    """All checks of a wire. `others`: the wires to carry things to, and back; by default all that are there."""
    codec = get(wire) if isinstance(wire, str) else wire
    vectors = list(vectors)
    checks = [Check("there are vectors", partial(_has_vectors, codec, vectors))]
    for vector in vectors:
        for about, run in STREAM_CHECKS if vector.kind == "stream" else DOCUMENT_CHECKS:
            checks.append(Check(f"{vector}: {about}", partial(run, codec, vector)))
        for other in names() if others is None else others:
            run_pair = PAIR_CHECKS.get(vector.kind)
            if run_pair is not None and other != codec.name:
                checks.append(Check(f"{vector}: to {other} and back", partial(run_pair, codec, vector, get(other))))
    return checks


def _has_vectors(wire: Wire, vectors: list[Vector]) -> None:
    missing = _NEEDED - {vector.kind for vector in vectors}
    assert not missing, f"{wire.name} has no vectors for {', '.join(sorted(missing))}"
    for vector in vectors:
        assert vector.source.strip(), f"{vector} does not say where it comes from"
