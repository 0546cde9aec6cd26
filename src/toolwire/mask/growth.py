r"""Bounds on the end of an output: how long it can be, and how much one token can lengthen it.

The end of a text with a pattern needs at most as many characters as the pattern's automaton has states. A mask shows the
next token only, which is not enough to find this end: in `^[0-9a-f]{8}-[0-9a-f]{4}$`, all states of a part have nearly
the same mask, and in `^allow|deny$`, no mask shows that `deny` is missing. So the search tries the rests of an example,
the shortest text that matches the pattern: after any beginning, one of them is usually an end. Examples are guesses,
which the search tries in the grammar: a construct that is read wrongly costs time, no validity.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from ..ir.errors import ConfigError
from ..ir.text import shorten
from ..schema.validation.patterns import automaton_states

LEAST_TEXT = 4
"""Tokens at the end of any text: the three other bytes of a character, and a quote."""
UNLIMITED = sys.maxsize
"""A `total` for outputs whose ends have no known bound."""
MAX_EXAMPLES = 40
"""Examples of all patterns of a mask; a search tries the rests of each of them."""
_MAX_PATTERN = 4_000  # states of a pattern; no usual limit suffices for more
_REPEAT = re.compile(r"\{([0-9]*),[0-9]*\}")
_MAX_LENGTH = 400  # characters of an example; rests of longer ones are rarely useful and take long to try
_TOKEN = re.compile(
    r"""
      (?P<set>\[\^?+\]?+(?:\\.|[^\]\\])*+\]?+)
    | (?P<escape>\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)?+)
    | (?P<repeat>(?:[*?]|(?P<once>\+)|\{(?P<low>[0-9]{0,9}+),?+[0-9]*+\})\??+)
    | (?P<open>\((?:\?(?:P?<\w++>|[a-z-]*+:?+))?+)
    | (?P<close>\))
    | (?P<bar>\|)
    | (?P<anchor>[\^$])
    | (?P<text>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(r"(\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)|[^\\])(?:-(\\.|[^\\]))?+", re.DOTALL)
_CLASSES = {"d": "0", "w": "a0_", "s": " ", "D": "a- ", "W": "- .", "S": "a0-"}  # their first members, the usual first
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "b": "", "B": "", "A": "", "z": ""}
_USUAL = "a0A-_ .:/@b1B,"


class TokenLimitError(ConfigError):
    """`start` refuses a limit, because no output is that short, or because no bound on the ends of outputs is known.

    `least` is the smallest limit that is accepted, or None if none is.
    """

    def __init__(self, message: str, *, least: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.least = least


def unbounded(cause: str) -> TokenLimitError:
    """Return the error for outputs whose ends have no known bound."""
    hint = "start without max_tokens, or simplify the schema"
    return TokenLimitError(f"the output cannot be closed within a token limit: {cause}", hint=hint)


class Growth(NamedTuple):
    """Bounds on the shortest end of an output, in tokens."""

    step: int
    """The most by which one token lengthens it."""
    text_step: int
    """The most by which a token lengthens it that continues a text or a number."""
    total: int = UNLIMITED
    """The most that the end ever needs, without `rate`."""
    rate: int = 0
    """Tokens by which `total` grows for each bracket that the output has opened."""
    required: tuple[bytes, ...] = ()
    """The names of required properties, which a search for the end tries first."""
    examples: tuple[bytes, ...] = ()
    """Shortest texts of patterns, whose rests may end a text."""


def pattern_growth(pattern: str) -> Growth:
    """Bound the outputs that match a pattern: a shortest end visits no state of its automaton twice."""
    size = pattern_size(pattern)
    examples = tuple(text.encode("utf-8", "replace") for text in pattern_examples(pattern))[:MAX_EXAMPLES]
    return Growth(max(size, LEAST_TEXT), max(size, LEAST_TEXT), size + LEAST_TEXT, examples=examples)


def pattern_size(pattern: str) -> int:
    """Bound the shortest rest of a text: the states of the pattern, with the fewest copies of each repetition.

    Raise TokenLimitError for a pattern with too many states.
    """
    fewest = _REPEAT.sub(lambda found: f"{{{max(int(found[1] or 0), 1)}}}", pattern)
    size = automaton_states(fewest) + len(pattern.encode("utf-8", "replace")) - len(pattern)
    if size > _MAX_PATTERN:
        raise unbounded(f"the pattern {shorten(pattern, 80)} has about {size:,} states")
    return size


def pattern_examples(pattern: str) -> list[str]:
    """Return a shortest text for each alternative of a pattern, then of its groups.

    >>> pattern_examples("^[A-F]{2}-(x|yz)+|deny$")
    ['AA-x', 'deny', 'x', 'yz']
    """
    groups: list[list[list[str]]] = [[[]]]  # of each open group the alternatives, and of each of them the parts
    inner: list[str] = []
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup if token["repeat"] is None else "repeat"
        parts = groups[-1][-1]
        if kind == "repeat":
            low = 1 if token["once"] else int(token["low"] or 0)
            if parts:
                parts[-1] = (parts[-1] * min(low, _MAX_LENGTH))[:_MAX_LENGTH]
        elif kind == "open":
            groups.append([[]])
        elif kind == "close" and len(groups) > 1:
            texts = ["".join(parts)[:_MAX_LENGTH] for parts in groups.pop()]
            groups[-1][-1].append(min(texts, key=len))
            inner += texts if len(texts) > 1 else []
        elif kind == "bar":
            groups[-1].append([])
        elif kind == "set":
            parts.append(_member(token[0][1:].removesuffix("]")))
        elif kind == "escape":
            parts.append(_escaped(token[0])[:1])
        elif kind == "text":
            parts.append("a" if token[0] == "." else token[0])
    return ["".join(parts)[:_MAX_LENGTH] for parts in groups[0]] + inner


def _escaped(text: str) -> str:
    """Return the character that an element of a pattern matches, or the first characters of its class."""
    if text[0] != "\\":
        return text
    name = text[1:2]
    if name in ("x", "u") and len(text) > 2:
        return chr(int(f"0x{text[2:]}", 0))
    return _CLASSES.get(name) or _CONTROLS.get(name, name)


def _member(body: str) -> str:
    """Return a character of a set, a usual one if there is one."""
    items = [(_escaped(low), _escaped(high) if high else "") for low, high in _ITEM.findall(body.removeprefix("^"))]
    firsts = [low[:1] for low, _ in items]

    def holds(character: str) -> bool:
        return any(low <= character <= high if high else character in low for low, high in items)

    if body.startswith("^"):
        return next((character for character in _USUAL if not holds(character)), "~")
    return next(
        (character for character in [*firsts, *_USUAL] if character not in '"\\' and holds(character)),
        "".join(firsts[:1]),
    )
