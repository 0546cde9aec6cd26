"""Mutate documents, for robustness tests."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from ..ir.pointer import JSON

__all__ = ["mutations"]

_INTRUDERS: list[JSON] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "null",
    [],
    {},
    [None],
    [[]],
    {"type": "?"},
    {"": {}},
    "\x00",
    10**30,
]


def mutations(document: JSON, random: Random, count: int) -> Iterator[JSON]:
    """Yield `count` copies of `document`, each with one value replaced, removed, renamed or duplicated."""
    for _ in range(count):
        yield _mutate(document, random)


def _mutate(value: JSON, random: Random) -> JSON:
    """Change one value at a random depth of a document; the original is not modified."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        changed: dict[str, Any] = dict(value)
        match random.randrange(6):
            case 0:
                del changed[key]
            case 1:
                changed[key] = random.choice(_INTRUDERS)
            case 2:
                changed[random.choice(["type", "id", "x", key.upper()])] = changed.pop(key)
            case _:
                changed[key] = _mutate(value[key], random)
        return changed
    if isinstance(value, list) and value and random.random() < 0.85:
        index = random.randrange(len(value))
        items = list(value)
        match random.randrange(6):
            case 0:
                del items[index]
            case 1:
                items[index] = random.choice(_INTRUDERS)
            case 2:
                items.insert(index, items[index])
            case _:
                items[index] = _mutate(items[index], random)
        return items
    return random.choice(_INTRUDERS)
