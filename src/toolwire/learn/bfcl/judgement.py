"""Classify the answer of a model to an entry: right, or the first of several kinds of error that applies.

Calls are compared with the ground truth by the leaderboard's own checker: function, types and values.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, TypeAlias

from ...ir.errors import ConfigError, SchemaError
from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...schema.validation.validator import validator
from .conversations import check_turns, scenario_of
from .entries import CALL_CATEGORIES, PACKAGE, RELEVANCE_CATEGORIES, BFCLEntry, find_data, offered_tools

# The leaderboard's own check of calls: a comparison with the ground truth by function, types and values.
#
# Its module imports the SDK of every vendor for a table of models. That table matters only for names with dots, which
# are mapped back here before the check, so the import sees an empty one.


_TABLE = f"{PACKAGE}.constants.model_config"
_MODEL = "toolwire"
_LONGEST_DETAIL = 500  # characters; a missing result can be a whole file of a simulated class
_importing = Lock()


class CheckResult(Value, frozen=True):
    """The result of the leaderboard's check: `error_type` and `message` are its own, empty for a right answer."""

    valid: bool
    error_type: str = ""
    message: str = ""


def check_calls(entry: BFCLEntry, calls: Iterable[ToolCall]) -> CheckResult:
    """Check the calls of a model for an entry with expected calls in one turn, with the leaderboard's own checker.

    Functions of Java and JavaScript expect every argument as text, a literal of that language. Raises `ConfigError` for
    a category without expected calls.
    """
    if entry.category not in CALL_CATEGORIES:
        raise ConfigError(f"the category {entry.category} has no check of calls")
    check, languages = _load()
    output = [{call.name: call.arguments or {}} for call in calls]
    found = check(list(entry.functions), output, list(entry.answers), languages[entry.language], entry.category, _MODEL)
    if found["valid"]:
        return CheckResult(valid=True)
    return CheckResult(False, str(found.get("error_type", "")), "; ".join(map(str, found.get("error", ()))))


def check_conversation(entry: BFCLEntry, turns: Sequence[Sequence[Sequence[ToolCall]]]) -> CheckResult:
    """Check the calls of all turns of a multi-turn entry with the leaderboard's own checker, on its simulated classes.

    `turns` has the answers with calls of each turn. A conversation that was ended before its last turn is wrong. Raises
    `ConfigError` for an entry with one turn.
    """
    expected = len(scenario_of(entry).truth)
    if len(turns) != expected:
        message = f"the conversation ended in turn {len(turns)} of {expected}"
        return CheckResult(False, "multi_turn:force_terminated", message)
    found = check_turns(entry, turns)
    if found["valid"]:
        return CheckResult(valid=True)
    return CheckResult(False, str(found["error_type"]), _explain(found))


def _explain(found: Object) -> str:
    """Return the checker's message with the attributes that differ, or the results that are missing."""
    message, details = str(found["error_message"]), found.get("details") or {}
    differing = [*details.get("differences", ()), *details.get("missing_items", ())]
    return f"{message} {', '.join(map(str, differing))}"[:_LONGEST_DETAIL] if differing else message


@cache
def _load() -> tuple[Callable[..., dict[str, Any]], dict[str, Any]]:
    """Import the checker with an empty table of models, and restore `sys.modules`.

    The modules of the checker stay out of `sys.modules`, so that a program that uses the wheel itself imports them
    with the true table.
    """
    find_data()
    with _importing:
        before = {name: module for name, module in sys.modules.items() if _is_of_wheel(name)}
        for name in before:
            del sys.modules[name]
        table = ModuleType(_TABLE)
        table.MODEL_CONFIG_MAPPING = defaultdict(  # type: ignore[attr-defined]
            lambda: SimpleNamespace(underscore_to_dot=False)
        )
        sys.modules[_TABLE] = table
        try:
            checker = import_module(f"{PACKAGE}.eval_checker.ast_eval.ast_checker")
            languages = import_module(f"{PACKAGE}.constants.enums").Language
        finally:
            for name in [name for name in sys.modules if _is_of_wheel(name)]:
                del sys.modules[name]
            sys.modules.update(before)
    return checker.ast_checker, {one.value: one for one in languages}


def _is_of_wheel(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


BFCLOutcome: TypeAlias = Literal[
    "right",
    "no_call",
    "unparsable",
    "invalid",
    "wrong_function",
    "wrong_arguments",
    "unexpected_call",
    "wrong_state",
    "missing_result",
    "too_many_steps",
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
wrong_state      the calls of a conversation lead to another state of the simulated classes
missing_result   the state is right, but a call was omitted whose result the user asked for
too_many_steps   a turn of a conversation was ended at the leaderboard's limit of steps
unfinished       the answer reached the token limit
upstream_error   the model could not be asked, or its answer breaks the protocol
"""
OUTCOMES: tuple[BFCLOutcome, ...] = BFCLOutcome.__args__  # type: ignore[attr-defined]


class BFCLAnswer(Value, frozen=True):
    """The answer of a model: its calls, its text, and `error` if it could not be asked.

    `unparsable`: the text contains a call that cannot be read. A conversation has no `calls`, but `turns`: the calls of
    each answer of each turn.
    """

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    finished: bool = True
    unparsable: bool = False
    error: str = ""
    turns: tuple[tuple[tuple[ToolCall, ...], ...], ...] = ()

    @property
    def all_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the answer, or of all answers of a conversation."""
        return self.calls or tuple(call for turn in self.turns for step in turn for call in step)


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
    turns: tuple[tuple[tuple[ToolCall, ...], ...], ...] = ()


def classify_answer(entry: BFCLEntry, answer: BFCLAnswer) -> EvaluatedAnswer:
    """Compare an answer with the ground truth of its entry."""
    tools = offered_tools(entry)
    valid = bool(answer.all_calls) and all(is_valid_call(call, tools) for call in answer.all_calls)
    if entry.scenario is not None:
        outcome, detail = _judge_conversation(entry, answer)
    elif entry.category in RELEVANCE_CATEGORIES:
        outcome, detail = _judge_relevance(entry, answer)
    else:
        outcome, detail = _judge_calls(entry, answer, valid=valid)
    return EvaluatedAnswer(
        entry.id,
        entry.category,
        outcome,
        detail,
        valid,
        answer.finished and not answer.error,
        answer.calls,
        answer.text,
        answer.turns,
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
    """Return the outcome and its detail, by the presence of a complete call alone, as the leaderboard does."""
    if answer.error:
        return "upstream_error", answer.error
    called = any(call.state == "complete" for call in answer.calls)
    if entry.category == "live_relevance":
        return ("right", "") if called else _absent_call(answer)
    return ("unexpected_call", ", ".join(call.name for call in answer.calls)) if called else ("right", "")


def _judge_calls(entry: BFCLEntry, answer: BFCLAnswer, *, valid: bool) -> tuple[BFCLOutcome, str]:
    """Return the outcome of an answer and its reason.

    `valid`: all calls match the schemas of their tools. The order of the tests is the order of the causes: no answer,
    no call, unparsable, then wrong.
    """
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


# Outcomes of conversations by the error type of the leaderboard's checker.
_CONVERSATION_OUTCOMES: dict[str, BFCLOutcome] = {
    "multi_turn:empty_turn_model_response": "no_call",
    "multi_turn:instance_state_mismatch": "wrong_state",
    "multi_turn:execution_response_mismatch": "missing_result",
    "multi_turn:force_terminated": "too_many_steps",
}


def _judge_conversation(entry: BFCLEntry, answer: BFCLAnswer) -> tuple[BFCLOutcome, str]:
    """Return the outcome of a conversation and its reason.

    An answer at the token limit or an unreadable call only ends its turn, so the conversation may still be right. If it
    is not, that is the cause.
    """
    if answer.error:
        return "upstream_error", answer.error
    checked = check_conversation(entry, answer.turns)
    if checked.valid:
        return "right", ""
    if not answer.finished or answer.unparsable:
        return _absent_call(answer)
    return _CONVERSATION_OUTCOMES[checked.error_type], checked.message


def _absent_call(answer: BFCLAnswer) -> tuple[BFCLOutcome, str]:
    if not answer.finished:
        return "unfinished", "the answer reached the token limit"
    return ("unparsable", "a call cannot be read") if answer.unparsable or answer.calls else ("no_call", "")


def _names(calls: Sequence[ToolCall]) -> Counter[str]:
    return Counter(call.name for call in calls)
