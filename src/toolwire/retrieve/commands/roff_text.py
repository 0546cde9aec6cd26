"""Plain text of a line of roff: without fonts, sizes and other escapes."""

from __future__ import annotations

import re

__all__ = ["ITALIC_END", "ITALIC_START", "plain_text", "split_arguments"]

ITALIC_START, ITALIC_END = "\x02", "\x03"
"""Marks around the variables of a synopsis."""


_ESCAPE = re.compile(
    r"""\\(?:
        (?P<comment>["\#].*)
      | f(?P<font>\[[^\]]{0,20}\]|\(..|.)
      | (?P<string>\*)(?:\[(?P<long_string>[^\]]{0,40})\]|\((?P<string2>..)|(?P<string1>.))
      | (?:\[(?P<long>[^\]]{0,40})\]|\((?P<two>..))
      | [mMFgkn](?:\[[^\]]{0,40}\]|\(..|[+-]?.)
      | s(?:\[[^\]]{0,10}\]|\([+-]?..|[+-]?\d{1,2})
      | [whvlLDXZRSHoNxbB]'[^']{0,200}'
      | z
      | (?P<one>.)
    )""",
    re.VERBOSE,
)
_CHARACTERS = {
    "aq": "'",
    "cq": "'",
    "oq": "`",
    "dq": '"',
    "lq": '"',
    "rq": '"',
    "em": "-",
    "en": "-",
    "mi": "-",
    "hy": "-",
    "ha": "^",
    "ti": "~",
    "la": "<",
    "ra": ">",
    "rs": "\\",
    "bu": "*",
    "ga": "`",
    "at": "@",
    "sh": "#",
    "Do": "$",
    "lB": "[",
    "rB": "]",
    "lC": "{",
    "rC": "}",
    "ba": "|",
    "bv": "|",
    "sl": "/",
    "pl": "+",
    "eq": "=",
    "Bq": '"',
    "fo": "<",
    "fc": ">",
    "co": "(C)",
    "Aq": "'",
    "L'": "",
    "nq": "'",
    "->": "->",
    "<-": "<-",
    "R": "",
    "S": "",
}
_ONE = {"-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "t": " ", "'": "'", "`": "`", ".": ".", "_": "_"}
_ITALIC = ("I", "[I]", "2", "(CI", "[CI]")
_SPACES = re.compile(r"[ \t]+")
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|(\S+)')


def plain_text(line: str, *, marks_italic: bool = False) -> str:
    """Return a line without escapes. `marks_italic`: put ITALIC_START and ITALIC_END around italic text."""
    parts: list[str] = []
    position, is_italic = 0, False
    for found in _ESCAPE.finditer(line):
        parts.append(line[position : found.start()])
        position = found.end()
        font = found["font"]
        if font is not None and marks_italic:
            if (font in _ITALIC) != is_italic:
                parts.append(ITALIC_END if is_italic else ITALIC_START)
                is_italic = not is_italic
        else:
            parts.append(_replacement(found))
    parts.append(line[position:])
    if is_italic:
        parts.append(ITALIC_END)
    text = "".join(parts).replace(ITALIC_START + ITALIC_END, "")
    return _SPACES.sub(" ", text).strip()


def _replacement(found: re.Match[str]) -> str:
    if found["one"] is not None:
        return _ONE.get(found["one"], "")
    name = found["long"] or found["two"] or found["long_string"] or found["string2"] or found["string1"]
    return _CHARACTERS.get(name, "") if name else ""


def split_arguments(line: str) -> list[str]:
    """Split the arguments of a macro; quotes keep spaces, and an escaped space separates nothing."""
    text = line.replace(r"\ ", "\0").replace(r"\(dq", "\\[dq]")
    found = [plain or quoted.replace('""', '"') for quoted, plain in _ARGUMENT.findall(text)]
    return [one.replace("\0", " ") for one in found]
