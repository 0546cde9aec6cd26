"""What a function says of itself, asked once: whether it is awaited, and what it takes.

JSON is turned into models, dates and enums where the function asks for such.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from ..ir.pointer import Object

__all__ = ["Signature", "signature"]

_PLAIN = frozenset({str, int, float, bool, list, dict, object, Any, None, type(None), inspect.Parameter.empty})


class Signature:
    """`names` is None where the function takes any. `adapters` make values of types that JSON does not have."""

    __slots__ = ("adapters", "integers", "is_async", "names")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.is_async = _is_async(function)
        self.names: frozenset[str] | None = None
        self.integers: frozenset[str] = frozenset()
        self.adapters: dict[str, Any] = {}
        with suppress(Exception):  # a function that cannot be asked takes what it is given
            self._ask(inspect.signature(function, eval_str=True).parameters)

    def _ask(self, parameters: Mapping[str, inspect.Parameter]) -> None:
        self.adapters = _adapters(parameters)
        self.integers = frozenset(name for name, one in parameters.items() if one.annotation is int)
        if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            self.names = frozenset(parameters)

    def fit(self, arguments: Object) -> Object:
        """The arguments, coerced where the function's own types are more than JSON's; TypeError for what it does not take."""
        names = self.names
        if names is not None and not names.issuperset(arguments):
            raise TypeError(f"there is no parameter {', '.join(sorted(arguments.keys() - names))}")
        return arguments if self.is_plain(arguments) else self._coerced(arguments)

    def is_plain(self, arguments: Object) -> bool:
        """Whether the function takes the values as they are. For JSON, 3.0 is an integer; for Python it is not."""
        if self.adapters:
            return False
        if self.integers:
            for value in arguments.values():
                if type(value) is float:
                    return False
        return True

    def _coerced(self, arguments: Object) -> Object:
        return {name: self._value(name, value) for name, value in arguments.items()}

    def _value(self, name: str, value: Any) -> Any:
        if name in self.adapters:
            return self.adapters[name].validate_python(value)
        if name in self.integers and type(value) is float and value.is_integer():
            return int(value)
        return value


def signature(function: Callable[..., Any]) -> Signature:
    try:
        return _cached(function)
    except TypeError:  # not hashable: asked anew
        return Signature(function)


_cached = lru_cache(1024)(Signature)


def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(function)


def _adapters(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    asked = {name: one.annotation for name, one in parameters.items() if not _is_plain(one.annotation)}
    if not asked:
        return {}
    from pydantic import TypeAdapter

    return {name: TypeAdapter(annotation) for name, annotation in asked.items()}


def _is_plain(annotation: Any) -> bool:
    try:
        return annotation in _PLAIN
    except TypeError:
        return False
