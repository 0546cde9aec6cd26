"""Find the items of a conversation in the bytes of a request, without decoding them."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec
from msgspec import Raw

__all__ = ["find_items", "is_top_level", "item_ends"]

_SEPARATOR = re.compile(rb"[\s,]*+")


@lru_cache(16)
def _field_pattern(field: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%b"\s*+:\s*+\[\s*+' % re.escape(field.encode()))


@lru_cache(16)
def _span_decoder(field: str) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder that reads only the list under `field`, and its items only as spans."""
    document = msgspec.defstruct("_Document", [(field, list[Raw])])
    return msgspec.json.Decoder(document)


def find_items(data: bytes, field: str) -> int:
    """Return the offset of the first item in the first list under `field`; -1 if there is none.

    The field need not be one of the document itself: see `is_top_level`.
    """
    found = _field_pattern(field).search(data)
    return -1 if found is None else found.end()


def is_top_level(data: bytes, start: int) -> bool:
    """Return whether the list that begins before `start` is a field of the document itself.

    If the document can be completed there by the end of one list and one object, no other container is open.
    """
    try:
        msgspec.json.decode(data[:start] + b"]}", type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def item_ends(data: bytes, field: str, start: int, count: int) -> tuple[int, int]:
    """Return the offsets of the ends of item `count` and of the last item of the list under `field`.

    `data` is a valid document with at least `count` items in that list, the first of which is at `start`.
    """
    spans: list[Raw] = getattr(_span_decoder(field).decode(data), field)
    end = found = start
    for number, span in enumerate(spans, 1):
        separator = _SEPARATOR.match(data, end)
        end = (end if separator is None else separator.end()) + len(memoryview(span))
        if number == count:
            found = end
    return found, end
