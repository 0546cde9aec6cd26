"""Where a part of a fitted request came from: a message and a part number, packed into one integer.

A message that goes as it is has the places `of_message(index, len(parts))`, a range, which costs nothing however long it
is; only what is moved needs a list.
"""

from __future__ import annotations

from typing import TypeAlias

from ..ir.pointer import join

__all__ = ["Place", "message_of", "of_message", "pointer_to"]

Place: TypeAlias = int
_BITS = 24


def of_message(index: int, parts: int) -> range:
    return range(index << _BITS, (index << _BITS) + parts)


def message_of(place: Place) -> int:
    return place >> _BITS


def pointer_to(place: Place) -> str:
    return join("messages", place >> _BITS, "parts", place & ((1 << _BITS) - 1))
