'''Infer a tool from a Python function: from its name, its docstring and its type hints.

    def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
        """Current weather for a city."""

A parameter for the context of the call is not part of the schema. pydantic generates the schema; it is imported only here, when the first tool is created.
'''

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..ir.errors import SchemaError
from ..ir.pointer import Object
from ..ir.tools import Effect, Tool
from .context_marker import is_context
from .derived_titles import remove_derived_titles
from .docstrings import read_docstring
from .validate import validator

__all__ = ["infer_tool"]


def infer_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
    examples: Iterable[Object] = (),
) -> Tool:
    """Declare a function as a tool. Examples that do not fit the schema raise SchemaError."""
    called = name or _function_name(function)
    docstring = read_docstring(_own_docstring(function))
    parameters = _signature_parameters(function, called)
    schema = _parameters_schema(parameters, called)
    for texts in (_annotated_texts(parameters), docstring.parameters):
        _annotate(schema, texts)
    return Tool(
        name=called,
        description=description or docstring.text or None,
        input_schema=schema,
        output_schema=_result_schema(function),
        strict=strict,
        effect=effect,
        examples=_checked_examples(called, schema, examples),
    )


def _checked_examples(name: str, schema: Object, examples: Iterable[Object]) -> tuple[Object, ...]:
    given = tuple(examples)
    for number, example in enumerate(given):
        problems = validator(schema).problems(example)
        if problems:
            raise SchemaError(f"{name}: example {number} does not fit the schema: {problems[0]}")
    return given


def _function_name(function: object) -> str:
    """Return the name of a function, a partial or a callable object; SchemaError if it cannot name a tool."""
    if not callable(function):
        raise SchemaError(f"a tool must be a function, got {function!r}")
    if isinstance(function, Tool):
        return function.name
    inner = function.func if isinstance(function, functools.partial) else function
    name: str = getattr(inner, "__name__", type(inner).__name__)
    if not name.isidentifier():
        raise SchemaError(f"{name} is not a valid tool name", hint="pass a name: tool(name=…)")
    return name


def _own_docstring(function: Callable[..., Any]) -> str | None:
    """Return the docstring of the object itself, not an inherited one."""
    inner = function.func if isinstance(function, functools.partial) else function
    own = inner.__doc__ if inspect.isroutine(inner) else vars(inner).get("__doc__") or vars(type(inner)).get("__doc__")
    if inspect.isclass(inner):
        own = vars(inner).get("__doc__")
    return inspect.cleandoc(own) if own else None


def _parameters_schema(parameters: Iterable[inspect.Parameter], name: str) -> Object:
    """Generate the schema of the parameters with a pydantic model that has one field per parameter."""
    from pydantic import ConfigDict, create_model

    fields = {
        # pydantic reserves some names; the schema shows the alias
        f"argument_{number}": (
            Any if parameter.annotation is parameter.empty else parameter.annotation,
            _make_field(parameter),
        )
        for number, parameter in enumerate(parameters)
    }
    try:
        model = create_model(name, __config__=ConfigDict(arbitrary_types_allowed=False), **fields)  # type: ignore[call-overload]
        schema: Object = model.model_json_schema(by_alias=True)
    except Exception as error:  # pydantic may raise anything for the author's types
        raise SchemaError(f"cannot infer a JSON Schema for the parameters of {name}: {error}") from error
    missing = [field.alias for _, field in fields.values() if field.alias not in schema.get("properties", {})]
    if missing:
        raise SchemaError(f"{name}: no schema for the parameter {missing[0]}", hint="do not annotate it as ClassVar")
    return _clean_object(schema)


def _signature_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return the parameters without `self` and the context; SchemaError for one that cannot be passed by name."""
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # evaluating annotations runs the author's code
        raise SchemaError(f"cannot read the signature of {name}: {error}") from error
    if parameters and _is_method(function) and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    parameters = [parameter for parameter in parameters if not is_context(parameter.annotation)]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            hint = "declare each parameter by name, because a model passes arguments by name"
            raise SchemaError(f"{name} has the parameter {parameter}, which cannot be passed by name", hint=hint)
    return parameters


def _annotated_texts(parameters: Iterable[inspect.Parameter]) -> dict[str, str]:
    """Return the texts of `Annotated[str, "the city"]` and of PEP 727's `Doc`, by parameter."""
    texts: dict[str, str] = {}
    for parameter in parameters:
        for given in getattr(parameter.annotation, "__metadata__", ()):
            text = getattr(given, "documentation", given)
            if isinstance(text, str):
                texts.setdefault(parameter.name, text)
    return texts


def _annotate(schema: Object, texts: dict[str, str]) -> None:
    """Add descriptions to parameters that have none."""
    for name, field in schema["properties"].items():
        if name in texts:
            field.setdefault("description", texts[name])


def _result_schema(function: Callable[..., Any]) -> Object | None:
    """Return the schema of the result if it is an object: the wires have schemas only for such results."""
    from pydantic import TypeAdapter

    inner = function.func if isinstance(function, functools.partial) else function
    try:
        returned = inspect.signature(inner, eval_str=True).return_annotation
        if returned in (inspect.Signature.empty, None, Any) or inspect.isclass(inner):
            return None
        schema = TypeAdapter(returned).json_schema(mode="serialization")
    except Exception:  # noqa: BLE001 - a result needs no schema
        return None
    if schema.get("type") != "object" or not schema.get("properties"):
        return None
    return _clean_object(schema)


def _is_method(function: Callable[..., Any]) -> bool:
    """Return True for a function that is defined in a class and not bound yet."""
    return inspect.isfunction(function) and "." in function.__qualname__.rpartition("<locals>.")[2]


def _make_field(parameter: inspect.Parameter) -> Any:
    """Return the pydantic field of a parameter, with its name as alias; the author's own `Field` is copied first."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    default = ... if parameter.default is parameter.empty else parameter.default
    if not isinstance(default, FieldInfo):
        return Field(default, alias=parameter.name)
    field = copy.copy(default)
    field.alias = field.validation_alias = field.serialization_alias = parameter.name
    field._attributes_set = {**field._attributes_set, "alias": parameter.name, "validation_alias": parameter.name}
    return field


def _clean_object(schema: Object) -> Object:
    """Remove derived titles, and put the type and the properties first."""
    schema = remove_derived_titles(schema)
    head = {"type": "object", "properties": schema.pop("properties", {})}
    return {**head, **{key: value for key, value in schema.items() if key != "type"}}
