"""TextPlace elements in JSON text: positions of their pointers, and of values in JSON text inside a string."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ...ir.value import Value
from ...stream.positions import StringOffsets, TextPlace, find_places
from ...stream.strict import parse
from .reading import Group, Member

TextRange: TypeAlias = tuple[int, int]

_MAX_LITERAL = 1_000_000  # characters of JSON text inside a string whose values are located


class Placed(Value, frozen=True):
    """An element in a document: `text[start:end]` of each range. `is_changed`: it has another value than in the source."""

    id: str
    pointer: str | None
    ranges: tuple[TextRange, ...]
    is_changed: bool = False


def place_elements(text: str, items: Sequence[tuple[str, Group | Member, bool]]) -> tuple[Placed, ...]:
    """Return the places of elements in JSON text. Elements in a string with JSON text are located inside it."""
    if not items:  # the text may be of another language than JSON
        return ()
    found = find_places(text, [element.pointer for _, element, _ in items])
    inner = _find_inner(text, found, [element for _, element, _ in items if isinstance(element, Member)])
    placed: list[Placed] = []
    for name, element, is_changed in items:
        place = found.get(element.pointer)
        if place is None:
            continue
        at: TextRange | None = (place.start, place.end)
        if isinstance(element, Member) and element.inner is not None:
            at = inner.get((element.pointer, element.inner))
        elif element.kind in ("argument", "parameter", "arguments", "parameters"):
            at = (place.member, place.end)
        if at is not None:
            placed.append(Placed(name, element.pointer, (at,), is_changed))
    return tuple(placed)


def _find_inner(
    text: str, found: Mapping[str, TextPlace], members: Iterable[Member]
) -> dict[tuple[str, str], TextRange]:
    """Return the positions of values in JSON text inside strings, by the pointer of the string and inside it."""
    by_string: dict[str, list[str]] = {}
    for member in members:
        if member.inner is not None and member.pointer in found:
            by_string.setdefault(member.pointer, []).append(member.inner)
    ranges: dict[tuple[str, str], TextRange] = {}
    for pointer, inner in by_string.items():
        place = found[pointer]
        literal = text[place.start : place.end]
        if len(literal) > _MAX_LITERAL:
            continue
        offsets = StringOffsets(literal, place.start)
        for at, spot in find_places(parse(literal), inner).items():
            ranges[pointer, at] = (offsets.at(spot.member), offsets.at(spot.end))
    return ranges
