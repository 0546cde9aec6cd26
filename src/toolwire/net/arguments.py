"""Arguments as the function declares them: JSON turned into models, dates, enums where it asks for such."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..ir.pointer import Object

__all__ = ["as_declared"]

_PLAIN = frozenset({str, int, float, bool, list, dict, object, Any, None, type(None), inspect.Parameter.empty})


def as_declared(function: Callable[..., Any], arguments: Object) -> Object:
    """The arguments, coerced where the function's own types are more than JSON's."""
    try:
        adapters = _adapters(function)
    except TypeError:  # not hashable: made anew
        adapters = _adapters.__wrapped__(function)
    if not adapters:
        return arguments
    return {
        name: adapters[name].validate_python(value) if name in adapters else value for name, value in arguments.items()
    }


@lru_cache(1024)
def _adapters(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (TypeError, ValueError, NameError):
        return {}
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
