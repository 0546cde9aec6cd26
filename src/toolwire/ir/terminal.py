"""Text for a terminal, a log or a report: foreign text without active control characters, and counts with nouns."""

from __future__ import annotations

import re

# Escaped in all three forms, because a terminal acts on them or cannot show them:
#
# - C0 controls (ESC, BEL, backspace …), DEL and the C1 controls U+0080–U+009F. Most terminals read U+009B as ESC [.
# - A carriage return that is not part of a CRLF line break, which would let the rest of a line overwrite its beginning.
# - Lone surrogates, which no encoding can write.
# - Bidirectional overrides (U+202D, U+202E), which show letters in an order that contradicts their own direction.
#
# Everything else stays, except in `reveal_line`: tabs, line breaks, no-break spaces, joiners (U+200C, U+200D), tag
# and variation characters of emoji, and the direction marks (U+200E, U+200F, U+061C) that right-to-left text needs.
#
# Bidirectional embeddings and isolates (U+202A–U+202C, U+2066–U+2069) depend on the form. Localisation libraries put
# them around inserted names, and they act until the end of their line. So they stay in text that has its lines to
# itself. They are escaped in a line that mixes foreign text with ours, which they could reorder.


_LATE_CONTROLS = r"\x7f-\x9f\ud800-\udfff"
_CONTROLS = rf"\x00-\x08\x0b\x0c\x0e-\x1f{_LATE_CONTROLS}"
_OVERRIDES = r"\u202d\u202e"
_EMBEDDINGS = r"\u202a-\u202e\u2066-\u2069"
_LINE_BREAKS = r"\t\n\r\u2028\u2029"
_IN_TEXT = re.compile(rf"[{_CONTROLS}{_OVERRIDES}]|\r(?!\n)")
_IN_LINE = re.compile(rf"[{_CONTROLS}{_EMBEDDINGS}{_LINE_BREAKS}]")
_IN_JSON = re.compile(rf"[{_LATE_CONTROLS}{_EMBEDDINGS}]")  # JSON has no C0 controls in strings
_FILLERS = r"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_VARIATIONS = r"\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_INVISIBLE = re.compile(f"[{_FILLERS}{_VARIATIONS}]")  # printable for Python, but without a visible form
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def neutralise_text(text: str) -> str:
    r"""Escape control characters in text of any number of lines; keep line breaks and tabs.

    >>> neutralise_text("one\n\ttwo \x1b[31mred")
    'one\n\ttwo \\x1b[31mred'
    """
    return text if text.isprintable() else _IN_TEXT.sub(_escape_match, text)


def neutralise_line(text: str) -> str:
    r"""Escape control characters and line breaks in text within one line: a table cell, a log record, a prompt.

    >>> neutralise_line("one\ntwo \x1b[31mred")
    'one\\ntwo \\x1b[31mred'
    """
    return text if text.isprintable() else _IN_LINE.sub(_escape_match, text)


def reveal_line(text: str) -> str:
    r"""Escape all characters that cannot be seen, in text about which a person decides: the arguments of a call.

    >>> reveal_line("pay\u200b\U000e0041 5")
    'pay\\u200b\\U000e0041 5'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() and _INVISIBLE.match(char) is None else _escape_char(char) for char in text
    )


def neutralise_json(document: str) -> str:
    r"""Escape control characters that JSON text may contain unescaped, as JSON escapes; the JSON value stays the same.

    >>> neutralise_json('{"text": "\x9b31mred"}')
    '{"text": "\\u009b31mred"}'
    """
    return document if document.isprintable() else _IN_JSON.sub(_json_escape_match, document)


class TextNeutraliser:
    r"""`neutralise_text` for text that arrives in pieces: any chunking gives the same result.

    >>> pieces = TextNeutraliser()
    >>> pieces.feed("one\r") + pieces.feed("\ntwo\r") + pieces.close()
    'one\r\ntwo\\r'
    """

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, text: str) -> str:
        """Neutralise the next piece, without a final carriage return, which depends on the next character."""
        text = self._pending + text
        self._pending = "\r" if text.endswith("\r") else ""
        return neutralise_text(text[: len(text) - len(self._pending)])

    def close(self) -> str:
        """Return the rest at the end of the text."""
        pending, self._pending = self._pending, ""
        return neutralise_text(pending)


def _escape_match(found: re.Match[str]) -> str:
    return _escape_char(found[0])


def _escape_char(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if ord(char) > 0xFFFF:
        return f"\\U{ord(char):08x}"
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def _json_escape_match(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun. `plural` is for nouns that do not just add an s.

    >>> count_of(1, "call"), count_of(2, "call"), count_of(0, "loss", "losses")
    ('1 call', '2 calls', '0 losses')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
