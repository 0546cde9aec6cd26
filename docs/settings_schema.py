"""Write src/toolwire/gateway/config/toolwire.schema.json, with which editors complete and check `toolwire.toml`.

Types, defaults and tables come from the settings' own classes; ranges and names come from the code that checks
them; descriptions are the comments and docstrings beside the fields.
"""

import ast
import inspect
import io
import json
import tokenize
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from toolwire import text
from toolwire.gateway.config import parsing, settings
from toolwire.gateway.config.settings import (
    KeyRow,
    LimitsRow,
    ModelRow,
    ResponsesRow,
    RetrieveRow,
    ServerRow,
    Settings,
    StateRow,
    TargetRow,
    ToolsRow,
    TraceRow,
    UpstreamRow,
)
from toolwire.gateway.settings_file import SCHEMA_FILE
from toolwire.ir.request import Params
from toolwire.net.model import endpoint_settings
from toolwire.wire import names as wire_names
from toolwire.wire.models import capabilities, vendors

__all__ = ["SCHEMA_FILE", "settings_schema"]

# The rows whose numbers `parsing._check_numbers` checks.
_CHECKED_ROWS = (ServerRow, LimitsRow, StateRow, ResponsesRow, TraceRow, UpstreamRow, ModelRow, ToolsRow)


def settings_schema() -> str:
    """Return the JSON Schema of a settings file, as text."""
    schema = msgspec.json.schema(Settings)
    rows = schema["$defs"]
    rows["Defaults"] = _defaults_schema()
    for name, row in rows.items():
        _simplify(row)
        for field, description in _descriptions(vars(settings).get(name)):
            row["properties"][field]["description"] = description
    for field, bounds, kinds in _bounds():
        for kind in kinds:
            number = rows[kind.__name__]["properties"].get(field, {})
            if number.get("type") in ("integer", "number"):
                number.update(bounds)
    upstream, model = rows["UpstreamRow"]["properties"], rows["ModelRow"]["properties"]
    upstream["defaults"] = {"$ref": "#/$defs/Defaults", "description": upstream["defaults"]["description"]}
    upstream["extra_body"]["propertyNames"] = {"not": {"enum": sorted(endpoint_settings._PROTECTED)}}
    upstream["provider"] |= _suggest(vendors.names())
    upstream["wire"] |= _suggest(wire_names())
    rows["EmulateRow"]["properties"]["format"] |= _suggest(text.names())
    model["emulate"]["anyOf"][0] |= _suggest(text.names())
    for field, known in capabilities.NAMED_VALUES:
        rows["ModelCapabilities"]["properties"][field]["items"] = {"enum": list(known)}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolwire.toml"}
    return json.dumps({**head, **schema}, indent=1, ensure_ascii=False) + "\n"


def _defaults_schema() -> dict[str, Any]:
    """Return the schema of the parameters in `defaults` of an upstream."""
    params, reasoning = (
        msgspec.json.schema(kind)["$defs"][kind.__name__] for kind in (Params, endpoint_settings._ReasoningDefault)
    )
    known = {name: params["properties"][name] for name in endpoint_settings._PARAM_NAMES}
    return {"type": "object", "properties": {**known, "reasoning": reasoning}, "additionalProperties": False}


def _bounds() -> Iterator[tuple[str, dict[str, int], tuple[type, ...]]]:
    """Yield the fields with a range, the range, and the rows in which it is checked."""
    for field in parsing._POSITIVE_FIELDS:
        yield field, {"exclusiveMinimum": 0}, _CHECKED_ROWS
    for field in parsing._NON_NEGATIVE_FIELDS:
        yield field, {"minimum": 0}, _CHECKED_ROWS
    for field in parsing._KEY_LIMITS:
        yield field, {"minimum": 1}, (KeyRow,)
    yield "k", {"minimum": 1, "maximum": parsing.MAX_OFFERED}, (RetrieveRow,)
    yield "weight", {"exclusiveMinimum": 0}, (TargetRow,)


def _suggest(known: Any) -> dict[str, Any]:
    """Return a schema that accepts any string, from which editors complete the known names."""
    return {"anyOf": [{"enum": sorted(known)}, {"type": "string"}]}


def _simplify(schema: Any) -> None:
    """Remove null, which TOML does not have, the names of classes, and defaults of whole tables, in place."""
    for inner in schema.get("properties", {}).values():
        _simplify(inner)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            _simplify(inner)
    if not isinstance(schema.get("default"), (str, int, float)):
        schema.pop("default", None)
    options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        schema.update(options[0])
    elif options:
        schema["anyOf"] = options
    schema.pop("title", None)
    if not schema.get("required", True):
        del schema["required"]
    if "description" in schema:
        schema["description"] = inspect.cleandoc(schema["description"])


def _descriptions(kind: type | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that have a comment on their own lines, or a docstring below."""
    source = "" if kind is None else inspect.getsource(kind)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    body = ast.parse(source).body[0].body if source else []
    for node, following in zip_longest(body, body[1:]):
        if isinstance(node, ast.AnnAssign):
            lines = range(node.lineno, (node.end_lineno or 0) + 1)
            found = " ".join(comments[line] for line in lines if line in comments)
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                found = inspect.cleandoc(following.value.value)
            if found:
                yield node.target.id, found
