"""Inspect a tool's function once: whether it is async, which parameters it takes, and how JSON becomes their types.

pydantic converts JSON into models, dates, enums and decimals where the annotations ask for them. Arguments are copied,
so that a call runs with exactly the arguments that were checked and approved. The types that tools declare with
`CallContext[…]` are checked against the dependencies of a run.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from types import NoneType
from typing import Any, get_args

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...schema.inference.signatures import is_context
from ..tools.toolbox import Entry
from .context import CallContext

# Copy the arguments of a call, so that a call runs with exactly the arguments that were checked and approved.


def copy_json(value: JSON) -> Any:
    """Copy the lists and objects of a JSON value. Other values are immutable and shared."""
    if isinstance(value, dict):
        return {name: copy_json(inner) if isinstance(inner, (dict, list)) else inner for name, inner in value.items()}
    if isinstance(value, list):
        return [copy_json(inner) if isinstance(inner, (dict, list)) else inner for inner in value]
    return value


_PLAIN_TYPES = frozenset({str, int, float, bool, list, dict, object, Any, None, type(None), inspect.Parameter.empty})
_IMMUTABLE: frozenset[type] = frozenset({str, int, float, bool, type(None)})  # JSON types that need no copy


class FunctionSignature:
    """The parameters of a function.

    `names` is None if the function takes any argument. `adapters` build types that JSON does not have. `defaults` are
    the values that the function uses for omitted arguments. `integers` are the parameters annotated as `int`.
    `context_names` are the parameters for the context of the call; the other attributes do not contain them.
    `plain_types` are the types of values that need neither conversion nor a copy; None if arguments are always converted.
    """

    __slots__ = ("_fields", "adapters", "context_names", "defaults", "integers", "is_async", "names", "plain_types")

    def __init__(self, function: Callable[..., Any]) -> None:
        """Inspect a function. One that cannot be inspected, or not fully, takes any argument without conversion."""
        self.is_async = _is_async(function)
        self.names: frozenset[str] | None = None
        self.integers: frozenset[str] = frozenset()
        self.context_names: tuple[str, ...] = ()
        self.adapters: dict[str, Any] = {}
        self.defaults: Mapping[str, Any] = {}
        self._fields: dict[str, Any] = {}
        self.plain_types: frozenset[Any] | None = _IMMUTABLE
        with suppress(Exception):  # a function that cannot be inspected takes its arguments as they are
            self._inspect(inspect.signature(function, eval_str=True).parameters)

    def _inspect(self, parameters: Mapping[str, inspect.Parameter]) -> None:
        """Set the fields from the parameters: the context, defaults, adapters, names and the types without conversion.

        A default of `Field(…)` is kept in `_fields`: it is not a value.
        """
        self.context_names = tuple(name for name, parameter in parameters.items() if is_context(parameter.annotation))
        if self.context_names:
            parameters = {name: found for name, found in parameters.items() if name not in self.context_names}
        defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not parameter.empty
        }
        self._fields = {name: default for name, default in defaults.items() if _is_field(default)}
        self.defaults = {name: default for name, default in defaults.items() if name not in self._fields}
        self.adapters = _make_adapters(parameters)
        self.integers = frozenset(name for name, parameter in parameters.items() if parameter.annotation is int)
        if self.adapters or self._fields:
            self.plain_types = None
        elif self.integers:
            self.plain_types = _IMMUTABLE.difference((float,))  # in JSON, 3.0 is an integer
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            self.names = frozenset(parameters)

    def bind_arguments(self, arguments: Object) -> Object:
        """Return the values to call the function with. Raise TypeError for an argument that it does not take.

        The adapters may raise anything that user-defined types raise.
        """
        names = self.names
        if names is not None and not names.issuperset(arguments):
            raise TypeError(f"unknown parameter {', '.join(sorted(arguments.keys() - names))}")
        return self.convert(arguments)

    def add_context(self, values: Object, context: CallContext[Any]) -> Object:
        """Return the values with the context for the parameters that take it; a value of the model is replaced."""
        if not self.context_names:
            return values
        return {**values, **dict.fromkeys(self.context_names, context)}

    def convert(self, arguments: Object) -> Object:
        """Convert like `bind_arguments`, but also pass on arguments that the function does not take.

        The function receives its own lists and objects, and may change them.
        """
        values = {name: self._convert_value(name, copy_json(value)) for name, value in arguments.items()}
        for name, field in self._fields.items():
            if name not in values and not field.is_required():  # Python would pass the FieldInfo itself
                values[name] = field.get_default(call_default_factory=True)
        return values

    def _convert_value(self, name: str, value: Any) -> Any:
        if name in self.adapters:
            return self.adapters[name].validate_python(value)
        if name in self.integers and type(value) is float and value.is_integer():
            return int(value)
        return value


def function_signature(function: Callable[..., Any]) -> FunctionSignature:
    """Return the inspected signature, cached per function."""
    try:
        return _cached_signature(function)
    except TypeError:  # not hashable: inspected every time
        return FunctionSignature(function)


_cached_signature = lru_cache(1024)(FunctionSignature)


def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(function)


def _is_field(default: Any) -> bool:
    """Return True for `Field(5)` as a default. pydantic is not imported: without it there is no such value."""
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(default, fields.FieldInfo)


def _make_adapters(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Build a pydantic adapter for each annotation that is not plain; pydantic is imported only if there is one."""
    typed_annotations = {
        name: parameter.annotation for name, parameter in parameters.items() if not _is_plain(parameter.annotation)
    }
    if not typed_annotations:
        return {}
    from pydantic import TypeAdapter

    return {name: TypeAdapter(annotation) for name, annotation in typed_annotations.items()}


def _is_plain(annotation: Any) -> bool:
    try:
        return annotation in _PLAIN_TYPES
    except TypeError:
        return False


def check_deps(expected: object, deps: object) -> None:
    """Raise ConfigError for dependencies of another type than `expected`."""
    if isinstance(expected, type) and not isinstance(deps, expected):
        given = "none" if deps is None else f"a value of type {type(deps).__name__}"
        name = expected.__name__
        hint = "do not pass deps, or set deps_type" if expected is NoneType else f"pass deps={name}(…)"
        raise ConfigError(f"the agent takes dependencies of type {name}, got {given}", hint=hint)


def check_context_types(deps_type: object, entries: Iterable[Entry]) -> None:
    """Raise ConfigError for a tool whose `CallContext[…]` declares dependencies that the agent does not have.

    Type checkers cannot find this: a tool does not know its agent. Only classes are compared.
    """
    if not isinstance(deps_type, type):
        return
    for entry in entries:
        for declared in _declared_types(entry.function):
            if not _accepts(declared, deps_type):
                given = "no dependencies" if deps_type is NoneType else f"dependencies of type {deps_type.__name__}"
                raise ConfigError(
                    f"the tool {entry.name} takes a CallContext[{declared.__name__}], but the agent has {given}",
                    hint=f"set deps_type={declared.__name__}, or change the annotation of the tool",
                )


def _declared_types(function: Callable[..., Any]) -> Iterator[type]:
    """Yield the classes in the annotations `CallContext[…]` of a function."""
    annotations: dict[str, Any] = getattr(function, "__annotations__", {})
    if any(isinstance(annotation, str) and "[" in annotation for annotation in annotations.values()):
        with suppress(Exception):  # a name that is defined later, or only for type checkers
            annotations = inspect.get_annotations(function, eval_str=True)
    for annotation in annotations.values():
        if is_context(annotation):
            yield from (argument for argument in get_args(annotation) if isinstance(argument, type))


def _accepts(declared: Any, deps_type: type) -> bool:
    if declared is Any or declared is NoneType:  # such a tool does not use them
        return True
    try:
        return issubclass(deps_type, declared)
    except TypeError:  # a protocol that cannot be checked
        return True
