"""Access to parts of a body that may have any type: a check must not raise for a body that another rule reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...ir.pointer import JSON, Object
from ...ir.text import shorten
from ..findings import Hit


class CallRef(NamedTuple):
    """A call or a result: its pointer, and the id of the call."""

    path: str
    id: str


class CallTurn(NamedTuple):
    """A turn of a conversation: either the calls of an assistant, or results, or neither."""

    calls: Sequence[CallRef] = ()
    results: Sequence[CallRef] = ()


def items_of(value: JSON) -> list[JSON]:
    return value if type(value) is list else []


def objects_of(value: JSON, at: str) -> Iterator[tuple[str, Object]]:
    """Yield the objects of a list, each with its pointer."""
    for index, item in enumerate(items_of(value)):
        if type(item) is dict:
            yield f"{at}/{index}", item


def names_in(objects: Iterable[tuple[str, Object]]) -> set[str]:
    """Return the names of objects that have a text for a name."""
    return {one["name"] for _, one in objects if type(one.get("name")) is str}


def texts_in(value: JSON) -> list[str]:
    """Return the strings of a list."""
    return [one for one in items_of(value) if type(one) is str]


def child_object(value: JSON, *keys: str) -> Object:
    """Return the object under the keys, or an empty one."""
    for key in keys:
        value = value.get(key) if type(value) is dict else None
    return value if type(value) is dict else {}


def is_blank(value: JSON) -> bool:
    return type(value) is str and not value.strip()


def short_repr(value: JSON, length: int = 40) -> str:
    return shorten(repr(value), length)


def out_of_range(body: Object, limits: Iterable[tuple[str, float, float]], at: str = "") -> Iterator[Hit]:
    """Report the numbers outside of their limits: (field, least, most)."""
    for name, least, most in limits:
        value: JSON = body.get(name, least)
        if type(value) in (int, float) and not least <= value <= most:
            bound = f"at least {least:g}" if value < least else f"at most {most:g}"
            yield Hit(f"{at}/{name}", f"{name} must be {bound}, got {value:g}")


def hits_below(path: str, hits: Iterable[Hit]) -> Iterator[Hit]:
    """Return the hits of a schema with its own pointer before theirs."""
    return (Hit(path + hit.path, hit.message) for hit in hits)


def repeated(named: Iterable[tuple[str, str]], message: str) -> Iterator[Hit]:
    """Report each (path, name) whose name occurred before. `message` is a format string for the name."""
    seen: set[str] = set()
    for path, name in named:
        if name in seen:
            yield Hit(path, message.format(name))
        seen.add(name)


def unpaired(steps: Iterable[CallTurn]) -> Iterator[Hit]:
    """Report calls without a result directly after them, and results without such a call."""
    waiting: dict[str, str] = {}
    answered: set[str] = set()
    for step in steps:
        if not step.results:
            yield from _missing(waiting)
            waiting, answered = {call.id: call.path for call in step.calls}, set()
        for result in step.results:
            if result.id in waiting:
                del waiting[result.id]
                answered.add(result.id)
            elif result.id in answered:
                yield Hit(result.path, f"the call {short_repr(result.id)} has a result already")
            else:
                yield Hit(result.path, f"no call with the id {short_repr(result.id)} is directly before this result")
    yield from _missing(waiting)


def _missing(waiting: dict[str, str]) -> Iterator[Hit]:
    for call_id, path in waiting.items():
        yield Hit(path, f"the call {short_repr(call_id)} has no result directly after it")
