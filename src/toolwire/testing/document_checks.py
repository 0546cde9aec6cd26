"""Checks for documents: requests, responses, declarations, errors."""

from __future__ import annotations

from random import Random

from ..ir.errors import ToolwireError
from ..ir.pointer import JSON
from ..wire.protocol import Wire
from .compare import differences, plain, strip_extra
from .mutate import mutations
from .vectors import Vector

__all__ = ["DOCUMENT_CHECKS"]


def _decode(wire: Wire, vector: Vector) -> object:
    """Decode the body of a vector by its kind."""
    if vector.kind == "request":
        return wire.decode_request(vector.body)
    if vector.kind == "response":
        return wire.decode_response(vector.body)
    if vector.kind == "tools":
        return wire.decode_tools(vector.body)
    return wire.decode_error(vector.status, vector.body)


def _encode(wire: Wire, vector: Vector, value: object) -> JSON:
    """Encode a decoded value by the kind of its vector."""
    if vector.kind == "request":
        return wire.encode_request(value).body  # type: ignore[arg-type]
    if vector.kind == "response":
        return wire.encode_response(value).body  # type: ignore[arg-type]
    if vector.kind == "tools":
        return wire.encode_tools(value)[0]  # type: ignore[arg-type]
    return wire.encode_error(value).body  # type: ignore[arg-type]


def _check_round_trip(wire: Wire, vector: Vector) -> None:
    written = _encode(wire, vector, _decode(wire, vector))
    differing = differences(written, vector.body)
    assert not differing, f"differs at {differing}\nwritten {written}\nvector  {vector.body}"


def _check_meaning(wire: Wire, vector: Vector) -> None:
    if vector.meaning is None:
        return
    found = strip_extra(plain(_decode(wire, vector)))
    differing = differences(found, vector.meaning)
    assert not differing, f"differs at {differing}\nfound   {found}\nmeaning {vector.meaning}"


def _check_detection(wire: Wire, vector: Vector) -> None:
    judge = wire.detection.get(vector.kind)
    points = 0 if judge is None else judge(vector.body)
    assert points, f"{wire.name} does not recognise its own {vector.kind}"


def _check_mutations(wire: Wire, vector: Vector) -> None:
    """Mutate the document: decoding and encoding may raise only ToolwireError."""
    for mutated in mutations(vector.body, Random(vector.name), 60):
        try:
            value = _decode(wire, Vector(vector.name, vector.source, vector.kind, mutated, status=vector.status))
            _encode(wire, vector, value)
        except ToolwireError:
            continue


DOCUMENT_CHECKS = (
    ("round trip", _check_round_trip),
    ("has the stated meaning", _check_meaning),
    ("is recognised", _check_detection),
    ("survives mutation", _check_mutations),
)
