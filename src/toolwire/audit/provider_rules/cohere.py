"""Constraints of Cohere's chat, version 2, as its SDK documents them."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Hit
from .constraints import CheckedBody, constraint
from .documents import child_object, items_of, objects_of, short_repr

__all__: list[str] = []

_WIRE = "cohere"
_SDK = "cohere 7.3.1 (2026-11)"
_ROLES = ("system", "user", "assistant", "tool")
_CHOICES = ("REQUIRED", "NONE")
_MAX_STOPS = 5  # v2/client.py, stop_sequences: "a list of up to 5 strings"


@constraint("TW101", _WIRE, f"{_SDK}: v2/client.py")
def check_required(checked: CheckedBody) -> Iterator[Hit]:
    """Report a missing model, missing messages, and fields of tools and results that are required."""
    body = checked.body
    for name in ("model", "messages"):
        if not body.get(name):
            yield Hit("", f"the field {name!r} is missing")
    for at, tool in objects_of(body.get("tools"), "/tools"):
        for name in ("name", "parameters"):
            if name not in child_object(tool, "function"):
                yield Hit(f"{at}/function", f"a tool needs {name}")
    for at, message in objects_of(body.get("messages"), "/messages"):
        if message.get("role") == "tool" and not message.get("tool_call_id"):
            yield Hit(at, "a result needs tool_call_id")


@constraint("TW103", _WIRE, f"{_SDK}: types/chat_message_v2.py")
def check_roles(checked: CheckedBody) -> Iterator[Hit]:
    for at, message in objects_of(checked.body.get("messages"), "/messages"):
        if message.get("role") not in _ROLES:
            yield Hit(f"{at}/role", f"role must be one of {', '.join(_ROLES)}, got {short_repr(message.get('role'))}")


@constraint("TW102", _WIRE, f"{_SDK}: v2/client.py, types/response_format_v2.py")
def check_settings(checked: CheckedBody) -> Iterator[Hit]:
    """Report a choice that Cohere does not have, too many stop sequences, and a form of the answer beside tools."""
    body = checked.body
    choice = body.get("tool_choice")
    if choice is not None and choice not in _CHOICES:
        yield Hit("/tool_choice", f"tool_choice must be 'REQUIRED' or 'NONE', got {short_repr(choice)}")
    if choice == "REQUIRED" and not body.get("tools"):
        yield Hit("/tool_choice", "a required call needs tools")
    if len(items_of(body.get("stop_sequences"))) > _MAX_STOPS:
        yield Hit("/stop_sequences", f"at most {_MAX_STOPS} stop sequences are accepted")
    beside = next((name for name in ("tools", "documents") if body.get(name)), None)
    if child_object(body, "response_format").get("type") == "json_object" and beside is not None:
        yield Hit("/response_format", f"a form of the answer is not supported together with {beside}")


@constraint("TW102", _WIRE, "docs.cohere.com/v2/docs/parameter-types-in-tool-use (2026-11)")
def check_strict_tools(checked: CheckedBody) -> Iterator[Hit]:
    """Report tools without a required parameter in a request with strict tools."""
    if checked.body.get("strict_tools") is not True:
        return
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        if not child_object(tool, "function", "parameters").get("required"):
            yield Hit(f"{at}/function/parameters", "a strict tool needs at least one required parameter")
