"""The leaderboard's entries as canonical values: messages, tools and expected calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ...ir.errors import ConfigError
from ...ir.parts import Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.tools import Tool
from ...ir.value import Value
from .ground_truth import choose_call, parse_call
from .parameter_types import parameter_schema
from .wheel import answer_rows, class_rows, entry_rows, find_data

__all__ = [
    "BFCL_CATEGORIES",
    "CALL_CATEGORIES",
    "MULTI_TURN_CATEGORIES",
    "RELEVANCE_CATEGORIES",
    "BFCLEntry",
    "function_tool",
    "read_bfcl",
]

CALL_CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "simple_java",
    "simple_javascript",
)
"""One turn, one or several expected calls."""
RELEVANCE_CATEGORIES = ("irrelevance", "live_irrelevance", "live_relevance")
"""One turn; the model should call nothing, or, for `live_relevance`, anything."""
MULTI_TURN_CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
"""Several turns with the calls of each."""
BFCL_CATEGORIES = CALL_CATEGORIES + RELEVANCE_CATEGORIES + MULTI_TURN_CATEGORIES
"""All categories that `read_bfcl` reads. Those that need the network or a stored memory are absent."""


class BFCLEntry(Value, frozen=True):
    """One entry: the messages of each turn, the tools, and the expected calls of each turn.

    `calls` are one accepted choice; `answers` is the ground truth with all alternatives and `functions` the
    declarations in the leaderboard's types, both for its checker.
    """

    id: str
    category: str
    turns: tuple[tuple[Message, ...], ...]
    tools: tuple[Tool, ...]
    calls: tuple[tuple[ToolCall, ...], ...] = ()
    answers: tuple[Object, ...] = ()
    functions: tuple[Object, ...] = ()

    @property
    def language(self) -> Literal["python", "java", "javascript"]:
        """The programming language of the functions' types."""
        if self.category == "simple_java":
            return "java"
        return "javascript" if self.category == "simple_javascript" else "python"

    @property
    def all_calls(self) -> list[ToolCall]:
        """The expected calls of all turns."""
        return [call for turn in self.calls for call in turn]


def read_bfcl(categories: Iterable[str] = CALL_CATEGORIES, *, folder: Path | None = None) -> Iterator[BFCLEntry]:
    """Yield the entries of `categories`, in the order of their files.

    The data are in the wheel `bfcl-eval`, which is installed without its dependencies; `folder` is another copy of its
    folder `data`.
    """
    source = folder or find_data()
    for category in categories:
        if category not in BFCL_CATEGORIES:
            hint = f"use one of {', '.join(BFCL_CATEGORIES)}"
            raise ConfigError(f"unknown category of the leaderboard {category!r}", hint=hint)
        truths = {row["id"]: row["ground_truth"] for row in answer_rows(category, source)}
        for row in entry_rows(category, source):
            truth = truths.get(row["id"], [])
            if category in MULTI_TURN_CATEGORIES:
                yield _multi_turn_entry(row, category, truth, source)
            else:
                yield _single_turn_entry(row, category, truth)


def function_tool(function: Object) -> Tool:
    """Return a function's declaration as a canonical tool. The result schema is omitted: models do not see it."""
    return Tool(function["name"], function.get("description"), parameter_schema(function["parameters"]))


def _single_turn_entry(row: Object, category: str, truth: list[Object]) -> BFCLEntry:
    functions = row["function"]
    parameters = {one["name"]: one["parameters"] for one in functions}
    calls = tuple(choose_call(one, parameters, f"call_{number}") for number, one in enumerate(truth))
    return BFCLEntry(
        row["id"],
        category,
        _turns(row["question"]),
        tuple(map(function_tool, functions)),
        (calls,),
        tuple(truth),
        tuple(functions),
    )


def _multi_turn_entry(row: Object, category: str, truth: list[list[str]], source: Path) -> BFCLEntry:
    functions = [one for name in row["involved_classes"] for one in _class_functions(name, source)]
    parameters = {one["name"]: list(one["parameters"]["properties"]) for one in functions}
    calls = []
    number = 0
    for turn in truth:
        calls.append(tuple(parse_call(text, parameters, f"call_{number + at}") for at, text in enumerate(turn)))
        number += len(turn)
    tools = tuple(tool for name in row["involved_classes"] for tool in _class_tools(name, source))
    return BFCLEntry(row["id"], category, _turns(row["question"]), tools, tuple(calls), (), tuple(functions))


@cache
def _class_functions(name: str, source: Path) -> tuple[Object, ...]:
    return tuple(class_rows(name, source))


@cache
def _class_tools(name: str, source: Path) -> tuple[Tool, ...]:
    return tuple(map(function_tool, _class_functions(name, source)))


def _turns(question: list[list[Any]]) -> tuple[tuple[Message, ...], ...]:
    return tuple(tuple(Message(one["role"], (Text(one["content"]),)) for one in turn) for turn in question)
