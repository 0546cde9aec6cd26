"""Lists of models in the shape of each protocol, for clients that ask for one.

Separate because they are no part of a conversation: no codec and no translation uses them.
"""

from __future__ import annotations

from ..ir.pointer import Object

__all__ = ["model_entry", "model_list"]


def model_list(wire: str, names: list[str]) -> Object:
    """Build the list of models in the shape of a protocol."""
    entries = [model_entry(wire, name) for name in names]
    if wire == "gemini" or wire == "ollama":
        return {"models": entries}
    if wire == "anthropic":
        first, last = (names[0], names[-1]) if names else (None, None)
        return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
    return {"object": "list", "data": entries}


def model_entry(wire: str, name: str) -> Object:
    """Build the description of a model in the shape of a protocol; unknown fields have neutral values."""
    if wire == "gemini":
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
        }
    if wire == "ollama":
        return {"name": name, "model": name, "details": {"family": "", "format": ""}}
    if wire == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "toolwire"}
