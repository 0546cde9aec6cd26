"""Prompt-cache marks of routers on Chat: `cache_control`, as LiteLLM and OpenRouter read it.

    {"type": "text", "text": "…", "cache_control": {"type": "ephemeral", "ttl": "1h"}}

The mark may be on a part, a message or a tool. It becomes the canonical mark; the field itself is kept as form, so that
it is written back on this wire only. OpenAI has `prompt_cache_breakpoint` instead.
"""

from __future__ import annotations

from ...ir.parts import Extra
from ...ir.pointer import Object

__all__ = ["MARKED", "has_cache_control", "take_cache_control"]

_NAME = "openai_chat"
_FIELD = "cache_control"
MARKED: Object = {":cache": _FIELD}
"""The form of a value whose mark came as `cache_control`, its own or that of its message."""


def take_cache_control(extra: Extra, scope: str = _NAME) -> str | None:
    """Return the time to live of a mark among the fields of this wire, and move the field to the form.

    A mark of another type is left where it is.
    """
    mark = extra.get(scope, {}).get(_FIELD)
    if type(mark) is not dict or mark.get("type") != "ephemeral" or mark.keys() - {"type", "ttl"}:
        return None
    ttl = mark.get("ttl") or "default"
    if type(ttl) is not str:
        return None
    own = {key: value for key, value in extra[scope].items() if key != _FIELD}
    if own:
        extra[scope] = own
    else:
        del extra[scope]
    extra[f"{scope}~"] = {**extra.get(f"{scope}~", {}), _FIELD: mark}
    extra[f"{_NAME}~"] = {**extra.get(f"{_NAME}~", {}), **MARKED}
    return ttl


def has_cache_control(extra: Extra) -> bool:
    """Return whether the mark of a value came as `cache_control`."""
    return ":cache" in extra.get(f"{_NAME}~", {})
