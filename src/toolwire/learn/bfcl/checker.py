"""The leaderboard's own check of calls: a comparison with the ground truth by function, types and values.

Its module imports the SDK of every vendor for a table of models. That table matters only for names with dots, which are
mapped back here before the check, so the import sees an empty one.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.value import Value
from .entries import CALL_CATEGORIES, BFCLEntry
from .wheel import PACKAGE, find_data

__all__ = ["CheckResult", "check_calls"]

_TABLE = f"{PACKAGE}.constants.model_config"
_MODEL = "toolwire"
_importing = Lock()


class CheckResult(Value, frozen=True):
    """The result of the leaderboard's check: `error_type` and `message` are its own, empty for a right answer."""

    valid: bool
    error_type: str = ""
    message: str = ""


def check_calls(entry: BFCLEntry, calls: Iterable[ToolCall]) -> CheckResult:
    """Check the calls of a model for an entry with expected calls in one turn.

    Functions of Java and JavaScript expect every argument as text, a literal of that language.
    """
    if entry.category not in CALL_CATEGORIES:
        raise ConfigError(f"the category {entry.category} has no check of calls")
    check, languages = _load()
    output = [{call.name: call.arguments or {}} for call in calls]
    found = check(list(entry.functions), output, list(entry.answers), languages[entry.language], entry.category, _MODEL)
    if found["valid"]:
        return CheckResult(True)
    return CheckResult(False, str(found.get("error_type", "")), "; ".join(map(str, found.get("error", ()))))


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
