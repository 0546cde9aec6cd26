"""Model lists and token counts in the shape of each protocol."""

from __future__ import annotations

from ..ir.pointer import Object

__all__ = ["VERSION", "count_reply", "model_entry", "model_list"]

VERSION = "0.31.0"
"""The version that we report to clients of Ollama: that of the protocol we implement."""


def model_list(wire: str, names: list[str]) -> Object:
    entries = [model_entry(wire, name) for name in names]
    if wire == "gemini" or wire == "ollama":
        return {"models": entries}
    if wire == "anthropic":
        first, last = (names[0], names[-1]) if names else (None, None)
        return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
    return {"object": "list", "data": entries}


def model_entry(wire: str, name: str) -> Object:
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


def count_reply(wire: str, tokens: int) -> Object:
    return {"totalTokens": tokens} if wire == "gemini" else {"input_tokens": tokens}
