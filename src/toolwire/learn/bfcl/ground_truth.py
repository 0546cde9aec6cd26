"""Expected calls, from the two forms of the leaderboard's ground truth.

A single-turn entry lists the alternatives of every argument; "" among them means that the argument may be omitted.
A multi-turn entry has Python calls as text.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.pointer import JSON, Object

__all__ = ["choose_call", "parse_call"]

_LONGEST_CALL = 100_000


def choose_call(alternatives: Object, parameters: Mapping[str, Object], call_id: str) -> ToolCall:
    """Return one call that the ground truth accepts: the first alternative of every argument.

    `alternatives` maps the function's name to the alternatives of its arguments, `parameters` the names of functions to
    their declared parameters. An optional argument is written if it is declared, because a call with more arguments
    tests more.
    """
    ((name, arguments),) = alternatives.items()
    declared = parameters.get(name) or {}
    chosen: Object = {}
    for parameter, values in arguments.items():
        given = [value for value in values if value != ""]
        required = parameter in (declared.get("required") or ())
        if given and ("" not in values or parameter in (declared.get("properties") or {})):
            chosen[parameter] = _without_alternatives(given[0])
        elif not given and required:
            chosen[parameter] = ""
    return ToolCall(call_id, name, chosen)


def _without_alternatives(value: JSON) -> JSON:
    """Choose the first alternatives inside an object, or inside the objects of a list. Deeper ones have none."""
    if isinstance(value, dict):
        return _first_of_each(value)
    if isinstance(value, list):
        return [_first_of_each(one) if isinstance(one, dict) else one for one in value]
    return value


def _first_of_each(alternatives: Object) -> Object:
    chosen: Object = {}
    for key, values in alternatives.items():
        if not isinstance(values, list):
            chosen[key] = values
        elif given := [value for value in values if value != ""]:
            chosen[key] = given[0]
    return chosen


def parse_call(text: str, parameters: Mapping[str, Sequence[str]], call_id: str) -> ToolCall:
    """Parse `name(1, key="text")` without evaluating it; arguments must be literals.

    `parameters` are the parameter names of each function, in order, for positional arguments.
    """
    if len(text) > _LONGEST_CALL:
        raise ConfigError(f"a call must have at most {_LONGEST_CALL:,} characters, got {len(text):,}")
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"not a Python call: {text[:200]!r}", hint=str(error)) from None
    if not isinstance(call, ast.Call):
        raise ConfigError(f"not a Python call: {text[:200]!r}")
    name = ast.unparse(call.func)
    names = parameters.get(name)
    if names is None:
        raise ConfigError(f"the call {text[:200]!r} is of an unknown function {name!r}")
    if len(call.args) > len(names):
        raise ConfigError(f"the call {text[:200]!r} has {len(call.args)} positional arguments, {name} {len(names)}")
    arguments = dict(zip(names, (_literal(one, text) for one in call.args), strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ConfigError(f"the call {text[:200]!r} unpacks or repeats an argument")
        arguments[keyword.arg] = _literal(keyword.value, text)
    return ToolCall(call_id, name, arguments)


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return _as_json(ast.literal_eval(node))
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ConfigError(f"an argument of {text[:200]!r} is not a JSON value") from None


def _as_json(value: Any) -> JSON:
    """Return a literal as JSON: tuples become lists. Raise TypeError for a value that JSON does not have."""
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one) for key, one in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(type(value).__name__)
