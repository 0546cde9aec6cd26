'''Make a function a tool: its declaration, and the options of its execution.

@toolwire.tool(effect="read", timeout=5, retries=3)
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Current weather for a city."""
'''

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, get_args, overload

from msgspec.structs import asdict, replace

from ..ir.errors import ConfigError, SchemaError
from ..ir.pointer import Object
from ..ir.tools import Effect, Tool
from ..schema.inference.tools import infer_tool
from .options import Options, OptionValues, require_option_names

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")


def _no_function(*_: Any, **__: Any) -> Any:
    raise SchemaError("this tool has no function", hint="make tools of functions with the decorator toolwire.tool")


class FunctionTool(Tool, Generic[P, R], frozen=True):
    """A Tool that can still be called like its function. A toolbox runs it with `options`."""

    function: Callable[P, R] = _no_function
    options: Options = Options()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        """Bind a tool that was made from a method like the method."""
        if instance is None or not inspect.isfunction(self.function):
            return self
        return replace(self, function=self.function.__get__(instance, owner))


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
    examples: Iterable[Object] = (),
    **options: Unpack[OptionValues],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
    examples: Iterable[Object] = (),
    **options: Unpack[OptionValues],
) -> FunctionTool[..., Any] | Callable[[Callable[..., Any]], FunctionTool[..., Any]]:
    """Make a function a tool; with arguments, return a decorator.

    `effect` is the side effect of a call: "pure", "read", "idempotent" or, by default, "write". `examples` are
    arguments that fit the schema. The other keyword arguments are the fields of `toolwire.run.Options`: timeout,
    retries, resource, rate, cache, ttl, approve, transient, preview, untrusted, isolation, key, reconcile,
    output_limit, max_parallel and first_argument.
    """
    if effect not in get_args(Effect):
        raise ConfigError(f"unknown effect {effect!r}", hint=f"use one of {', '.join(get_args(Effect))}")
    execution = _make_options(effect, options)

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        inferred = infer_tool(
            function, name=name, description=description, strict=strict, effect=effect, examples=examples
        )
        return FunctionTool(**asdict(inferred), function=function, options=execution)

    return make if function is None else make(function)


def _make_options(effect: Effect, values: OptionValues) -> Options:
    """Check the options when a tool is declared; ConfigError for an unknown one, or one that does not apply to the effect."""
    require_option_names(values)
    for name in ("cache", "first_argument"):
        if values.get(name) and effect not in ("pure", "read"):
            raise ConfigError(f"{name} applies to pure and read tools only, not to effect={effect!r}")
    return Options(**values)
