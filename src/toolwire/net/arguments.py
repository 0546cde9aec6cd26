"""Arguments as the function declares them: JSON turned into models, dates, enums where it asks for such."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..ir.pointer import Object

__all__ = ["as_declared"]

_PLAIN = frozenset({str, int, float, bool, list, dict, object, Any, None, type(None), inspect.Parameter.empty})


def as_declared(function: Callable[..., Any], arguments: Object) -> Object:
    """The arguments, coerced where the function's own types are more than JSON's; TypeError for what it does not take."""
    try:
        declared = _declared(function)
    except TypeError:  # not hashable: made anew
        declared = _declared.__wrapped__(function)
    if declared.names is not None and not arguments.keys() <= declared.names:
        unknown = ", ".join(sorted(arguments.keys() - declared.names))
        raise TypeError(f"there is no parameter {unknown}")
    if not declared.adapters and not declared.integers:
        return arguments
    return {name: declared.value(name, value) for name, value in arguments.items()}


class _Declared:
    """What a function says of its parameters. `names` is None where it takes any."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter]) -> None:
        open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        self.names = None if open_ended else frozenset(parameters)
        self.integers = frozenset(name for name, one in parameters.items() if one.annotation is int)
        asked = {name: one.annotation for name, one in parameters.items() if not _is_plain(one.annotation)}
        self.adapters: dict[str, Any] = {}
        if asked:
            from pydantic import TypeAdapter

            self.adapters = {name: TypeAdapter(annotation) for name, annotation in asked.items()}

    def value(self, name: str, value: Any) -> Any:
        if name in self.adapters:
            return self.adapters[name].validate_python(value)
        if name in self.integers and type(value) is float and value.is_integer():
            return int(value)  # for JSON, 3.0 is an integer
        return value


@lru_cache(1024)
def _declared(function: Callable[..., Any]) -> _Declared:
    try:
        return _Declared(inspect.signature(function, eval_str=True).parameters)
    except Exception:  # noqa: BLE001  # a function that cannot be asked takes what it is given
        return _Declared({"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)})


def _is_plain(annotation: Any) -> bool:
    try:
        return annotation in _PLAIN
    except TypeError:
        return False
