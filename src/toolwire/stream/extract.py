"""Find JSON among the text that models put around it: fences, chat-template tokens, prose, surplus brackets.

Surrounding text is dropped only where it cannot be a piece of the document: `"a": 1, "b": {"c": 2}` is not prose before
an object, nor is `, "b": 2}` prose after one.
"""

from __future__ import annotations

import re

from .punctuation import BRACKETS, QUOTES
from .reasoning_marks import has_reasoning_mark, skip_reasoning, starts_with_mark
from .repair_attempt import LexicalStep, RepairAttempt, ambiguous_error, invalid_error

__all__ = ["check_trailing_text", "find_end", "find_start", "skip_lead"]

_SPACE = r"[\s\ufeff\u200b\u2060]*+"
_STARTS = re.compile(f"[{BRACKETS}{''.join(QUOTES)}]")
_BRACKET = re.compile(f"[{BRACKETS}]")
_MARK = r"<[/|\uff5c]?[\w\u2581|\uff5c:.=-]{1,60}>|\[/?[A-Z_]{3,30}\]"  # </tool_call>, <|im_end|>, [TOOL_CALLS]
_LEADING = re.compile(rf"{_SPACE}(?:(?P<fence>`{{3,}}[\w+-]*+)|(?P<token>{_MARK}))")
_TRAILING = re.compile(rf"{_SPACE}(?:(?P<fence>`{{3,}})|(?P<token>{_MARK})|(?P<closer>[}}\]]))")
_LAST_MARK = re.compile(_MARK)
_MAX_MARK = 64
_OPEN_STRING = re.compile(r"[=:(,]\s*+'[^']*+$")
_CALL = re.compile(r"[A-Za-z_][\w.]*+\(")
_SECOND_BRACE = re.compile(r"\s*+\}")
_DOUBLED_BRACE = re.compile(r"\{\s*+(?=\{)")
_STEPS: dict[str | None, LexicalStep] = {"fence": "code_fence", "token": "tool_token", "closer": "surplus_closer"}

_LEADING_PROSE = re.compile(r"(?![,:=\"'“(])[^{}\[\]]*[\w:.!?>*`\-—]\s*+")
_TRAILING_PROSE = re.compile(r"(?![,:=\"'“”)&|+])[^{}\[\]]*+")
_MEMBER = re.compile(r"[\"'”]\s*+[:=]|(?:^|[\n,])[^\S\n]*+[\w-]++\s*+:\s*+$")  # `key:` is not a sentence


def skip_lead(text: str, attempt: RepairAttempt) -> int:
    """Return the position after fences, tokens and reasoning at the start of the text."""
    at = _skip_tokens(text, 0, len(text), attempt)
    while True:
        found = _LEADING.match(text, at)
        if found is not None and not starts_with_mark(text, at):
            attempt.record_step(_STEPS[found.lastgroup])
            after = found.end()
        elif _STARTS.match(text, at) and found is None:
            after = at
        else:
            after = skip_reasoning(text, at, attempt)
        after = _skip_tokens(text, after, len(text), attempt)
        if after == at:
            return at
        at = after


def find_start(text: str, attempt: RepairAttempt) -> int:
    """Return the position where the value begins."""
    at = skip_lead(text, attempt)
    if at == len(text):
        raise invalid_error("the text is empty", at)
    if (doubled := _DOUBLED_BRACE.match(text, at)) is not None:
        attempt.record_step("doubled_braces")
        return doubled.end()
    if _STARTS.match(text, at):
        return at
    bracket = _BRACKET.search(text, at)
    if bracket is None:
        raise invalid_error("the text contains no object", at)
    before = text[at : bracket.start()].rstrip()
    if _LEADING_PROSE.fullmatch(before) is None or _MEMBER.search(before) or _is_inside_string(before):
        raise invalid_error(f"expected an object, got {before[:16]!r}", at)
    attempt.record_step("prose")
    return bracket.start()


def _is_inside_string(before: str) -> bool:
    """Return True if the text before a bracket opens a string, or the arguments of a call."""
    return before.count('"') % 2 == 1 or _OPEN_STRING.search(before) is not None or _CALL.match(before) is not None


def find_end(text: str, attempt: RepairAttempt) -> int:
    """Return the end of the text before trailing tokens and a fence: an open container may be closed there."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        nearest = max(end - _MAX_MARK, 0)
        start = max(text.rfind("<", nearest, end), text.rfind("[", nearest, end))
        if text.endswith("```", 0, end):
            attempt.record_step("code_fence")
            end -= 3
        elif start >= 0 and _LAST_MARK.fullmatch(text, start, end) and not has_reasoning_mark(text, start, end):
            attempt.record_step("tool_token")
            end = start
        else:
            return end


def check_trailing_text(text: str, at: int, end: int, attempt: RepairAttempt) -> None:
    """Drop the text after the value; raise if it could belong to the value, or the value to reasoning."""
    if has_reasoning_mark(text, at, end):
        raise ambiguous_error("an object in the model's reasoning", at, "write one JSON object and nothing else")
    if "doubled_braces" in attempt.steps:
        at = _skip_doubled_brace(text, at, end)
    while (found := _TRAILING.match(text, at, end)) is not None:
        if found.lastgroup == "closer" and attempt.form == "missing_brace":
            raise invalid_error("more than one opening bracket is missing", at)
        attempt.record_step(_STEPS[found.lastgroup])
        at = found.end()
    at = _skip_tokens(text, at, end, attempt)
    if at == end or ("over_escaped" in attempt.steps and text[at:end] == '"'):
        return
    if attempt.form == "call_syntax":
        raise invalid_error(f"unexpected text after the call: {text[at : at + 16]!r}", at)
    if _BRACKET.search(text, at, end):
        raise ambiguous_error("more than one value", at, "write one JSON object and nothing else")
    # A reading that guesses about the inside of a document must not also treat its end as prose.
    is_prose = _TRAILING_PROSE.fullmatch(text, at, end) is not None and text.count('"', at, end) % 2 == 0
    if attempt.guess_kind or not is_prose:
        raise invalid_error(f"unexpected text after the value: {text[at : at + 16]!r}", at)
    attempt.record_step("prose")


def _skip_doubled_brace(text: str, at: int, end: int) -> int:
    """Return the position after the second of two closing braces."""
    closer = _SECOND_BRACE.match(text, at, end)
    if closer is None:
        raise invalid_error("two opening braces and one closing brace", at)
    return closer.end()


def _skip_tokens(text: str, at: int, end: int, attempt: RepairAttempt) -> int:
    while at < end and (text[at].isspace() or text[at] in "\ufeff\u200b\u2060"):
        if text[at] not in " \t\r\n":
            attempt.record_step("odd_space")
        at += 1
    return at
