"""Classify the answer of a model to an entry: right, or the first of several kinds of error that applies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from ...ir.errors import SchemaError
from ...ir.parts import ToolCall
from ...ir.tools import Tool
from ...ir.value import Value
from ...schema.validation.validator import validator
from .checker import check_calls
from .entries import RELEVANCE_CATEGORIES, BFCLEntry
from .offered_tools import offered_tools

__all__ = ["OUTCOMES", "BFCLAnswer", "BFCLOutcome", "EvaluatedAnswer", "classify_answer", "is_valid_call"]

BFCLOutcome: TypeAlias = Literal[
    "right",
    "no_call",
    "unparsable",
    "invalid",
    "wrong_function",
    "wrong_arguments",
    "unexpected_call",
    "unfinished",
    "upstream_error",
]
"""right            the leaderboard's checker accepts the calls, or no call is right and there is none
no_call          text instead of a call
unparsable       text that begins as a call and cannot be read
invalid          an unknown function, or arguments that do not match the schema
wrong_function   valid calls of other functions, or another number of calls
wrong_arguments  valid calls of the right functions with other values
unexpected_call  a call where none is right
unfinished       the answer reached the token limit
upstream_error   the model could not be asked, or its answer breaks the protocol
"""
OUTCOMES: tuple[BFCLOutcome, ...] = BFCLOutcome.__args__  # type: ignore[attr-defined]


class BFCLAnswer(Value, frozen=True):
    """The answer of a model: its calls, its text, and `error` if it could not be asked.

    `unparsable`: the text contains a call that cannot be read.
    """

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    finished: bool = True
    unparsable: bool = False
    error: str = ""


class EvaluatedAnswer(Value, frozen=True):
    """One line of the results. `valid`: the answer has calls, and all match their schemas."""

    id: str
    category: str
    outcome: BFCLOutcome
    detail: str = ""
    valid: bool = False
    finished: bool = True
    calls: tuple[ToolCall, ...] = ()
    text: str = ""


def classify_answer(entry: BFCLEntry, answer: BFCLAnswer) -> EvaluatedAnswer:
    """Compare an answer with the ground truth of its entry."""
    tools = offered_tools(entry)
    valid = bool(answer.calls) and all(is_valid_call(call, tools) for call in answer.calls)
    relevance = entry.category in RELEVANCE_CATEGORIES
    outcome, detail = _judge_relevance(entry, answer) if relevance else _judge_calls(entry, answer, valid=valid)
    return EvaluatedAnswer(
        entry.id,
        entry.category,
        outcome,
        detail,
        valid,
        answer.finished and not answer.error,
        answer.calls,
        answer.text,
    )


def is_valid_call(call: ToolCall, tools: Iterable[Tool]) -> bool:
    """Return whether a call is complete, of an offered tool, and matches its schema."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None or call.state != "complete" or call.arguments is None:
        return False
    try:
        return tool.input_schema is None or validator(tool.input_schema).accepts(call.arguments)
    except SchemaError:
        return True  # a schema that no validator accepts refuses nothing


def _judge_relevance(entry: BFCLEntry, answer: BFCLAnswer) -> tuple[BFCLOutcome, str]:
    """Judge by the presence of a complete call alone, as the leaderboard does."""
    if answer.error:
        return "upstream_error", answer.error
    called = any(call.state == "complete" for call in answer.calls)
    if entry.category == "live_relevance":
        return ("right", "") if called else _absent_call(answer)
    return ("unexpected_call", ", ".join(call.name for call in answer.calls)) if called else ("right", "")


def _judge_calls(entry: BFCLEntry, answer: BFCLAnswer, *, valid: bool) -> tuple[BFCLOutcome, str]:
    if answer.error:
        return "upstream_error", answer.error
    if not answer.finished or not answer.calls:
        return _absent_call(answer)
    if any(call.state != "complete" or call.arguments is None for call in answer.calls):
        return "unparsable", "a call cannot be read"
    checked = check_calls(entry, answer.calls)
    if checked.valid:
        return "right", ""
    if not valid:
        return "invalid", checked.message
    if _names(answer.calls) != _names(entry.all_calls):
        return "wrong_function", checked.message
    return "wrong_arguments", checked.message


def _absent_call(answer: BFCLAnswer) -> tuple[BFCLOutcome, str]:
    if not answer.finished:
        return "unfinished", "the answer reached the token limit"
    return ("unparsable", "a call cannot be read") if answer.unparsable or answer.calls else ("no_call", "")


def _names(calls: Sequence[ToolCall]) -> Counter[str]:
    return Counter(call.name for call in calls)
