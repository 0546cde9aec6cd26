"""Patterns of provider errors for a request that broke a limit.

A signature is data: the limit (where one exists, the name of the field of `Limits`, `Capabilities` or `Dialect` that
holds it), the audit rule that finds the same problem beforehand, the error text, and the remedy. Each wire has a list
of them beside its limits. The error text is a regular expression over the message and, on a line of its own, the code,
with groups that locate the cause:

    path       the location as the provider writes it: tools.3.custom.name, tools[0].function_declarations[2].parameters
    tool       the tool's name
    context    the location in its schema, as a Python tuple: ('properties', 'paths')
    keyword    the last step of the location

They are compiled when the first error arrives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from ..ir.pointer import join
from ..ir.response import Breach, Fault

__all__ = ["FEWER_TOOLS", "Signature", "add_breach", "find_breach", "parse_limit_path"]

FEWER_TOOLS = "send fewer tools, retrieve the tools that matter, or pass choose=choose_by_words to prepare()"
"""The remedy for more tools than a provider accepts."""

_MAX_MESSAGE = 4000  # characters of a message that are searched: an error names its limit early
_STEP = re.compile(r"\[([^\[\]]*+)\]|([^.\[\]]+)")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|(\d+)")
_SCHEMAS = ("parameters", "parametersJsonSchema", "parameters_json_schema", "input_schema")
_DECLARATIONS = ("function_declarations", "functionDeclarations")
_FIELDS = (*_SCHEMAS, "name", "description", "strict")
_IN_SCHEMA = ("properties", "items", "$defs", "anyOf")
_CAMEL = {"any_of": "anyOf", "additional_properties": "additionalProperties", "prefix_items": "prefixItems"}


class Signature(NamedTuple):
    """The pattern of one provider error: the broken `limit`, the audit `rule`, the `pattern` and the `remedy`."""

    limit: str
    rule: str | None
    pattern: str
    remedy: str


def add_breach(fault: Fault, signatures: Iterable[Signature]) -> Fault:
    breach = find_breach(fault, signatures)
    return fault if breach is None else replace(fault, breach=breach)


def find_breach(fault: Fault, signatures: Iterable[Signature]) -> Breach | None:
    """Return the breach that the first matching signature describes; None if the error has another cause."""
    if fault.kind != "invalid_request":
        return None
    words = f"{fault.message[:_MAX_MESSAGE]}\n{(fault.code or '')[:_MAX_MESSAGE]}"
    for signature in signatures:
        match = re.search(signature.pattern, words)
        if match is not None:
            return _make_breach(signature, match.groupdict(), (fault.param or "")[:_MAX_MESSAGE])
    return None


def _make_breach(signature: Signature, groups: dict[str, str | None], param: str) -> Breach:
    """Build the breach from the groups of the match; `param` locates it if the message has no path."""
    at, index, pointer = parse_limit_path(groups.get("path") or param)
    if (context := groups.get("context")) is not None:
        pointer = "/input_schema" + join(*("".join(found) for found in _QUOTED.findall(context)))
    if keyword := groups.get("keyword"):
        pointer += join(keyword)
    advice = "" if signature.rule is None else f"; `toolwire audit --select {signature.rule}` finds every such place"
    tool = groups.get("tool") or index
    return Breach(signature.limit, tool, at, pointer, signature.rule, signature.remedy + advice)


def parse_limit_path(path: str) -> tuple[str, int | None, str]:
    """Return (pointer to the declaration in the document, its index, canonical pointer from there).

    >>> parse_limit_path("tools.14.custom.input_schema.properties")
    ('/tools/14', 14, '/input_schema/properties')
    >>> parse_limit_path("tools[0].function_declarations[6].parameters.properties[3].value.any_of[0]")
    ('/tools/0/functionDeclarations/6', 6, '/input_schema/properties/[3]/anyOf/0')
    """
    steps = [(bracketed or plain, bool(bracketed)) for bracketed, plain in _STEP.findall(path)]
    words = [word for word, _ in steps]
    match words:
        case ["tools", entry, list_name, number, *_] if list_name in _DECLARATIONS and _is_index(entry, number):
            return join("tools", entry, "functionDeclarations", number), int(number), _schema_pointer(steps[4:])
        case ["tools", list_name, number, *_] if list_name in _DECLARATIONS and _is_index(number):
            return join("tools", 0, "functionDeclarations", number), int(number), _schema_pointer(steps[3:])
        case ["tools", number, *_] if _is_index(number):
            return join("tools", number), int(number), _schema_pointer(steps[2:])
        case [first, *_] if first in _IN_SCHEMA:
            return "", None, "/input_schema" + _schema_pointer(steps)
    return join(*words), None, ""


def _is_index(*words: str) -> bool:
    return all(word.isdecimal() and len(word) < 7 for word in words)


def _schema_pointer(steps: list[tuple[str, bool]]) -> str:
    """Return the pointer inside a declaration, without wrappers around its fields (`function`, `custom`, …)."""
    while steps and steps[0][0] not in (*_FIELDS, *_IN_SCHEMA):
        steps = steps[1:]
    segments: list[str] = []
    for number, (word, bracketed) in enumerate(steps):
        before = segments[-1] if segments else ""
        if before.startswith("[") and word == "value":
            continue
        if before == "properties":
            by_position = bracketed and word.isdecimal() and steps[number + 1 : number + 2] == [("value", False)]
            segments.append(f"[{word}]" if by_position else word)
        else:
            segments.append("input_schema" if not segments and word in _SCHEMAS else _CAMEL.get(word, word))
    return join(*segments)
