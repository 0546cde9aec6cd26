"""The origin of a part of a fitted request: a message index and a part number, packed into one integer.

An unchanged message has the places `message_locations(index, len(parts))`, a range of constant cost at any length; only moved
parts need a list.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["LOCATIONS_PER_MESSAGE", "PartLocation", "location_pointer", "message_index", "message_locations"]

PartLocation: TypeAlias = int
_BITS = 24
LOCATIONS_PER_MESSAGE = 1 << _BITS
"""The distance between the first parts of two adjacent messages."""
_PART_MASK = LOCATIONS_PER_MESSAGE - 1


def message_locations(index: int, parts: int) -> range:
    return range(index << _BITS, (index << _BITS) + parts)


def message_index(location: PartLocation) -> int:
    return location >> _BITS


def location_pointer(location: PartLocation) -> str:
    return f"/messages/{location >> _BITS}/parts/{location & _PART_MASK}"
