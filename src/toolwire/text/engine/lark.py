"""Write a grammar in the Lark dialect of llguidance: literals, terminals, rules and embedded JSON schemas.

A tokenizer may hold a tag such as `<tool_call>` as one special token, which no regular expression matches. Literals are
therefore split at the special tokens that the caller names, and those are written as token ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...ir.pointer import JSON
from ...ir.text import dumps

_META = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~/]")
_EMPTY = '""'
_JSON_OPTIONS: JSON = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf"\\',  # without \u, every key has one spelling
}


def quote_regex(text: str) -> str:
    r"""Escape a text for a regular expression between slashes.

    >>> print(quote_regex("a/b?"))
    a\/b\?
    """
    return _META.sub(r"\\\g<0>", text).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def any_text(least: int = 0, most: int | None = None) -> str:
    """Return a regular expression, with its slashes, for any text of this length."""
    if least == 0 and most is None:
        return "/(?s:.*)/"
    return f"/(?s:.{{{least},{'' if most is None else most}}})/"


def union(options: Iterable[str]) -> str:
    """Return alternatives in parentheses; a single one stays as it is."""
    unique = list(dict.fromkeys(options))
    return unique[0] if len(unique) == 1 else f"({' | '.join(unique)})"


class LarkRules:
    """A growing list of rules and terminals.

    `special` maps the text of a special token to its id. A negative id is the end token, which the engine adds by itself.
    """

    def __init__(self, special: Mapping[str, int]) -> None:
        self.special = special
        self._split = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or r"(?!)")
        self._lines: list[str] = []
        self._names: dict[str, str] = {}  # body -> name of a rule or a terminal
        self._used: dict[str, int] = {}

    def rule(self, name: str, body: str) -> str:
        """Add a rule with a fixed name."""
        self._lines.append(f"{name}: {body or _EMPTY}")
        return name

    def add(self, prefix: str, body: str, options: str = "") -> str:
        """Add a rule, or a terminal if `prefix` is upper case, and return its name; equal bodies share one."""
        key = f"{prefix.isupper()}{options}:{body}"
        if key not in self._names:
            name = self.reserve(prefix)
            self._names[key] = name
            self._lines.append(f"{name}{options}: {body or _EMPTY}")
        return self._names[key]

    def reserve(self, prefix: str) -> str:
        """Return an unused name; the caller adds its rule with `rule`, for example after a recursive reference."""
        number = self._used[prefix] = self._used.get(prefix, 0) + 1
        return f"{prefix}_{number}"

    def literal(self, text: str) -> str:
        """Return a literal for a rule, with special tokens as token ids; an empty string for no text."""
        parts = [part for part in self.pieces(text) if self.special.get(part, 0) >= 0]
        return " ".join(self.token(part) or dumps(part) for part in parts)

    def pieces(self, text: str) -> list[str]:
        """Split a text into special tokens and the text between them."""
        found: list[str] = []
        at = 0
        for one in self._split.finditer(text):
            found += [text[at : one.start()], one[0]]
            at = one.end()
        return [part for part in (*found, text[at:]) if part]

    def token(self, text: str) -> str:
        """Return the id of a special token as a grammar symbol, or an empty string."""
        return f"<[{self.special[text]}]>" if self.special.get(text, -1) >= 0 else ""

    def until(self, terminal: str, closing: str) -> str:
        """Return a rule for a text and the literal after it.

        A text ends at the first occurrence of the literal, which is part of the same lexeme: the lexer has no
        backtracking. A special token ends it by itself.
        """
        first, *others = self.pieces(closing) or [""]
        if first in self.special:
            return " ".join((self.add("TEXT", terminal), self.literal(closing)))
        head = f"({terminal}) {dumps(first)}" if first else terminal
        if others:
            return " ".join((self.add("TEXT", head), self.literal("".join(others))))
        return self.add("text", head, "[lazy]") if first else self.add("TEXT", head)

    def without(self, terminal: str, forbidden: Sequence[str], patterns: Sequence[str] = ()) -> str:
        """Restrict a terminal to text that contains none of these texts and matches of `patterns`."""
        if not forbidden and not patterns:
            return terminal
        pattern = "|".join((*map(quote_regex, dict.fromkeys(forbidden)), *patterns))
        return f"{terminal} & ~/(?s:.*)({pattern})(?s:.*)/"

    def json(self, schema: Mapping[str, JSON]) -> str:
        """Return a rule for a JSON value, on one line as chat templates write it."""
        return self.add("json", f"%json {dumps({**schema, 'x-guidance': _JSON_OPTIONS})}")

    def text(self, start: str) -> str:
        """Return the grammar, with this expression as its start."""
        return "\n".join(("%llguidance {}", f"start: {start}", *self._lines, ""))
