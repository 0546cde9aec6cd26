"""Constraints of Ollama's native chat endpoint. Its server ignores unknown fields, and rejects wrong types."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...ir.pointer import JSON
from ..findings import Hit
from .constraints import CheckedBody, constraint
from .documents import child_object, items_of, objects_of, short_repr

__all__: list[str] = []

_WIRE = "ollama"
_TYPES = "ollama/ollama fb307609 (2026-08-21): api/types.go"
_ROLES = ("system", "user", "assistant", "tool")


@constraint("TW103", _WIRE, _TYPES, error="invalid role: developer, must be one of [user, assistant, system, tool]")
def check_roles(checked: CheckedBody) -> Iterator[Hit]:
    for at, message in objects_of(checked.body.get("messages"), "/messages"):
        if message.get("role") not in _ROLES:
            yield Hit(f"{at}/role", f"role must be one of {', '.join(_ROLES)}, got {short_repr(message.get('role'))}")


@constraint(
    "TW102",
    _WIRE,
    _TYPES,
    error="json: cannot unmarshal array into Go struct field Message.messages.content of type string",
)
def check_types(checked: CheckedBody) -> Iterator[Hit]:
    """Report fields of messages and settings with a wrong type, and images that are not base64."""
    for at, message in objects_of(checked.body.get("messages"), "/messages"):
        for key in ("content", "thinking", "tool_name", "tool_call_id"):
            if type(message.get(key, "")) not in (str, type(None)):
                yield Hit(f"{at}/{key}", f"{key} must be a string, got {short_repr(message[key])}")
        for where, call in objects_of(message.get("tool_calls"), f"{at}/tool_calls"):
            if type(child_object(call, "function").get("arguments")) is not dict:
                yield Hit(f"{where}/function/arguments", "arguments must be an object")
        for index, image in enumerate(items_of(message.get("images"))):
            yield from _check_image(f"{at}/images/{index}", image)
    yield from _check_settings(checked)


def _check_image(path: str, image: JSON) -> Iterator[Hit]:
    if type(image) is not str or not re.fullmatch(r"[A-Za-z0-9+/\s]*+(?:={1,2}\s*+)?+", image):
        yield Hit(path, "an image must be base64 without a data URL prefix")


def _check_settings(checked: CheckedBody) -> Iterator[Hit]:
    """Report invalid values of format, options and think."""
    body = checked.body
    if type(body.get("format", "")) not in (str, dict, type(None)) or (
        type(body.get("format")) is str and body["format"] not in ("", "json")
    ):
        yield Hit("/format", f"format must be 'json' or a schema, got {short_repr(body['format'])}")
    if type(body.get("options", {})) not in (dict, type(None)):
        yield Hit("/options", "options must be an object")
    think = body.get("think")
    if think is not None and type(think) is not bool and think not in ("low", "medium", "high", "max"):
        yield Hit("/think", f"think must be true, false, 'low', 'medium', 'high' or 'max', got {short_repr(think)}")


@constraint("TW101", _WIRE, _TYPES, error="model is required")
def check_required(checked: CheckedBody) -> Iterator[Hit]:
    if not checked.body.get("model"):
        yield Hit("", "the field 'model' is missing")
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        if not child_object(tool, "function").get("name"):
            yield Hit(f"{at}/function", "a tool needs a name")
