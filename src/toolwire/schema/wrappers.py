r"""Layers that models put around arguments: text, lists of one, the name of a parameter object, a whole call.

    "{\"city\": \"Paris\"}"                                 unwrapped_text
    [{"city": "Paris"}]                                       unwrapped_list
    {"arguments": {"city": "Paris"}}                          unwrapped_alias
    {"type": "object", "properties": {"city": "Paris"}}       unwrapped_alias
    {"name": "get_weather", "arguments": {"city": "Paris"}}   unwrapped_call
    {"get_weather": {"city": "Paris"}}                        unwrapped_call, if the name of the tool is known

A layer is removed only by `unwrap_arguments`, and only where the schema rejects the text with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet

from ..ir.errors import BrokenJSON
from ..ir.pointer import JSON, Object, join
from ..stream.repair import repair_json
from .steps import RepairStep

__all__ = ["may_be_call", "other_tool", "parse_container", "remove_layer"]

_ALIASES = frozenset(
    "arguments parameters args input params kwargs properties tool_input action_input tool_arguments tool_args"
    " function_arguments function_args".split()
)
_NAMES = frozenset("name tool tool_name function function_name action recipient_name".split())
_METADATA = frozenset("type id call_id tool_call_id index thought thoughts reasoning explanation".split())
_CALLS = frozenset("function tool function_call tool_call tool_use tool_calls function_calls calls call".split())
_QUALIFIER = re.compile(r"[.:/]")
_MAX_ENVELOPES = 4
_SCHEMA_KEYWORDS = frozenset("anyOf oneOf allOf $ref".split())
_SCHEMA_TYPES = frozenset("string integer number boolean object array null".split())


def remove_layer(value: JSON, declared: AbstractSet[str], names: Collection[str]) -> tuple[JSON, RepairStep] | None:
    """Remove the outermost layer; None if there is none. `declared`: parameters; `names`: of the tool, if known."""
    if type(value) is str:
        inner = parse_container(value)
        return None if inner is None else (inner, RepairStep("unwrapped_text"))
    if type(value) is list:
        return (value[0], RepairStep("unwrapped_list")) if len(value) == 1 else None
    if type(value) is not dict or not value:
        return None
    return _remove_alias(value, declared) or _remove_call(value, declared, names)


def _remove_alias(value: Object, declared: AbstractSet[str]) -> tuple[JSON, RepairStep] | None:
    """Remove `{"arguments": …}`, or `{"type": "object", "properties": …}` unless that is the schema itself."""
    members = dict(value)
    if "properties" in members and members.get("type") == "object" and "type" not in declared:
        del members["type"]
        if type(members.get("required")) is list and "required" not in declared:
            del members["required"]
    if len(members) != 1:
        return None
    ((key, inner),) = members.items()
    if key not in _ALIASES or key in declared:
        return None
    if key == "properties" and _is_schema(inner):
        return None
    return _content(inner), RepairStep("unwrapped_alias", join(key))


def _is_schema(properties: JSON) -> bool:
    """Return True for the properties of a schema: the model repeated its tool's definition."""
    return type(properties) is dict and any(
        type(inner) is dict
        and (
            not _SCHEMA_KEYWORDS.isdisjoint(inner)
            or (type(inner.get("type")) is str and inner["type"] in _SCHEMA_TYPES)
        )
        for inner in properties.values()
    )


def _remove_call(value: Object, declared: AbstractSet[str], names: Collection[str]) -> tuple[JSON, RepairStep] | None:
    """Remove a call around its arguments. The name in it must be that of the tool, if that is known."""
    payload = [key for key, inner in value.items() if _is_payload(key, inner, names)]
    if len(payload) != 1:
        return None
    (key,) = payload
    inner = _content(value[key])
    for other, text in value.items():
        if other == key:
            continue
        is_name = other in _NAMES and type(text) is str
        if not is_name and not (other in _METADATA and type(text) in (str, int)):
            return None
        if is_name and names and text not in names:
            return None
        # A parameter with the same key must not be dropped.
        if other in declared and not (is_name and text in names) and not (type(inner) is dict and other in inner):
            return None
    if key in declared and not any(other in _NAMES and value[other] in names for other in value if other != key):
        return None
    return inner, RepairStep("unwrapped_call", join(key))


def may_be_call(value: JSON, declared: AbstractSet[str]) -> bool:
    """Return True for members that are parameters of the tool, or a call with such parameters in its arguments."""
    if type(value) is not dict:
        return False
    payloads = {key: inner for key, inner in value.items() if _is_payload(key, inner, ())}
    if not payloads.keys() <= declared:
        return True
    has_name = any(key in _NAMES and type(inner) is str for key, inner in value.items())
    is_known = _NAMES.isdisjoint(value.keys() - declared)
    return has_name and any(
        type(content) is dict and content.keys() <= declared and not (is_known and not content)
        for content in map(_content, payloads.values())
    )


def other_tool(value: JSON, declared: AbstractSet[str], names: Collection[str]) -> str | None:
    """Return the name of another tool if the value is a call of it; None if that is not certain."""
    for _ in range(_MAX_ENVELOPES):
        if type(value) is list and len(value) == 1:
            value = value[0]
        if type(value) is not dict or not names or not declared.isdisjoint(value):
            return None
        payload = [key for key, inner in value.items() if _is_payload(key, inner, ())]
        named = [text for key, text in value.items() if key in _NAMES and type(text) is str]
        if len(payload) != 1 or len(named) > 1 or len(value.keys() - _METADATA) != 1 + len(named):
            return None
        if named:
            is_known = named[0] in names or _QUALIFIER.split(named[0])[-1] in names
            return None if is_known else named[0]
        value = _content(value[payload[0]])
    return None


def _is_payload(key: str, inner: JSON, names: Collection[str]) -> bool:
    """Return True for the arguments of a call, or a call inside its envelope."""
    if key in _ALIASES or key in _CALLS or key in names:
        return type(inner) in (dict, list) or (type(inner) is str and inner.lstrip()[:1] in ("{", "["))
    return False


def _content(inner: JSON) -> JSON:
    """Return the content of a layer, parsed if it is text."""
    if type(inner) is str:
        parsed = parse_container(inner)
        return inner if parsed is None else parsed
    return inner


def parse_container(text: str) -> JSON:
    """Parse the object or list in `text`, or return None. It is not truncated: the string around it is closed."""
    try:
        value = repair_json(text, finished=False).value
    except BrokenJSON:
        return None
    return value if type(value) in (dict, list, str) else None
