"""One conversation of a model with the leaderboard's simulated classes, without I/O, and its check.

conversation = SimulatedConversation(entry)
while not conversation.is_over:
    …                             # ask the model: conversation.messages, conversation.tools
    conversation.add(parts)       # its answer: calls are executed, or the next turn begins
check_turns(entry, conversation.turns)

A turn has the user's messages and any number of steps. A step is an answer with calls and their results. The first
answer without calls ends the turn, and so does one with a call that cannot be read, as on the leaderboard. Too many
steps in a turn end the conversation.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, NamedTuple

from ...ir.errors import ConfigError, MissingExtra
from ...ir.parts import Part, Text, ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.tools import Tool
from .entries import PACKAGE, BFCLEntry, BFCLScenario, find_data, offered_tools

# The simulated classes: files, tickets, cars and others in this process's memory.
#
# The wheel executes calls as Python text with `eval`. The text of a model must therefore never reach it as it is:
#
# - a call is written from its parsed arguments, so every argument is a literal, and its names are identifiers
# - a call of anything but a public method of the simulated classes becomes a call that fails, as it does on the
#   leaderboard, where the name is undefined
# - a call whose result has more digits than any computer can compute in time fails, too
#
# The instances are global variables of one of the wheel's modules, by a name that callers choose. Each conversation and
# each check has its own, which are removed at its end.


_UNREADABLE = "Error: the call cannot be read."
_FAILING = "unknown_function()"
# The results of these functions grow with this argument.
_SIZES = {"power": "exponent", "square_root": "precision", "logarithm": "precision", "round_number": "decimal_places"}
_LARGEST_SIZE = 1_000  # without a limit, one call of `power` occupies a processor for hours; the ground truth needs 10
_LARGEST_NUMBER = 10**15  # of the other arguments of these functions; with it, a result has at most 50,000 bits
_numbers = count()
# A precision of the library `mpmath` is global, and conversations run in another thread than checks.
_executing = threading.Lock()


class _Wheel(NamedTuple):
    execute: Callable[..., tuple[list[str], dict[str, Any]]]
    check: Callable[..., dict[str, Any]]
    instances: dict[str, Any]
    classes: dict[str, str]
    step_limit: int
    reveal_prompt: str


@cache
def _load() -> _Wheel:
    """Import the parts of the wheel that simulate and check. They import no SDK of a vendor.

    Raises `MissingExtra` if the wheel or a library of its classes is not installed.
    """
    find_data()
    if find_spec("mpmath") is None:
        raise MissingExtra("the leaderboard's simulated classes require mpmath", hint="pip install mpmath")
    checker = import_module(f"{PACKAGE}.eval_checker.multi_turn_eval.multi_turn_checker")
    execution = import_module(f"{PACKAGE}.eval_checker.multi_turn_eval.multi_turn_utils")
    prompts = import_module(f"{PACKAGE}.constants.default_prompts")
    return _Wheel(
        execution.execute_multi_turn_func_call,
        checker.multi_turn_checker,
        vars(execution),
        import_module(f"{PACKAGE}.constants.executable_backend_config").CLASS_FILE_PATH_MAPPING,
        prompts.MAXIMUM_STEP_LIMIT,
        prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC,
    )


def require_classes() -> None:
    """Raise `MissingExtra` unless the simulated classes can be used, before a run begins."""
    _load()


class SimulatedConversation:
    """The state of a conversation: the history, the offered tools, and the calls of each answer of each turn.

    `finished` is False if an answer reached the token limit, `unparsable` is True if a call could not be read. Close a
    conversation, so that its simulated classes are removed.
    """

    def __init__(self, entry: BFCLEntry) -> None:
        self.entry = entry
        self.messages: list[Message] = []
        self.turns: list[list[tuple[ToolCall, ...]]] = []
        self.text = ""
        self.finished = True
        self.unparsable = False
        self.is_over = False
        self._scenario = scenario_of(entry)
        self._wheel = _load()
        self._name = f"toolwire_{next(_numbers)}"
        self._start_turn()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are offered now: withheld ones are added at the end, from their turn on."""
        withheld = {name: turn for turn, names in self._scenario.withheld.items() for name in names}
        tools = offered_tools(self.entry)
        first = [tool for tool in tools if tool.name not in withheld]
        return (*first, *(tool for tool in tools if withheld.get(tool.name, len(self.turns)) < len(self.turns)))

    def add(self, parts: Sequence[Part], *, finished: bool = True, unparsable: bool = False) -> None:
        """Add an answer of the model: execute its calls, or start the next turn if it has none."""
        calls = tuple(part for part in parts if isinstance(part, ToolCall))
        is_readable = all(call.state == "complete" and call.arguments is not None for call in calls)
        self.text = "".join(part.text for part in parts if isinstance(part, Text))
        self.finished = self.finished and finished
        self.unparsable = self.unparsable or unparsable or not is_readable
        if parts:
            self.messages.append(Message("assistant", tuple(parts)))
        if calls and is_readable:
            self.turns[-1].append(calls)
            self._add_results(calls, self._execute(calls))
            self.is_over = len(self.turns[-1]) > self._wheel.step_limit
            return
        if calls:
            self._add_results(calls, [_UNREADABLE] * len(calls))  # a wire refuses a call without a result
        if len(self.turns) == len(self.entry.turns):
            self.is_over = True
        else:
            self._start_turn()

    def close(self) -> None:
        """Remove the simulated classes."""
        _remove_instances(self._wheel, self._name)

    def _start_turn(self) -> None:
        # a turn without messages offers functions that were withheld
        revealed = (Message("user", (Text(self._wheel.reveal_prompt),)),)
        self.messages += self.entry.turns[len(self.turns)] or revealed
        self.turns.append([])

    def _execute(self, calls: Sequence[ToolCall]) -> list[str]:
        """Execute the calls of one answer in order, and return the text of each result."""
        with _executing:
            results, _ = self._wheel.execute(
                func_call_list=[_call_text(call, self._scenario) for call in calls],
                initial_config=self._scenario.initial_config,
                involved_classes=list(self._scenario.classes),
                model_name=self._name,
                test_entry_id=self.entry.id,
                long_context=self.entry.category == "multi_turn_long_context",
            )
        return results

    def _add_results(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> None:
        results = [ToolResult(call.id, call.name, (Text(text),)) for call, text in zip(calls, texts, strict=True)]
        self.messages.append(Message("user", tuple(results)))


def check_turns(entry: BFCLEntry, turns: Sequence[Sequence[Sequence[ToolCall]]]) -> Object:
    """Execute the calls of all turns and the ground truth, and return the result of the leaderboard's checker.

    After each turn, both must have led to the same state, and the results of the ground truth must be among the model's.
    `turns` has the answers with calls of each turn.
    """
    scenario = scenario_of(entry)
    wheel = _load()
    with _executing, _temporary_name(wheel) as name:
        return wheel.check(
            [[[_call_text(call, scenario) for call in step] for step in turn] for turn in turns],
            [list(turn) for turn in scenario.truth],
            {
                "id": entry.id,
                "initial_config": scenario.initial_config,
                "involved_classes": list(scenario.classes),
            },
            entry.category,
            name,
        )


def scenario_of(entry: BFCLEntry) -> BFCLScenario:
    """Return the scenario of a multi-turn entry; raise ConfigError for another entry."""
    if entry.scenario is None:
        raise ConfigError(f"the category {entry.category} has no simulated classes")
    return entry.scenario


@contextmanager
def _temporary_name(wheel: _Wheel) -> Iterator[str]:
    name = f"toolwire_{next(_numbers)}"
    try:
        yield name
    finally:
        _remove_instances(wheel, name)


def _remove_instances(wheel: _Wheel, name: str) -> None:
    for key in [key for key in wheel.instances if key.startswith(f"{name}_")]:
        del wheel.instances[key]


def _call_text(call: ToolCall, scenario: BFCLScenario) -> str:
    """Return a call as the Python text that the wheel evaluates, or a call that fails."""
    arguments = call.arguments or {}
    if call.name not in _methods(scenario.classes) or not all(map(str.isidentifier, arguments)):
        return _FAILING
    if call.name in _SIZES and _is_too_large(arguments, _SIZES[call.name]):
        return _FAILING
    return f"{call.name}({','.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _is_too_large(arguments: Object, size: str) -> bool:
    numbers = {name: abs(value) for name, value in arguments.items() if isinstance(value, (int, float))}
    return numbers.get(size, 0) > _LARGEST_SIZE or any(number > _LARGEST_NUMBER for number in numbers.values())


@cache
def _methods(classes: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the public methods of the classes: all that the leaderboard would execute."""
    found: set[str] = set()
    for name in classes:
        kind = getattr(import_module(_load().classes[name]), name)
        found |= {method for method, _ in inspect.getmembers(kind, inspect.isfunction) if not method.startswith("_")}
    return frozenset(found)
