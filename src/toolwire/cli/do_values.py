"""Restrict the arguments of a command to values of the request, for a model that invents values.

A model of 135 million parameters copies values from its examples or repeats the name of an option. With the possible
values as an enumeration, the grammar of its answer admits no other. An argument without a possible value is not offered.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..ir.tools import Tool
from ..run.tools.words import split_words

if TYPE_CHECKING:
    from ..retrieve.commands.command import SystemCommand

__all__ = ["limit_values", "request_values"]

_QUOTED = re.compile(r"\"([^\"]{1,200})\"|'([^']{1,200})'|`([^`]{1,200})`")
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"\d{1,9}")
_NAMING = frozenset("named called folder directory container process below branch service image message by".split())
_FREQUENT = (
    "each one ones too here there below above into without make made keep much many left big deep level only let usage"
)
_NUMERIC = frozenset({"pid", "number", "port", "job", "seconds", "n"})
_QUANTITY = re.compile(r"\b(?:number|lines|bytes|count|size|depth|seconds|levels|days)\b", re.IGNORECASE)
_MAX_VALUES = 12


def request_values(request: str, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the parts of a request that may be values: quotations, paths, numbers, names.

    `known`: words that describe the task. They are no values, unless they follow a word such as "named" or "folder".
    """
    values = [next(part for part in found.groups() if part) for found in _QUOTED.finditer(request)]
    is_named = False
    for found in _WORD.finditer(_QUOTED.sub(" ", request)):
        word = found.group().strip(",;:!?()").removesuffix(".")
        is_marked = any(char in word for char in "./~_-@*=") or any(map(str.isdigit, word)) or word[1:].isupper()
        words = split_words(word)
        was_named, is_named = is_named, word.lower() in _NAMING
        if is_marked or (words and not is_named and (was_named or known.isdisjoint(words))):
            values.append(word)
    return tuple(dict.fromkeys(value for value in values if value))[:_MAX_VALUES]


def limit_values(tool: Tool, command: SystemCommand, request: str) -> Tool:
    """Return the tool with values of the request only.

    Options that the request does not mention are left out, and arguments without a possible value. The arguments that
    have one are required.
    """
    schema = tool.input_schema or {}
    properties: dict[str, Any] = schema.get("properties", {})
    known = task_words() | frozenset(split_words(f"{command.name} {command.summary} {' '.join(properties)}"))
    values = request_values(request, known)
    texts = tuple(value for value in values if not _NUMBER.fullmatch(value))
    numbers = tuple(value for value in values if _NUMBER.fullmatch(value))
    operands = frozenset(operand.name for operand in command.operands)
    spare = frozenset(operand.name for operand in command.operands[max(1, len(texts)) :])
    asked = frozenset(split_words(request)) - frozenset(split_words(command.name))
    required = schema.get("required", [])
    kept: dict[str, Any] = {}
    for name, one in properties.items():
        if name in spare and name not in required:
            continue
        if name not in operands and asked.isdisjoint(_option_words(command, name, one)):
            continue
        if name in operands:
            possible = numbers if name in _NUMERIC else texts
        else:
            possible = numbers if _QUANTITY.search(f"{name} {one.get('description', '')}") else values
        limited = _limit(one, possible)
        if limited is not None or name in required:
            kept[name] = one if limited is None else limited
    named = [name for name in kept if name in operands or name in required]
    if sum(name in operands for name in kept) > 1:  # each operand gets one value
        kept = {
            name: {**one, "maxItems": 1} if name in operands and "items" in one else one for name, one in kept.items()
        }
    return replace(tool, input_schema={**schema, "properties": kept, "required": named})


def _option_words(command: SystemCommand, name: str, schema: dict[str, Any]) -> list[str]:
    """Return the words that mention an option. One that deletes has to be named: a small model sets every option that it sees."""
    from ..retrieve.commands.effects import judge_effect

    option = schema.get("description", "").partition(":")[0].split(", ")
    deletes = any("delete" in judge_effect(command.words, (*command.words, one), [one]).kinds for one in option)
    is_own = "delete" in judge_effect(command.words, command.words).kinds
    return split_words(name if deletes and not is_own else f"{name} {schema.get('description', '')}")


@cache
def task_words() -> frozenset[str]:
    """Return the words that describe tasks of common commands, such as "show", "folder" and "last"."""
    from ..retrieve.commands.common_tasks import COMMON_TASKS

    return frozenset(split_words(" ".join(COMMON_TASKS.values()))) | frozenset(split_words(_FREQUENT))


def _limit(schema: dict[str, Any], values: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the schema of a property with the possible values; None if there are none."""
    kind = schema.get("type")
    if "enum" in schema or kind == "boolean":
        return schema
    if kind == "array":
        items = _limit(schema["items"], values)
        return None if items is None else {**schema, "items": items, "minItems": 1, "maxItems": min(2, len(values))}
    if kind == "integer":
        numbers = [int(value) for value in values if _NUMBER.fullmatch(value)]
        return {**schema, "enum": numbers} if numbers else None
    if isinstance(kind, list):
        return {**schema, "type": "boolean"}  # an optional value: as a flag
    return {**schema, "enum": list(values)} if values else None
