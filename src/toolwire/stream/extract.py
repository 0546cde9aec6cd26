"""Find JSON among the text that models put around it: reasoning, fences, chat-template tokens, prose, surplus brackets.

Surrounding text is dropped only where it cannot be a piece of the document. JSON inside reasoning that does not end is
refused.
"""

from __future__ import annotations

import re

from .attempt import LexicalStep, RepairAttempt, ambiguous_error, invalid_error, truncated_error
from .notation import BRACKETS, QUOTES

# Only the marks matter here, not the formats that use them: `<think>`, `<seed:think>`, `[THINK]`,
# `<|START_THINKING|>`, the channels of harmony, Gemma and Muse, and the fixed sentences of Granite and Apriel. A mark
# without its counterpart is never treated as a token to drop, because an object next to it may be a draft.


_WORDS = r"(?:think|thought|reason|reflect|analysis|scratchpad|monologue|inner_prefix|inner_suffix)"
_GENERIC = rf"[<\[◁][/|\uff5c]{{0,2}}[\w:.=|\u2581-]{{0,24}}{_WORDS}[\w:.=|/\uff5c\u2581-]{{0,40}}[>\]▷]?"
_PAIRS = (
    (r"<\|open\|>think(?:<\|sep\|>)?", r"<\|close\|>think(?:<\|sep\|>)?"),
    (r"<\|channel>|\Athought\n", r"<channel\|>"),
    (r"Here(?: is|'s) my thought process:", r"Here(?: is|'s) my response:"),
    (r"Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]"),
    (r"<\|channel\|>\s*analysis\b|<\|think\|>", r"<\|end\|>"),
    (r"to=self\s*<\|message\|>", r"<\|eom\|>"),
    (r"<\|content_thinking\|>", r"<\|end_message\|>"),
)
_SHARED_CLOSERS = frozenset({"c4", "c5", "c6"})  # of the last three pairs: they also end messages of other kinds
_ANY_MARK = (
    "|".join(rf"(?P<o{at}>{opener})|(?P<c{at}>{closer})" for at, (opener, closer) in enumerate(_PAIRS))
    + rf"|(?P<generic>{_GENERIC})"
)
# The first characters of all marks, for a fast search.
_MARK = re.compile(rf"(?=[<\[◁HhTt])(?:{_ANY_MARK})", re.IGNORECASE)
_MARK_OR_BRACKET = re.compile(rf"(?=[<◁HhTt{BRACKETS}])(?:{_ANY_MARK}|(?P<bracket>[{BRACKETS}]))", re.IGNORECASE)
_CLOSING = re.compile(r"^.[|\uff5c]?/|end|suffix|close", re.IGNORECASE)
_STEM = re.compile(r"think|thought|reason|reflect|analysis|scratchpad|monologue|inner", re.IGNORECASE)


def has_reasoning_mark(text: str, at: int, end: int) -> bool:
    """Return True if `text[at:end]` contains the start or the end of reasoning."""
    return any(mark.lastgroup not in _SHARED_CLOSERS for mark in _MARK.finditer(text, at, end))


def starts_with_mark(text: str, at: int) -> bool:
    """Return True if the start or the end of reasoning is at `at`."""
    mark = _MARK.match(text, at)
    return mark is not None and mark.lastgroup not in _SHARED_CLOSERS


def skip_reasoning(text: str, at: int, attempt: RepairAttempt) -> int:
    """Return the position after the reasoning that precedes the first bracket; raise if it does not end."""
    while (found := _MARK_OR_BRACKET.search(text, at)) is not None:
        if found.lastgroup == "bracket" or found.lastgroup in _SHARED_CLOSERS:
            break
        at = _find_end(text, found) if _is_opener(found) else found.end()  # without an opener, the prompt opened it
        attempt.record_step("reasoning")
    return at


def _find_end(text: str, opener: re.Match[str]) -> int:
    """Return the position after the mark that closes `opener`. Reasoning may quote its own marks, in pairs.

    Raise BrokenJSON if there is none.
    """
    kind, depth = _kind(opener), 1
    for mark in _MARK.finditer(text, opener.end()):
        if _kind(mark) == kind:
            depth += 1 if _is_opener(mark) else -1
            if depth == 0:
                return mark.end()
    raise truncated_error("in the model's reasoning", len(text), "end the reasoning, then write one JSON object")


def _is_opener(mark: re.Match[str]) -> bool:
    if mark.lastgroup == "generic":
        return _CLOSING.search(mark.group()) is None
    return (mark.lastgroup or "").startswith("o")


def _kind(mark: re.Match[str]) -> str:
    """Return the name shared by an opener and its closer."""
    if mark.lastgroup != "generic":
        return (mark.lastgroup or "")[1:]
    stem = _STEM.search(mark.group())
    return f"{mark.group()[0]}{stem.group().casefold() if stem else ''}"


# Surrounding text is dropped only where it cannot be a piece of the document: `"a": 1, "b": {"c": 2}` is not prose
# before an object, nor is `, "b": 2}` prose after one.


_SPACE = r"[\s\ufeff\u200b\u2060]*+"
_STARTS = re.compile(f"[{BRACKETS}{''.join(QUOTES)}]")
_BRACKET = re.compile(f"[{BRACKETS}]")
_TEMPLATE_MARK = (
    r"<[/|\uff5c]?[\w\u2581|\uff5c:.=-]{1,60}>|\[/?[A-Z_]{3,30}\]"  # </tool_call>, <|im_end|>, [TOOL_CALLS]
)
_LEADING = re.compile(rf"{_SPACE}(?:(?P<fence>`{{3,}}[\w+-]*+)|(?P<token>{_TEMPLATE_MARK}))")
_TRAILING = re.compile(rf"{_SPACE}(?:(?P<fence>`{{3,}})|(?P<token>{_TEMPLATE_MARK})|(?P<closer>[}}\]]))")
_LAST_MARK = re.compile(_TEMPLATE_MARK)
_MAX_MARK = 64  # characters; a little more than the longest mark that _TEMPLATE_MARK matches
_OPEN_STRING = re.compile(r"[=:(,]\s*+'[^']*+$")
_CALL = re.compile(r"[A-Za-z_][\w.]*+\(")
_SECOND_BRACE = re.compile(r"\s*+\}")
_DOUBLED_BRACE = re.compile(r"\{\s*+(?=\{)")
_STEPS: dict[str | None, LexicalStep] = {"fence": "code_fence", "token": "tool_token", "closer": "surplus_closer"}

_LEADING_PROSE = re.compile(r"(?![,:=\"'“(])[^{}\[\]]*[\w:.!?>*`\-—]\s*+")
_TRAILING_PROSE = re.compile(r"(?![,:=\"'“”)&|+])[^{}\[\]]*+")
_MEMBER = re.compile(r"[\"'”]\s*+[:=]|(?:^|[\n,])[^\S\n]*+[\w-]++\s*+:\s*+$")  # `key:` is not a sentence


def skip_lead(text: str, attempt: RepairAttempt) -> int:
    """Return the position after fences, tokens and reasoning at the start of the text; record a step for each."""
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
    """Return the position where the value begins; raise BrokenJSON if there is none, or the text before is no prose."""
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
    """Record the steps that drop the text after the value.

    Raise BrokenJSON if it could belong to the value, or the value to reasoning.
    """
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
    if at == end or ("over_escaped" in attempt.steps and text[at:end] == '"'):  # the quote around the escaped text
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
    """Return the position after the second of two closing braces. Raise BrokenJSON if there is only one."""
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
