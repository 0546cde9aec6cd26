"""The origin of a part of a fitted request: a message index and a part number, packed into one integer.

An unchanged message has the places `of_message(index, len(parts))`, a range of constant cost at any length; only moved
parts need a list.
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
