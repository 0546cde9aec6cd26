"""The tools of an entry as a model sees them, in the types that the leaderboard's checker expects.

A parameter of any type is a string. Functions of Java and JavaScript take every argument as text, a literal of that
language, so that a model of any wire can write values such as `new ArrayList<>(…)`.
"""

from __future__ import annotations

from ...ir.pointer import Object
from ...ir.text import dumps
from ...ir.tools import Tool
from .entries import BFCLEntry
from .parameter_types import parameter_schema

__all__ = ["offered_tools"]

_LANGUAGES = {"java": "Java", "javascript": "JavaScript"}


def offered_tools(entry: BFCLEntry) -> tuple[Tool, ...]:
    """Return the tools to offer to a model for this entry."""
    language = _LANGUAGES.get(entry.language)
    return tuple(_offered_tool(function, language) for function in entry.functions)


def _offered_tool(function: Object, language: str | None) -> Tool:
    parameters = function["parameters"]
    description = function.get("description") or ""
    if language is None:
        return Tool(function["name"], description, parameter_schema(parameters, any_type="string"))
    properties = {key: _literal_schema(schema, language) for key, schema in parameters["properties"].items()}
    schema = {"type": "object", "properties": properties, "required": parameters.get("required") or []}
    return Tool(function["name"], f"{description} The function is written in {language}.", schema)


def _literal_schema(schema: Object, language: str) -> Object:
    """Describe a parameter as the text of a literal."""
    kind = schema.get("type") or "any"
    items = schema.get("items") or {}
    notes = [schema.get("description") or "", f"Write a {language} literal of the type {kind} as text."]
    if items.get("type"):
        notes.append(f"Its items have the type {items['type']}.")
    if schema.get("properties"):
        notes.append(f"Its fields are {dumps(schema['properties'])}.")
    return {"type": "string", "description": " ".join(filter(None, notes))}
