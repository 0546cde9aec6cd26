"""Locate arguments that are not a JSON value: members without their opening brace, and calls in Python syntax.

    "city": "Paris", "days": 3}          missing_brace
    get_weather(city="Paris", days=3)    call_syntax; also get_weather({"city": "Paris"}) and [get_weather(…)]

Text of either form may mean something else, so only a reading that fits the schema of the tool is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from .extract import skip_lead
from .punctuation import BRACKETS, COLON, PARENTHESES, QUOTES
from .repair_attempt import Form, RepairAttempt, invalid_error
from .rewriter import JsonRewriter

__all__ = ["possible_forms", "rewrite_form"]

_KEY = rf"(?:[A-Za-z_$][\w$-]*+|[{''.join(QUOTES)}][^{''.join({*QUOTES, *QUOTES.values()})}\\{{}}\[\]]{{1,200}}+.)"
_MEMBER_START = re.compile(rf"{_KEY}\s*+(?:{COLON.pattern})")
_CALL_START = re.compile(
    rf"(?P<list>\[\s*+)?(?P<name>[A-Za-z_][\w.:/-]*+)?\s*+{PARENTHESES[0]}\s*+(?P<object>[{BRACKETS}])?"
)
_CALL_END = re.compile(rf"\s*+{PARENTHESES[1]}").match
_LIST_END = re.compile(r"\s*+\]").match
_QUALIFIER = re.compile(r"[.:/]")


def possible_forms(text: str) -> list[Form]:
    """Return the forms that the start of the text allows."""
    at = skip_lead(text, RepairAttempt(True))
    if _CALL_START.match(text, at):
        return ["call_syntax"]
    return ["missing_brace"] if _MEMBER_START.match(text, at) else []


def rewrite_form(text: str, end: int, attempt: RepairAttempt, names: Collection[str]) -> tuple[str, int]:
    """Return the arguments as JSON, and the position after them. `names`: those of the tool, if they are known."""
    at = skip_lead(text, attempt)
    attempt.record_step("missing_brace" if attempt.form == "missing_brace" else "call_syntax")
    if attempt.form == "missing_brace":
        rewriter = JsonRewriter(text, at, max(at, end), attempt, "{")
        return rewriter.rewrite(), rewriter.at
    call = _CALL_START.match(text, at)
    if call is None:
        raise invalid_error("expected a call", at)
    if call["name"] and names and _QUALIFIER.split(call["name"])[-1] not in names and call["name"] not in names:
        raise invalid_error(f"a call of {call['name'][:64]!r}, which is another tool", at)
    if call["object"]:
        rewriter = JsonRewriter(text, call.end() - 1, end, attempt)
    else:
        rewriter = JsonRewriter(text, call.end(), end, attempt, "(")
    rewritten, at = rewriter.rewrite(), rewriter.at
    for expected in [_CALL_END] * bool(call["object"]) + [_LIST_END] * bool(call["list"]):
        closer = expected(text, at, end)
        if closer is None:
            raise invalid_error("the call is not closed", at)
        at = closer.end()
    return rewritten, at
