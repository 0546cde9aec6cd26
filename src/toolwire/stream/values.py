"""Count the values of a large JSON document before it is parsed: their number decides about time and memory.

Separate because it is a pure function of bytes, without the limits of the gateway that uses it.
"""

from __future__ import annotations

from .locate import mask_escapes

__all__ = ["count_values", "text_copies"]

_ASTRAL_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")  # first bytes of characters above U+FFFF in UTF-8
_WINDOW = 256 * 1024  # bytes; a thread that counts lets others run between two windows


def count_values(data: bytes) -> int:
    r"""Count the items, members and containers of a document; marks in strings do not count.

    >>> count_values(b'{"a": [1, 2, "3, [4]"], "b": "\\",{"}')
    5
    """
    count, start, in_string = 0, 0, 0
    while start < len(data):
        window = data[start : start + _WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2 and start + _WINDOW < len(data):
            window = window[:-1]  # the next window begins with the whole escape sequence
        pieces = mask_escapes(window).split(b'"')
        outside = b"".join(pieces[in_string::2])
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        in_string ^= (len(pieces) - 1) % 2
        start += len(window)
    return count


def text_copies(data: bytes) -> int:
    """Return the bytes that strings made of `data` may take for each of its bytes.

    A Python string has as many bytes for each character as its widest character needs, so one emoji makes a string of
    ASCII four times as large. A string that is not ASCII also keeps its UTF-8 once it was encoded.
    """
    has_escapes = data.find(b"\\u") >= 0  # `in` is slower
    if has_escapes and (b"\\ud" in data or b"\\uD" in data):  # an escaped surrogate
        return 5
    if data.isascii():
        return 3 if has_escapes else 1
    return 5 if any(lead in data for lead in _ASTRAL_LEADS) else 3
