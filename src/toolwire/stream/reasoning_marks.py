"""Skip a model's reasoning before the JSON; refuse JSON inside reasoning that does not end.

Only the marks matter here, not the formats that use them: `<think>`, `<seed:think>`, `[THINK]`, `<|START_THINKING|>`,
the channels of harmony, Gemma and Muse, and the fixed sentences of Granite and Apriel. A mark without its counterpart is
never treated as a token to drop, because an object next to it may be a draft.
"""

from __future__ import annotations

import re

from .punctuation import BRACKETS
from .repair_attempt import RepairAttempt, truncated_error

__all__ = ["has_reasoning_mark", "skip_reasoning", "starts_with_mark"]

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
    """Return the position after the mark that closes `opener`. Reasoning may quote its own marks, in pairs."""
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
