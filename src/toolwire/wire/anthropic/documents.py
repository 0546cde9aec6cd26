"""Read Messages documents without decoding them: detection and JSON pointers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.response import Response
from ..documents import blocks, declared_tools, scorer
from ..protocol import Kind
from .response import STOP_REASONS

_THINKING = {"budget": "budget_tokens", "visible": "display", "mode": "type"}
_FIELDS = {
    "choice": "tool_choice",
    "stop": "stop_sequences",
    "user": "metadata",
    "deferred": "defer_loading",
    "examples": "input_examples",
    "cache": "cache_control",
}


def count_leading_system(request: Request) -> int:
    """Count the leading messages that go into the field `system`."""
    count = 0
    for message in request.messages:
        if message.role not in ("system", "developer"):
            break
        if message.extra and ":place" in message.extra.get("anthropic~", {}):
            break
        count += 1
    return count


def locator(value: Request | Response) -> Callable[[str], str]:
    return partial(_request_pointer, count_leading_system(value)) if isinstance(value, Request) else _response_pointer


def _response_pointer(path: str) -> str:
    """Map a canonical path in a response to a pointer into the document."""
    match split(path):
        case ["parts", *rest]:
            return join("content", *rest)
        case ["stop", *_]:
            return join("stop_reason")
    return path


def _request_pointer(system: int, path: str) -> str:
    """Map a canonical path in a request to a pointer; the first `system` messages are in the field `system`."""
    match split(path):
        case ["params", name, *_]:
            return join(_FIELDS.get(name, name))
        case ["tools", index, *rest]:
            return join("tools", index, *(_FIELDS.get(name, name) for name in rest[:1]), *rest[1:])
        case ["parallel", *_]:
            return join("tool_choice", "disable_parallel_tool_use")
        case ["reasoning", "effort"]:
            return join("output_config", "effort")
        case ["reasoning", *rest]:
            return join("thinking", *(_THINKING.get(name, name) for name in rest))
        case ["output", *rest]:
            return join("output_config", "format", *rest)
        case ["messages", index, *rest]:
            rest = ["content" if name == "parts" else _FIELDS.get(name, name) for name in rest]
            if int(index) < system:
                return join("system", *rest[1:])
            return join("messages", int(index) - system, *rest)
        case [field, *rest]:
            return join(_FIELDS.get(field, field), *rest)
    return path


_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "document", "server_tool_use"})
_EVENTS = frozenset({"message_start", "content_block_start", "content_block_delta", "message_delta", "ping"})

# a Claude model name, with or without a Bedrock prefix; OpenAI-compatible routers write "anthropic/claude-…" instead
_OWN_MODEL = re.compile(r"(?:[a-z]++\.){0,8}claude").match


def _is_own_block(block: Object) -> bool:
    """Return whether a block is Anthropic's. Mistral's `thinking` parts hold a list, not a text."""
    return block.get("type") in _BLOCKS and type(block.get("thinking", "")) is str


def _is_own_thinking(config: JSON) -> bool:
    """Return whether `thinking` is Anthropic's. Some Chat servers have one with a type and no budget."""
    return "budget_tokens" in config or config["type"] == "adaptive"


def _has_own_end(body: Object) -> bool:
    """Recognise an answer without `type` and `role`, as programs store it: blocks and a stop reason of this wire."""
    return (
        "type" not in body and body["stop_reason"] in STOP_REASONS and all("type" in block for block in body["content"])
    )


DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "request": scorer(
        (3, lambda b: type(b["messages"]) is list),
        (4, lambda b: any("input_schema" in tool for tool in declared_tools(b))),
        (4, lambda b: any(_is_own_block(block) for block in blocks(b, "messages"))),
        (3, lambda b: "system" in b),
        (1, lambda b: "max_tokens" in b),
        (3, lambda b: "max_tokens" in b and _OWN_MODEL(b["model"]) is not None),
        (6, lambda b: "anthropic_version" in b),  # Vertex AI and Bedrock: the model is in the path
        (
            2,
            lambda b: not {"stop_sequences", "output_config", "top_k"}.isdisjoint(b) or _is_own_thinking(b["thinking"]),
        ),
        (2, lambda b: any(type(block.get("source")) is dict for block in blocks(b, "messages"))),
    ),
    "response": scorer((5, lambda b: type(b["content"]) is list and (b.get("type") == "message" or _has_own_end(b)))),
    "stream": scorer((5, lambda b: b["type"] in _EVENTS)),
    "tools": scorer((5, lambda b: any("input_schema" in tool for tool in declared_tools(b)))),
    "error": scorer((5, lambda b: b["type"] == "error" and type(b["error"]) is dict)),
}
