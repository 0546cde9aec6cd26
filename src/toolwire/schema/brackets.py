"""Possible positions of a missing bracket.

    {"where": {"city": "Paris", "days": 3}

lacks its last bracket, or the one after "Paris". The text alone does not decide between them; the schema may.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.pointer import JSON
from ..stream.repair import Repaired

__all__ = ["bracket_placements"]

_MAX_PLACEMENTS = 64


def bracket_placements(repaired: Repaired) -> Iterator[JSON]:
    """Yield the other values of the text, for a missing bracket that belongs further in."""
    if not repaired.closed:
        return
    path = _last_containers(repaired.value)
    for depth in range(repaired.closed, len(path)):
        outer, inner = path[depth - 1], path[depth]
        if type(outer) is not type(inner):
            continue  # members cannot become items, nor items members
        for kept_count in range(max(len(inner) - _MAX_PLACEMENTS, 1), len(inner)):
            yield _replace_last(path[:depth], _move_members(outer, inner, kept_count))


def _last_containers(value: JSON) -> list[JSON]:
    """Return the value, its last member, the last member of that, and so on."""
    path: list[JSON] = []
    while type(value) in (dict, list):
        path.append(value)
        if not value:
            break
        value = list(value.values())[-1] if type(value) is dict else value[-1]
    return path


def _move_members(outer: JSON, inner: JSON, kept_count: int) -> JSON:
    """Return `outer` with all but the first `kept_count` members of its last member moved out of it."""
    if type(outer) is list:
        return [*outer[:-1], inner[:kept_count], *inner[kept_count:]]
    members = list(inner.items())
    return {**dict(members[kept_count:]), **outer, list(outer)[-1]: dict(members[:kept_count])}


def _replace_last(path: list[JSON], value: JSON) -> JSON:
    """Return the root with `value` in place of the last container of `path`."""
    for outer in reversed(path[:-1]):
        value = [*outer[:-1], value] if type(outer) is list else {**outer, list(outer)[-1]: value}
    return value
