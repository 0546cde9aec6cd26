r"""Regular expressions of schemas: the engine that matches them, its limits, and the subsets that dialects accept.

A `pattern` comes from a client or a server, so it is never passed to Python's `re`: that engine backtracks, and
`^(a+)+$` takes time that is exponential in the length of the text. One engine matches patterns everywhere, the one of
the validator (jsonschema-rs with Rust's `regex`), so that `\d`, `\w` and `$` always mean the same. Its time is bounded
by the number of states of the automaton times the length of the text. Both factors come from a peer, so both have a
limit:

    refusal(pattern)          the reason why the engine cannot match it; None for nearly all
    match_cost(pattern)       the cost of one character of text, in units of about 5 ns
    matches(pattern, text)    True or False; None if the engine was not run

A refused pattern is never an error of the arguments: it is a finding of its schema (see `unchecked.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .content_cache import content_cache

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "MATCH_BUDGET",
    "MATCH_LIMIT",
    "PATTERN_OVERHEAD",
    "SCHEMA_SIZE",
    "automaton_size",
    "engine_options",
    "engine_size",
    "is_supported",
    "length_pattern",
    "match_cost",
    "matches",
    "refusal",
]

MAX_LENGTH = 10_000
"""Characters of one pattern."""
SCHEMA_SIZE = 8_000_000
"""Bytes of the automata of all patterns of one schema, estimated: about 50 ms to compile."""
PATTERN_OVERHEAD = 2_000
"""Bytes that account for the fixed cost of one more pattern."""
MATCH_BUDGET = 20_000_000
"""Units of `match_cost` that one check of a value may spend: about 0.1 s at worst."""
MATCH_LIMIT = 200_000
"""Units for one call of `matches`, which distinguishes branches of a union and may defer to the validator."""

_LOOKS_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\(\?P?<|\\[kpPuxc]").search
_BOUNDARY = re.compile(r"\\[bB]").search
_MAX_MIN_LENGTH, _MAX_LENGTH_BOUND = 32, 256


def is_supported(pattern: str, policy: str) -> bool:
    """Return True if the engine of a dialect accepts the pattern."""
    if policy == "any":
        return True
    if _LOOKS_AROUND(pattern):
        return False
    if policy == "simple" and _BOUNDARY(pattern):
        return False
    if policy == "anchored":
        return pattern.startswith("^") and pattern.endswith("$") and "(?:" not in pattern
    return True


def length_pattern(low: int, high: int | None) -> tuple[str | None, int, int | None]:
    """Return a pattern that enforces a length, and the bounds that it does not enforce."""
    if low > _MAX_MIN_LENGTH:
        return None, low, high
    if high is not None and high <= _MAX_LENGTH_BOUND:
        return rf"^[\s\S]{{{low},{high}}}$", 0, None
    return (rf"^[\s\S]{{{low},}}$" if low else None), 0, high


# the engine

_BACKTRACKS = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9k]").search
# Without these two, the automaton could be larger than estimated: ECMA-262 has no verbose mode, in which whitespace and
# comments may be inside a quantifier; and `[]a]` is an empty set there, but a set of two characters in Rust.
_VERBOSE = re.compile(r"\(\?[a-wyz]*+x").search
_EMPTY_SET = re.compile(r"\\.|\[\^?\]|\[(?:\\.|[^\]\\])*+\]?+", re.DOTALL).finditer


def engine_options() -> jsonschema_rs.RegexOptions:
    """Return the options of the validator's engine. `dfa_size_limit` bounds the memory of matching per pattern."""
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(size_limit=10 * 2**20, dfa_size_limit=2**18)


def refusal(pattern: str) -> str | None:
    """Return the reason why the engine does not match this pattern; None if it does."""
    return f"longer than {MAX_LENGTH:,} characters" if len(pattern) > MAX_LENGTH else _refusal(pattern)


@lru_cache(2048)
def _refusal(pattern: str) -> str | None:
    """Return the reason of a refusal. The cheap checks come first, because compiling a pattern is expensive."""
    if _BACKTRACKS(pattern):
        return "lookaround, backreferences and atomic groups cannot be matched in linear time"
    if _VERBOSE(pattern):
        return "the flag x is not part of ECMA-262"
    if any(found.group() in ("[]", "[^]") for found in _EMPTY_SET(pattern)):
        return "it contains an empty character class"
    if automaton_size(pattern) > SCHEMA_SIZE:
        return "its repetitions multiply to an automaton that is too large"
    return None if _engine(pattern) is not None else "its syntax is not supported"


def _compile(pattern: str) -> jsonschema_rs.Validator | None:
    """Compile a pattern with the engine of the validator; None if its syntax is not supported."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=engine_options())
    except ValueError:  # also ValidationError, and UnicodeEncodeError for a lone surrogate
        return None


def engine_size(pattern: str) -> int:
    """Estimate the bytes of a compiled pattern, with the fixed cost of one more engine."""
    return automaton_size(pattern) + PATTERN_OVERHEAD


@content_cache(3 * SCHEMA_SIZE, engine_size, 2)
def _engine(pattern: str) -> jsonschema_rs.Validator | None:
    """Return the engine of a pattern. One generation of the cache holds all patterns that one schema may match."""
    return _compile(pattern)


def matches(pattern: str, text: str) -> bool | None:
    """Return True if the pattern is found in the text; None if it is refused or the search would cost too much."""
    if match_cost(pattern) * len(text) > MATCH_LIMIT or refusal(pattern) is not None:
        return None
    engine = _engine(pattern)
    return None if engine is None else engine.is_valid(text)


def match_cost(pattern: str) -> int:
    """Return the units that one character of text may cost.

    A small automaton becomes a table, with one lookup for each character. A larger one may not fit: then every state is
    visited for every character.
    """
    states = _HUGE.states if len(pattern) > MAX_LENGTH else _measure(pattern).states
    return 1 if states <= _TABLE_STATES else _STATE_COST * states


def automaton_size(pattern: str) -> int:
    """Estimate the bytes of the compiled automaton, without compiling it."""
    return _HUGE.size if len(pattern) > MAX_LENGTH else _measure(pattern).size


# the estimate

_TABLE_STATES, _STATE_COST = 12, 4
_LITERAL, _SET, _WIDE, _UNICODE = 64, 128, 1_200, 50_000  # bytes, measured: a byte, ASCII, most of Unicode, \p{…}
_TOKEN = re.compile(
    r"""
      (?P<unicode>\\[pP](?:\{[^{}]*+\}|.)?+)
    | (?P<escape>\\(?:[ux]\{[^{}]*+\}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)?+)
    | (?P<set>\[\^?+(?:\\.|[^\]\\])*+\]?+)
    | (?P<repeat>\{\s*+(?P<low>[0-9]*+)\s*+(?P<comma>,?+)\s*+(?P<high>[0-9]*+)\s*+\})
    | (?P<open>\((?:\?(?:<\w++>|P<\w++>|[a-z-]*+:)?+)?+)
    | (?P<close>\))
    | (?P<operator>[*+?|^$])
    | (?P<any>\.)
    | (?P<text>[^\\\[{()*+?|^$.]++|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ANY_CASE = re.compile(r"\(\?[a-hj-z]*+i").search
_WIDE_ESCAPES = ("\\D", "\\S", "\\W", "\\s", "\\u", "\\x")


class _AutomatonSize(NamedTuple):
    """The estimated number of states, and the estimated bytes."""

    states: int
    size: int


_HUGE = _AutomatonSize(10**9, 10**9)


@lru_cache(2048)
def _measure(pattern: str) -> _AutomatonSize:
    """Count the atoms of a pattern, each as often as the repetitions around it require. One pass, no compilation."""
    outer: list[tuple[int, int]] = []  # states and bytes of the groups around the current one, up to its start
    states = size = 0  # of the current group
    last = last_size = 0  # of its last atom, to which a repetition applies
    for token in _TOKEN.finditer(pattern):
        kind = str(token.lastgroup)
        if kind == "open":
            outer.append((states, size))
            states = size = last = last_size = 0
        elif kind == "close" and outer:
            last, last_size = states + 1, size + _LITERAL
            states, size = outer[-1][0] + last, outer.pop()[1] + last_size
        elif kind == "repeat":
            copies = _repetitions(*token.group("low", "comma", "high"))
            states, size = states + last * (copies - 1), size + last_size * (copies - 1)
            last, last_size = last * copies, last_size * copies
        elif kind == "operator":
            size += _LITERAL
        else:
            atoms = len(token.group()) if kind == "text" else 1
            last, last_size = 1, _atom_size(kind, token.group())
            states, size = states + atoms, size + atoms * last_size
        if size > _HUGE.size:
            return _HUGE
    for before, before_size in outer:  # unbalanced: the engine refuses it
        states, size = states + before, size + before_size
    factor = 3 if _ANY_CASE(pattern) else 1
    return _AutomatonSize(factor * states, factor * size)


def _repetitions(low: str, comma: str, high: str) -> int:
    """Count copies: {3} and {1,3} are 3 copies, {3,} is 3 and a loop."""
    count = int((high or low or "1")[:9])
    return max(count + (comma != "" and high == ""), 1)


def _atom_size(kind: str, text: str) -> int:
    """Estimate the bytes of one atom from its token; Unicode classes and negated sets need the most."""
    if kind == "unicode":
        return _UNICODE
    if kind == "any" or text in _WIDE_ESCAPES:
        return _WIDE
    if kind == "set":
        wide = text.startswith("[^") or not text.isascii() or any(escape in text for escape in _WIDE_ESCAPES)
        classes = text.count("\\p") + text.count("\\P")
        return classes * _UNICODE + (_WIDE + 40 * len(text) if wide else _SET + 8 * len(text))
    return _LITERAL if text.isascii() else 4 * _LITERAL
