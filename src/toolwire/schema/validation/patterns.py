r"""Regular expressions and formats of schemas: their engine, its limits, and the patterns that stay unchecked.

A `pattern` comes from a client or a server, so it is never passed to Python's `re`: that engine backtracks, and
`^(a+)+$` takes time that is exponential in the length of the text. One engine matches patterns everywhere, the one of
the validator (jsonschema-rs with Rust's `regex`), so that `\d`, `\w` and `$` always mean the same. Its time is bounded
by the number of states of the automaton times the length of the text. Both factors come from a peer, so both have a
limit:

    refusal(pattern)          the reason why the engine cannot match it; None for nearly all
    match_cost(pattern)       the cost of one character of text, in units of about 5 ns
    matches(pattern, text)    True or False; None if the engine was not run

A refused pattern is never an error of the arguments: it is a finding of its schema (`unchecked_patterns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...ir.pointer import JSON, Object, join
from ...ir.text import shorten
from ..bounds import content_cache
from ..keywords import DATA, MAPS, copy_schema, old_draft_number

if TYPE_CHECKING:
    import jsonschema_rs


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
# a bounded repetition is unrolled: each character is a state of the automaton, also of the provider's
_MAX_MIN_LENGTH, _MAX_LENGTH_BOUND = 32, 256


def is_supported(pattern: str, policy: str) -> bool:
    """Return True if the engine of a dialect with this `policy` (`Dialect.patterns`) accepts the pattern."""
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
    """Return the reason why a pattern is not checked, or None. Cheap tests come first: compiling is expensive."""
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
    states = automaton_states(pattern)
    return 1 if states <= _TABLE_STATES else _STATE_COST * states


def automaton_states(pattern: str) -> int:
    """Estimate the states of the automaton, without compiling it."""
    return _HUGE.states if len(pattern) > MAX_LENGTH else _measure(pattern).states


def automaton_size(pattern: str) -> int:
    """Estimate the bytes of the compiled automaton, without compiling it."""
    return _HUGE.size if len(pattern) > MAX_LENGTH else _measure(pattern).size


# the estimate

# a cautious bound of the states whose table the engine surely keeps, and lookups per state beyond it (see `match_cost`)
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


# Formats: those that are checked in every draft, and those that a pattern expresses exactly.
#
# A pattern replaces a format in dialects that accept patterns but not the format. The validator checks the same
# formats in all drafts: generators write `uuid` into schemas of draft 7, which does not define it.


ASSERTED = frozenset(
    "date-time date time duration email idn-email hostname idn-hostname ipv4 ipv6 uri uri-reference iri iri-reference "
    "uuid uri-template json-pointer relative-json-pointer regex".split()
)
"""The formats that the validator checks. Any other format is an annotation."""
_DEFINED_LATER = {
    4: "uri-reference uri-template json-pointer iri iri-reference idn-hostname relative-json-pointer duration uuid",
    6: "iri iri-reference idn-hostname relative-json-pointer duration uuid",
    7: "duration uuid",
}
"""Formats that were defined after a draft; the engine itself checks those that the draft of the schema defines."""

_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ESCAPE = r"%[0-9A-Fa-f]{2}"
_NAME = rf"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_ESCAPE})"
_PATH = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_ESCAPE})"
_TAIL = rf"(?:{_PATH}|[/?])*"
_HOST = rf"//(?:(?:{_NAME}|:)*@)?{_NAME}*(?::[0-9]*)?(?:/{_PATH}*)*"

_PATTERNS = {
    "date": rf"^{_DATE}$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "ipv4": rf"^{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}$",
    "uri": (
        rf"^[A-Za-z][A-Za-z0-9+.-]*:(?:{_HOST}|/(?:{_PATH}+(?:/{_PATH}*)*)?|{_PATH}+(?:/{_PATH}*)*)?"
        rf"(?:\?{_TAIL})?(?:#{_TAIL})?$"
    ),
}
INCOMPLETE = {"uri": "hosts in brackets (IPv6)"}
"""Values of a format that its pattern does not match: an exact pattern for IPv6 would be four times as long."""


def format_pattern(name: str) -> str | None:
    return _PATTERNS.get(name)


def format_checks(schema: JSON) -> dict[str, Callable[[str], bool]]:
    """Return checks for the formats that the draft of the schema does not define."""
    draft = old_draft_number(schema)
    return {} if draft is None else {name: _make_check(name) for name in _DEFINED_LATER.get(draft, "").split()}


@lru_cache
def _make_check(name: str) -> Callable[[str], bool]:
    import jsonschema_rs

    return jsonschema_rs.validator_for({"format": name}, validate_formats=True, offline=True).is_valid


# Patterns of a schema that the local validator does not check, and the schema without them.
#
# The engine refuses few patterns: lookaround and backreferences, syntax errors, and those that would cost too much
# (see `refusal`). Each becomes a finding with its pointer. The rest of the schema is still checked, so one such
# pattern does not disable its tool, and no valid call is refused because of it.


# Keywords whose schema must not match: without its pattern it would match more, and valid values would be rejected.
_NEGATED = ("not", "if")
_OTHER_NAMES = ("additionalProperties", "unevaluatedProperties")


class UncheckedPattern(NamedTuple):
    """One use of a refused pattern. `at` points at the keyword, or at the key under `patternProperties`."""

    at: str
    pattern: str
    reason: str

    def __str__(self) -> str:
        return f"{self.at}: the pattern {shorten(self.pattern, 100)} is not checked: {self.reason}"


def pattern_uses(schema: JSON) -> Iterator[tuple[str, str]]:
    """Yield every pattern of a schema with its pointer, in document order."""
    pending: list[tuple[str, JSON, bool]] = [("", schema, False)]
    while pending:
        at, node, is_map = pending.pop()
        found: list[tuple[str, JSON, bool]] = []
        if type(node) is list:
            found = [(f"{at}/{index}", item, False) for index, item in enumerate(node)]
        elif type(node) is dict:
            for key, value in node.items():
                if key == "pattern" and type(value) is str and not is_map:
                    yield f"{at}/pattern", value
                elif is_map or key not in DATA:
                    found.append((at + join(key), value, not is_map and key in MAPS))
            if at.endswith("/patternProperties") and is_map:
                yield from ((at + join(key), key) for key in node)
        pending.extend(item for item in reversed(found) if type(item[1]) is dict or type(item[1]) is list)


def total_size(schema: JSON) -> int:
    """Estimate the bytes of the automata of all patterns; each distinct pattern counts once."""
    return sum(map(automaton_size, {pattern for _, pattern in pattern_uses(schema)}))


def unchecked_patterns(schema: JSON) -> list[UncheckedPattern]:
    """List the uses of refused patterns: refused individually, or because all together would be too large."""
    reasons: dict[str, str | None] = {}
    total = 0
    found: list[UncheckedPattern] = []
    for at, pattern in pattern_uses(schema):
        if pattern not in reasons:
            size = engine_size(pattern)
            if size <= SCHEMA_SIZE:  # otherwise it is refused individually, at no cost
                total += size
            reasons[pattern] = refusal(pattern) if total <= SCHEMA_SIZE else "all patterns together are too large"
        reason = reasons[pattern]
        if reason is not None:
            found.append(UncheckedPattern(at, pattern, reason))
    return found


def remove_patterns(schema: JSON, refused: frozenset[str]) -> JSON:
    """Return a copy of the schema that accepts every value that the refused patterns may accept."""

    def remove(original: Object, out: Object) -> Object:
        """Remove refused patterns from one copied subschema, and every keyword that depends on them."""
        if type(pattern := out.get("pattern")) is str and pattern in refused:
            del out["pattern"]
        names = out.get("patternProperties")
        if type(names) is dict and not refused.isdisjoint(names):
            out["patternProperties"] = {name: inner for name, inner in names.items() if name not in refused}
            for keyword in _OTHER_NAMES:  # a refused pattern may allow additional names
                out.pop(keyword, None)
        _drop_negations(original, out, refused)
        return out

    return copy_schema(schema, remove)


def _drop_negations(schema: Object, out: Object, refused: frozenset[str]) -> None:
    """Drop `not` and `if` with a refused pattern, and weaken such a `oneOf` to `anyOf`.

    Without its pattern, a subschema matches more, so a negation of it would reject valid values.
    """

    def uses_refused(keyword: str) -> bool:
        return keyword in schema and any(pattern in refused for _, pattern in pattern_uses(schema[keyword]))

    for keyword in _NEGATED:
        if uses_refused(keyword):
            del out[keyword]
    if type(out.get("oneOf")) is list and uses_refused("oneOf"):
        out["allOf"] = [*(out["allOf"] if type(out.get("allOf")) is list else ()), {"anyOf": out.pop("oneOf")}]
