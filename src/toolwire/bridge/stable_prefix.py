"""Mark the stable prefix of a request for the provider's prompt cache.

A provider bills a cached prefix at a fraction of the price. Anthropic caches only prefixes that a request marks, OpenAI
caches by itself and routes requests with the same key to the same cache, Gemini needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

from msgspec.structs import replace

from ..ir.parts import Media, Part, Text, ToolResult
from ..ir.prompt_size import BYTES_PER_TOKEN, message_size, tools_size
from ..ir.request import Message, Request
from ..ir.tools import Tool
from ..wire.protocol import Wire

__all__ = ["mark_stable_prefix"]

_Element = TypeVar("_Element")
_SYSTEM_ROLES = ("system", "developer")
# The smallest prefix that any model caches. Larger minimums (2,048 or 4,096 tokens) need no own rule: a mark on a shorter
# prefix is ignored. Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026)
_MIN_SIZE = 1024 * BYTES_PER_TOKEN
_TTL = "default"
# The end of the conversation, which the next request repeats, and its end in the previous request: a provider searches
# only 20 blocks before a mark for a cached prefix, and a turn with many calls has more.
_MARKED_MESSAGES = 2


def mark_stable_prefix(request: Request, wire: Wire) -> Request:
    """Return the request with cache marks or a cache key, as its wire supports them.

    A request that already has marks or a key is returned unchanged: its author chose them.
    """
    can, max_marks = wire.capabilities, wire.limits.cache_marks
    if not can.cache or _has_marks(request):
        return request
    if max_marks is None:  # caches by itself
        return replace(request, params=replace(request.params, cache_key=_make_key(request)))
    tools = _mark_tools(request.tools) if "tool" in can.cache and tools_size(request.tools) >= _MIN_SIZE else None
    remaining = max_marks - (tools is not None)
    messages = _mark_messages(request, remaining)
    return replace(request, tools=request.tools if tools is None else tools, messages=messages)


def _has_marks(request: Request) -> bool:
    if request.params.cache_key is not None or any(tool.cache is not None for tool in request.tools):
        return True
    return any(getattr(part, "cache", None) is not None for message in request.messages for part in message.parts)


def _make_key(request: Request) -> str:
    """Return a key for the beginning of the prompt: the model, the first tool and the system messages.

    Tools that appear during a run are appended last and do not change it.
    """
    digest = sha256(request.model.encode())
    if request.tools:
        digest.update(b"\x00tool\x00" + request.tools[0].name.encode(errors="replace"))
    for message in _leading_system_messages(request.messages):
        for part in message.parts:
            digest.update(b"\x00system\x00" + getattr(part, "text", "").encode(errors="replace"))
    return f"tw-{digest.hexdigest()[:32]}"


def _leading_system_messages(messages: Sequence[Message]) -> Sequence[Message]:
    count = next((index for index, one in enumerate(messages) if one.role not in _SYSTEM_ROLES), len(messages))
    return messages[:count]


def _mark_tools(tools: tuple[Tool, ...]) -> tuple[Tool, ...] | None:
    """Mark the last tool that may have a mark: not a deferred one, which is not part of the prompt's beginning."""
    for index in range(len(tools) - 1, -1, -1):
        tool = tools[index]
        if tool.kind == "function" and not tool.deferred:
            return _replace_at(tools, index, replace(tool, cache=_TTL))
    return None


def _mark_messages(request: Request, max_marks: int) -> tuple[Message, ...]:
    """Mark the end of the system messages and of the last user messages, if the prefix is large enough."""
    messages = request.messages
    system_count = len(_leading_system_messages(messages))
    users = [index for index in range(system_count, len(messages)) if messages[index].role == "user"]
    chosen = [*([system_count - 1] if system_count else []), *users[-_MARKED_MESSAGES:]][-max_marks:]
    size, marked = tools_size(request.tools), messages
    for index, message in enumerate(messages):
        size += message_size(message)
        if index in chosen and size >= _MIN_SIZE:
            marked = _replace_at(marked, index, replace(message, parts=_mark_last_part(message.parts)))
    return marked


def _mark_last_part(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Mark the last part that may have a mark: not a blank text."""
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if isinstance(part, (Media, ToolResult)) or (isinstance(part, Text) and part.text.strip()):
            return _replace_at(parts, index, replace(part, cache=_TTL))
    return parts


def _replace_at(elements: tuple[_Element, ...], index: int, element: _Element) -> tuple[_Element, ...]:
    return (*elements[:index], element, *elements[index + 1 :])
