"""Declare a command as a tool: options and operands are the properties of its schema."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ...ir.pointer import Object
from ...ir.terminal import neutralise_line
from ...ir.tools import Tool
from ...run.tools.words import split_words
from ..documents import clean_text
from .command import CommandOption, Operand, SystemCommand, property_name
from .effect_table import is_withheld
from .effects import default_effect

__all__ = ["Property", "command_properties", "declare_command", "select_options"]

Property: TypeAlias = CommandOption | Operand

MAX_VALUES = 64
"""Values of one repeated option or operand."""

_UNOFFERED_OPERANDS = frozenset({"expression"})  # of `find`: its parts are options
_UNOFFERED = frozenset({"--help", "--version", "--usage"})


def command_properties(command: SystemCommand) -> dict[str, Property]:
    """Return the options and operands by the names of their properties. Operands keep their names."""
    found: dict[str, Property] = {one.name: one for one in command.operands if one.name not in _UNOFFERED_OPERANDS}
    for option in command.options:
        if not _UNOFFERED.isdisjoint(option.names) or is_withheld(command.words, option):
            continue
        spellings = [property_name(option.name), *(property_name(name) for name in option.names)]
        name = next((one for one in spellings if one and one not in found), f"{spellings[0]}_option")
        if name not in found and name != "_option":
            found[name] = option
    return found


def declare_command(command: SystemCommand, names: Iterable[str] | None = None) -> Tool:
    """Return the tool of a command. `names`: the properties to declare, by default all."""
    properties = command_properties(command)
    offered = properties if names is None else {name: properties[name] for name in names}
    schema: Object = {
        "type": "object",
        "properties": {name: _declare_property(one) for name, one in offered.items()},
        "required": [name for name, one in offered.items() if isinstance(one, Operand) and one.is_required],
        "additionalProperties": False,
    }
    return Tool(
        command.tool_name,
        _shown(f"{command.name}: {command.summary}", 300),
        schema,
        effect=default_effect(command),
    )


def select_options(command: SystemCommand, request: str, limit: int) -> list[str]:
    """Return the names of the properties to offer for a request, in the order of the page.

    All operands, and the options that share the rarest words with the request; pages of some commands have 250 options.
    """
    properties = command_properties(command)
    options = {name: one for name, one in properties.items() if isinstance(one, CommandOption)}
    if len(options) <= limit:
        return list(properties)
    words = {name: _option_words(name, one) for name, one in options.items()}
    counts = Counter(word for found in words.values() for word in found)
    wanted = frozenset(split_words(request))
    scores = {name: _score(found & wanted, counts, len(options)) for name, found in words.items()}
    best = frozenset(sorted(options, key=lambda name: -scores[name])[:limit])
    return [name for name, one in properties.items() if isinstance(one, Operand) or name in best]


def _score(common: frozenset[str], counts: Mapping[str, int], total: int) -> float:
    return sum(math.log(1 + total / counts[word]) for word in common)


def _option_words(name: str, option: CommandOption) -> frozenset[str]:
    text = " ".join((name, *option.names, *option.choices, option.placeholder, option.description))
    return frozenset(split_words(text))


def _declare_property(one: Property) -> Object:
    if isinstance(one, Operand):
        return _declare_list({"type": "string"}) if one.repeats else {"type": "string"}
    spellings = ", ".join(one.names)
    described: Object = {
        "description": _shown(f"{spellings}: {one.description}" if one.description else spellings, 200)
    }
    if one.style == "flag":
        return {"type": "boolean", **described}
    value = _declare_value(one)
    if one.style == "optional":
        values = value.get("enum")
        listed = {} if values is None else {"enum": [True, False, *values]}
        return {"type": ["boolean", value["type"]], **listed, **described}
    return {**(_declare_list(value) if one.repeats else value), **described}


def _declare_value(option: CommandOption) -> Object:
    if option.choices:
        return {"type": "string", "enum": list(option.choices)}
    return {"type": "integer" if option.is_integer else "string"}


def _declare_list(value: Object) -> Object:
    return {"type": "array", "items": value, "maxItems": MAX_VALUES}


def _shown(text: str, limit: int) -> Any:
    """Return untrusted text of a page without invisible characters, and bounded."""
    return neutralise_line(clean_text(text))[:limit]
