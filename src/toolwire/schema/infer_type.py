"""Infer the JSON Schema of a Python type: a pydantic model, a dataclass, a TypedDict, a union or any other annotation.

    inferred = infer_type(Forecast)
    inferred.schema                     the schema to send to a model
    inferred.convert(value)             the value as a Forecast, or its problems

pydantic generates the schema and converts the values; it is imported with the first type.
"""

from __future__ import annotations

import inspect
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import jiter

from ..ir.errors import ConfigError
from ..ir.pointer import JSON, Object, join
from ..ir.text import to_bytes
from .derived_titles import remove_derived_titles
from .validate import Problem

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = ["InferredType", "infer_type", "parse_exact"]

_MAX_MESSAGE = 300
_SCHEMA_MAPS = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
_VALUE_KEYWORDS = frozenset({"const", "default", "enum", "examples"})


class InferredType:
    """A Python type with its schema.

    `checked_schema` is the schema without `format`: pydantic reads more spellings than the formats allow, such as a
    time without an offset, and decides about them itself. `has_decimals`: numbers of its values may be `Decimal`.
    """

    __slots__ = ("_adapter", "checked_schema", "has_decimals", "name", "schema")

    def __init__(self, annotation: Any, adapter: TypeAdapter[Any], schema: Object) -> None:
        self.schema = schema
        self.checked_schema: Object = _without_formats(schema)
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


def _without_formats(schema: JSON) -> Any:
    """Copy a schema without its `format` keywords. Names of properties, and values such as those of `enum`, stay."""
    if type(schema) is list:
        return [_without_formats(item) for item in schema]
    if type(schema) is not dict:
        return schema
    copy: Object = {}
    for key, item in schema.items():
        if key in _SCHEMA_MAPS and type(item) is dict:
            copy[key] = {name: _without_formats(inner) for name, inner in item.items()}
        elif key in _VALUE_KEYWORDS:
            copy[key] = item
        elif key != "format":
            copy[key] = _without_formats(item)
    return copy


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
