"""The definition of a tool: the parts of its declaration that a model and a person rely on."""

from __future__ import annotations

from hashlib import sha256

from ..ir.tools import Tool
from .keys import canonical_json

__all__ = ["definition_hash", "has_same_definition"]


def definition_hash(tool: Tool) -> str:
    """Hash the name, the description, the schema and the effect of a tool."""
    definition = {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.input_schema,
        "effect": tool.effect,
    }
    return sha256(canonical_json(definition)).hexdigest()


def has_same_definition(one: Tool, other: Tool) -> bool:
    """Return True if both tools have the same name, description, schema and effect."""
    if one is other:
        return True
    if one.name != other.name or one.description != other.description or one.effect != other.effect:
        return False
    if one.input_schema is other.input_schema or one.input_schema == other.input_schema:
        return True
    return definition_hash(one) == definition_hash(other)  # equal JSON, such as a list and a tuple
