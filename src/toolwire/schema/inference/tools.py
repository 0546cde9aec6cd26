"""Infer schemas from Python code: a tool from a function, and an output schema from a type.

    infer_tool(get_weather)             its name, docstring and type hints as a tool
    infer_type(Forecast).schema         the schema to send to a model
    infer_type(Forecast).convert(value) the value as a Forecast, or its problems

pydantic generates the schemas and converts the values. It is imported with the first function or type.

Infer a tool from a Python function: from its name, its docstring and its type hints.

    def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
        \"\"\"Current weather for a city.\"\"\"

A parameter for the context of the call is not part of the schema. pydantic generates the schema; it is imported only here, when the first tool is created.

Infer the JSON Schema of a Python type: a pydantic model, a dataclass, a TypedDict, a union or any other annotation.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

import jiter

from ...ir.errors import ConfigError, SchemaError
from ...ir.pointer import JSON, Object, join
from ...ir.text import to_bytes
from ...ir.tools import Effect, Tool
from ..keywords import copy_schema
from ..validation.validator import Problem, validator
from .signatures import is_context, read_docstring

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError


def remove_derived_titles(schema: Object) -> Object:
    """Remove in place the titles that pydantic derives from names, useless to a model, and defaults that JSON lacks."""
    schema.pop("title", None)
    for name, definition in (("", schema), *schema.get("$defs", {}).items()):
        if definition.get("title") == name:
            del definition["title"]
        for key, field in definition.get("properties", {}).items():
            if field.get("title") == key.replace("_", " ").title():
                del field["title"]
            if isinstance(field.get("default"), float) and not isfinite(field["default"]):
                del field["default"]
    return schema


def infer_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
    examples: Iterable[Object] = (),
) -> Tool:
    """Declare a function as a tool, with the description and parameter texts of its docstring by default.

    SchemaError if no schema can be inferred, or an example does not fit it.
    """
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
    """Generate the schema of the parameters with a pydantic model that has one field per parameter.

    SchemaError if pydantic has no schema for a parameter.
    """
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
    """Return the schema of the result if it is an object with properties, else None.

    The wires have schemas only for such results.
    """
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


_MAX_MESSAGE = 300  # characters of pydantic's message, which may quote the whole input; it is returned to a model


class InferredType:
    """A Python type with its schema.

    `checked_schema` is the schema without `format`: pydantic reads more spellings than the formats allow, such as a
    time without an offset, and decides about them itself. `has_decimals`: numbers of its values may be `Decimal`.
    """

    __slots__ = ("_adapter", "checked_schema", "has_decimals", "name", "schema")

    def __init__(self, annotation: Any, adapter: TypeAdapter[Any], schema: Object) -> None:
        self.schema = schema
        self.checked_schema: Object = copy_schema(schema, _drop_format)
        self.name = _type_name(annotation)
        self._adapter = adapter
        self.has_decimals = _contains_type(adapter.core_schema, "decimal")

    def convert(self, value: JSON) -> tuple[Any, tuple[Problem, ...]]:
        """Return a JSON value as an instance of the type; or None, and the problems that the type reports."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(to_bytes(value)), ()
        except ValidationError as error:
            return None, _read_errors(error)
        except Exception as error:  # noqa: BLE001  # a validator of the type may raise anything
            return None, (Problem("", "validator", f"{type(error).__name__}: {error}"),)


def parse_exact(text: str) -> JSON:
    """Parse valid JSON. A number with more digits than a float has becomes a string, which a `Decimal` accepts."""
    return _quote_inexact(jiter.from_json(text.removeprefix("\ufeff").encode(), float_mode="decimal"))


def _quote_inexact(value: Any) -> JSON:
    """Convert decimals in a value to floats, or to text if a float would not be exact."""
    if type(value) is dict:
        return {key: _quote_inexact(item) for key, item in value.items()}
    if type(value) is list:
        return [_quote_inexact(item) for item in value]
    if type(value) is Decimal:
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    unchanged: JSON = value
    return unchanged


def _contains_type(core_schema: Any, name: str) -> bool:
    """Return True if a schema of pydantic_core contains a type. Recursive types are references by name."""
    if isinstance(core_schema, dict):
        inner = (item for key, item in core_schema.items() if key not in ("default", "metadata"))
        return core_schema.get("type") == name or any(_contains_type(item, name) for item in inner)
    return isinstance(core_schema, (list, tuple)) and any(_contains_type(item, name) for item in core_schema)


def infer_type(annotation: Any) -> InferredType:
    """Infer the schema of a type; ConfigError if pydantic cannot."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(annotation)
        schema = adapter.json_schema(mode="validation")
    except (PydanticUserError, NameError) as error:  # NameError: an annotation that cannot be resolved
        reason = str(error).partition("\n")[0]
        hint = "use a pydantic model, a dataclass, a TypedDict of typing_extensions, a union, or a JSON Schema"
        raise ConfigError(f"no JSON Schema for {annotation!r}: {reason}", hint=hint) from error
    return InferredType(annotation, adapter, remove_derived_titles(schema))


def _drop_format(_: Object, schema: Object) -> Object:
    schema.pop("format", None)
    return schema


def _type_name(annotation: Any) -> str | None:
    """Return the name of a class of the author; builtin and composed types have none."""
    if not inspect.isclass(annotation) or annotation.__module__ == "builtins":
        return None
    return re.sub(r"[^a-zA-Z0-9_-]", "_", annotation.__name__)[:64]


def _read_errors(error: ValidationError) -> tuple[Problem, ...]:
    """Return pydantic's errors as problems, without its URLs and inputs."""
    return tuple(
        Problem(join(*map(str, one["loc"])), one["type"], one["msg"][:_MAX_MESSAGE])
        for one in error.errors(include_url=False, include_input=False, include_context=False)[:50]
    )
