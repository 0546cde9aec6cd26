"""Find smaller arguments that show the same fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from ...ir.pointer import JSON, Object

__all__ = ["shrink_arguments"]


def shrink_arguments(arguments: Object, fails: Callable[[Object], bool], *, attempts: int = 60) -> Object:
    """Return the smallest arguments found for which `fails` is still true, after at most `attempts` calls of it.

    >>> shrink_arguments({"text": "aab", "count": 70}, lambda found: "b" in found.get("text", ""))
    {'text': 'b'}
    """
    best = arguments
    remaining = attempts
    progress = True
    while progress and remaining > 0:
        progress = False
        for candidate in _smaller_objects(best):
            if remaining <= 0:
                break
            remaining -= 1
            if _size(candidate) < _size(best) and fails(candidate):
                best, progress = candidate, True
                break
    return best


def _size(value: JSON) -> tuple[int, str]:
    text = json.dumps(value, ensure_ascii=False)
    return len(text), text


def _smaller_objects(value: Object) -> Iterator[Object]:
    """Yield the object without one key, then with one smaller value."""
    for name in value:
        yield {key: inner for key, inner in value.items() if key != name}
    for name, inner in value.items():
        for smaller in _smaller(inner):
            yield {**value, name: smaller}


def _smaller(value: JSON) -> Iterator[JSON]:
    if type(value) is str:
        yield from _smaller_texts(value)
    elif type(value) is int or type(value) is float:
        yield from (0, 1, -1)
        yield int(value / 2) if abs(value) < 1e15 else int(value) // 2**16
    elif type(value) is list:
        yield []
        half = len(value) // 2
        if half:
            yield value[:half]
            yield value[half:]
        for index, item in enumerate(value[:5]):
            yield from ([*value[:index], smaller, *value[index + 1 :]] for smaller in _smaller(item))
    elif type(value) is dict:
        yield from _smaller_objects(value)


def _smaller_texts(text: str) -> Iterator[str]:
    if not text:
        return
    yield ""
    yield "a"
    half = len(text) // 2
    if half:
        yield text[:half]
        yield text[half:]
    if len(text) <= 12:
        yield from (text[:index] + text[index + 1 :] for index in range(len(text)))
