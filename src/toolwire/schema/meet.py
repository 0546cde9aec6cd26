"""Both at once: what `allOf` means, and what stands beside a combinator or a reference."""

from __future__ import annotations

from msgspec.structs import replace

from .fits import Target, fits
from .nodes import Any, Array, Enum, Never, Node, Number, Record, Ref, String, Tuple, Union

__all__ = ["meet"]


_MOST_HOPS = 2
_MOST_BRANCHES = 100


def meet(one: Node, other: Node, target: Target, hops: int = 0) -> Node:
    """The values that both accept. `one` has the word where notes differ."""
    if isinstance(other, Any):
        return _annotated(one, other)
    if isinstance(one, Any):
        return _annotated(other, one, first=True)
    if isinstance(one, Never) or isinstance(other, Never):
        return Never(at=one.at)
    if isinstance(one, Ref) or isinstance(other, Ref):
        return _meet_ref(one, other, target, hops)
    if isinstance(one, Union) and isinstance(other, Union):
        if len(one.branches) * len(other.branches) > _MOST_BRANCHES:
            return replace(one, residue={**one.residue, "and": "one of several other schemas"})
    if isinstance(one, Union):
        met = _over_branches(one, [meet(branch, other, target, hops) for branch in one.branches])
        return _annotated(met, one, first=True)
    if isinstance(other, Union):
        return _annotated(_over_branches(other, [meet(one, branch, target, hops) for branch in other.branches]), other)
    if isinstance(one, Enum) or isinstance(other, Enum):
        return _meet_enum(one, other, target)
    return _annotated(_meet_same(one, other, target, hops), other)


def _annotated(node: Node, by: Node, *, first: bool = False) -> Node:
    if not by.notes and not by.residue:
        return node
    notes = {**node.notes, **by.notes} if first else {**by.notes, **node.notes}
    return replace(node, notes=notes, residue={**by.residue, **node.residue})


def _meet_ref(one: Node, other: Node, target: Target, hops: int = 0) -> Node:
    if isinstance(one, Ref) and isinstance(other, Ref) and one.target == other.target:
        return _annotated(one, other)
    ref, rest = (one, other) if isinstance(one, Ref) else (other, one)
    assert isinstance(ref, Ref)
    found = target(ref.target) if hops < _MOST_HOPS else None
    if found is None:  # it is being read, or leads back here: a definition that contains itself
        return replace(rest, residue={**rest.residue, "allOf": [{"$ref": f"#{ref.target}"}]})
    return meet(found, rest, target, hops + 1) if ref is one else meet(rest, found, target, hops + 1)


def _over_branches(union: Union, met: list[Node]) -> Node:
    kept = [branch for branch in met if not isinstance(branch, Never)]
    if not kept:
        return Never(at=union.at)
    return kept[0] if len(kept) == 1 else replace(union, branches=tuple(kept))


def _meet_enum(one: Node, other: Node, target: Target) -> Node:
    enum, rest = (one, other) if isinstance(one, Enum) else (other, one)
    assert isinstance(enum, Enum)
    values = tuple(value for value in enum.values if fits(rest, value, target))
    return _annotated(replace(enum, values=values), rest) if values else Never(at=one.at)


def _meet_same(one: Node, other: Node, target: Target, hops: int = 0) -> Node:
    if isinstance(one, String) and isinstance(other, String):
        return _meet_strings(one, other)
    if isinstance(one, Number) and isinstance(other, Number):
        return _meet_numbers(one, other)
    if isinstance(one, Record) and isinstance(other, Record):
        return _meet_objects(one, other, target, hops)
    if isinstance(one, (Array, Tuple)) and isinstance(other, (Array, Tuple)):
        return _meet_arrays(one, other, target, hops)
    if type(one) is type(other):
        return one
    return Never(at=one.at)


def _meet_strings(one: String, other: String) -> Node:
    residue = dict(one.residue)
    pattern, form = one.pattern or other.pattern, one.format or other.format
    if one.pattern and other.pattern and one.pattern != other.pattern:
        residue["allOf"] = [{"pattern": other.pattern}]
    if one.format and other.format and one.format != other.format:
        residue["allOf"] = [*residue.get("allOf", []), {"format": other.format}]
    low, high = max(one.min_length, other.min_length), _least(one.max_length, other.max_length)
    if high is not None and low > high:
        return Never(at=one.at)
    return replace(one, min_length=low, max_length=high, pattern=pattern, format=form, residue=residue)


def _meet_numbers(one: Number, other: Number) -> Node:
    residue = dict(one.residue)
    if one.multiple_of and other.multiple_of and one.multiple_of != other.multiple_of:
        residue["allOf"] = [{"multipleOf": other.multiple_of}]
    return replace(
        one,
        integer=one.integer or other.integer,
        minimum=_most(one.minimum, other.minimum),
        maximum=_least(one.maximum, other.maximum),
        above=_most(one.above, other.above),
        below=_least(one.below, other.below),
        multiple_of=one.multiple_of or other.multiple_of,
        residue=residue,
    )


def _least(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _meet_objects(one: Record, other: Record, target: Target, hops: int = 0) -> Node:
    properties: dict[str, Node] = {}
    required = one.required | other.required
    for key in (*one.properties, *(key for key in other.properties if key not in one.properties)):
        met = _meet_property(key, one, other, target, hops)
        if isinstance(met, Never) and key in required:
            return Never(at=one.at)
        if met is not None and not isinstance(met, Never):
            properties[key] = met
        elif key in required:
            return Never(at=one.at)
    rest = None
    if one.rest is not None and other.rest is not None:
        rest = meet(one.rest, other.rest, target, hops)
    elif not (one.closed or other.closed):
        rest = one.rest if not other.properties else other.rest if not one.properties else None
    return replace(
        one,
        properties=properties,
        required=required,
        rest=None if isinstance(rest, Never) else rest,
        closed=one.closed or other.closed,
    )


def _meet_property(key: str, one: Record, other: Record, target: Target, hops: int = 0) -> Node | None:
    """None: forbidden."""
    mine, theirs = one.properties.get(key, one.rest), other.properties.get(key, other.rest)
    if mine is None:
        return None if one.closed else theirs
    if theirs is None:
        return None if other.closed else mine
    return meet(mine, theirs, target, hops)


def _meet_arrays(one: Array | Tuple, other: Array | Tuple, target: Target, hops: int = 0) -> Node:
    low, high = max(one.min_items, other.min_items), _least(one.max_items, other.max_items)
    if high is not None and low > high:
        return Never(at=one.at)
    if isinstance(one, Array) and isinstance(other, Array):
        items = one.items if other.items is None else other.items if one.items is None else None
        if one.items is not None and other.items is not None:
            items = meet(one.items, other.items, target, hops)
            if isinstance(items, Never):
                return Never(at=one.at) if low else Array(None, 0, 0, at=one.at)
        return replace(one, items=items, min_items=low, max_items=high)
    first, second = (one, other) if isinstance(one, Tuple) else (other, one)
    assert isinstance(first, Tuple)
    width = max(len(first.items), len(second.items) if isinstance(second, Tuple) else 0)
    nodes = tuple(_both(_item(first, index), _item(second, index), target, hops) for index in range(width))
    rest = _both(first.rest, second.rest if isinstance(second, Tuple) else second.items or Any(), target, hops)
    impossible = next((index for index, node in enumerate(nodes) if isinstance(node, Never)), None)
    if impossible is not None:  # nothing can stand there, so the list ends before it
        if low > impossible:
            return Never(at=one.at)
        return replace(first, items=nodes[:impossible], rest=None, min_items=low, max_items=impossible)
    closed = first.rest is None or (isinstance(second, Tuple) and second.rest is None)
    return replace(first, items=nodes, rest=None if closed else rest, min_items=low, max_items=high)


def _item(node: Array | Tuple, index: int) -> Node:
    if isinstance(node, Array):
        return node.items or Any()
    return node.items[index] if index < len(node.items) else node.rest or Never()


def _both(one: Node | None, other: Node | None, target: Target, hops: int = 0) -> Node:
    return meet(one or Any(), other or Any(), target, hops)
