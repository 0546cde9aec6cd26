'''A Python function as a tool: its name, its docstring and its type hints say everything.

    @toolwire.tool
    def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
        """Current weather for a city."""

pydantic makes the schema; it is imported only here, when the first tool is made.
'''

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

from ..ir.errors import SchemaError
from ..ir.pointer import Object
from ..ir.tools import Effect, Tool

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R], frozen=True):
    """A Tool that still is its function: call it as before."""

    function: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self.function is not None
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
) -> FunctionTool[..., Any] | Callable[[Callable[..., Any]], FunctionTool[..., Any]]:
    """Makes a function a tool; with arguments, a decorator that does.

    `effect` says what a call does to the world: "pure", "read", "idempotent" or, if nothing is said, "write".
    """

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(
            name=name or function.__name__,
            description=description or inspect.getdoc(function),
            input_schema=_parameters(function),
            strict=strict,
            effect=effect,
            function=function,
        )

    return make if function is None else make(function)


def _parameters(function: Callable[..., Any]) -> Object:
    from pydantic import ConfigDict, Field, PydanticUserError, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

    fields: dict[str, Any] = {}
    try:
        hints = inspect.signature(function, eval_str=True).parameters
    except (NameError, ValueError, TypeError) as error:
        raise SchemaError(f"cannot read the signature of {function.__name__}: {error}") from error
    for parameter in hints.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            hint = "a model gives arguments by name: give every parameter a name of its own"
            raise SchemaError(f"{function.__name__} has a parameter {parameter} that has no name", hint=hint)
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        # pydantic reserves some names for itself; the schema shows the alias
        fields[f"argument_{len(fields)}"] = (annotation, Field(default, alias=parameter.name))
    try:
        model = create_model(function.__name__, __config__=ConfigDict(arbitrary_types_allowed=False), **fields)
        schema: Object = model.model_json_schema(by_alias=True)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError) as error:
        raise SchemaError(f"no JSON Schema for the parameters of {function.__name__}: {error}") from error
    return _without_titles(schema)


def _without_titles(schema: Object) -> Object:
    """pydantic titles every property after its name, which tells a model nothing and costs tokens."""
    properties = schema.get("properties", {})
    for definition in (schema, *schema.get("$defs", {}).values()):
        definition.pop("title", None)
    for container in (properties, *(d.get("properties", {}) for d in schema.get("$defs", {}).values())):
        for field in container.values():
            field.pop("title", None)
    head = {"type": "object", "properties": schema.pop("properties", {})}
    return {**head, **{key: value for key, value in schema.items() if key != "type"}}
