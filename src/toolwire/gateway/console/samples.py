"""The examples of the console: one per view and kind of document, each with something to see."""

from __future__ import annotations

import msgspec

from ...ir.events import CallDelta, CallEnd, CallStart, Event, ResponseEnd, ResponseStart, TextDelta, TextEnd, TextStart
from ...ir.pointer import JSON
from ...ir.response import Stop
from ...ir.text import to_bytes
from ...wire import get
from .messages import Sample

_WEATHER_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Name of the city", "minLength": 1},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
# 1 × 1 pixel, the smallest PNG
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
_REQUEST = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1024,
    "system": "Answer briefly.",
    "tools": [{"name": "get.weather", "description": "Current weather of a city", "input_schema": _WEATHER_SCHEMA}],
    "messages": [
        {"role": "user", "content": "Weather in Paris, please."},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "toolu_01", "name": "get.weather", "input": {"city": "Paris"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_01",
                    "content": [
                        {"type": "text", "text": "22 degrees, a photo of the sky:"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}},
                    ],
                }
            ],
        },
    ],
}
_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "gpt-5",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "I will check both.",
                "tool_calls": [
                    {
                        "id": f"call_{number}",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": f'{{"city": "{city}"}}'},
                    }
                    for number, city in enumerate(("Paris", "Rome"))
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 120, "completion_tokens": 34, "total_tokens": 154},
}
_TOOLS = {
    "tools": [
        {
            "name": "send_mail",
            "description": "Send a mail",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "to": {"type": "array", "items": {"type": "string", "format": "email"}, "maxItems": 10},
                    "subject": {"type": "string", "maxLength": 200},
                    "priority": {"anyOf": [{"const": "low"}, {"const": "high"}, {"type": "null"}]},
                    "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "required": ["to"],
            },
        },
        {
            "name": "list.files",
            "description": "List files",
            "inputSchema": {
                "type": "object",
                "properties": {"path": {"type": "string", "pattern": "^/"}, "depth": {"type": "integer"}},
                "required": ["path"],
            },
        },
    ]
}
_ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_TEXT = """\
<think>
The user asks for two cities.
</think>
I will check both.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}
</tool_call>
<tool_call>
{"name": "get_weather", "arguments": {"city": "Rome", "unit": celsius}}
</tool_call>"""
_EVENTS: tuple[Event, ...] = (
    ResponseStart("msg_1", "claude-sonnet-4-5"),
    TextStart(0),
    TextDelta.of(0, "I will "),
    TextDelta.of(0, "check."),
    TextEnd(0),
    CallStart(1, "toolu_01", "get_weather"),
    CallDelta.of(1, '{"city": "Pa'),
    CallDelta.of(1, 'ris", "unit'),
    CallDelta.of(1, '": "celsius"}'),
    CallEnd(1, {"city": "Paris", "unit": "celsius"}, '{"city": "Paris", "unit": "celsius"}'),
    ResponseEnd((Stop("tool_calls"),)),
)


def samples() -> list[Sample]:
    """Return the examples, with the one that each view opens first."""
    encoder = get("anthropic").stream_encoder()
    stream = b"".join(encoder.feed(event) for event in _EVENTS).decode()
    return [
        Sample("request", "translate", "A request with a call and an image", _write(_REQUEST), "anthropic", "request"),
        Sample("answer", "translate", "An answer with two calls", _write(_ANSWER), "openai_chat", "response"),
        Sample("tools", "translate", "Tools of an MCP server", _write(_TOOLS), "mcp", "tools"),
        Sample("error", "translate", "An error", _write(_ERROR), "anthropic", "error"),
        Sample("answer-stream", "translate", "A stream", stream, "anthropic", "stream"),
        Sample("model-text", "translate", "The text of an open model", _TEXT, None, "response", "hermes"),
        Sample("stream", "stream", "A call in pieces", stream, "anthropic", "stream"),
        Sample("cut-stream", "stream", "A stream that is cut", stream[: len(stream) * 2 // 3], "anthropic", "stream"),
        Sample("text", "text", "Two calls, one of them malformed", _TEXT, None, None, "hermes"),
        Sample("tool-list", "tools", "Tools that some providers refuse", _write(_TOOLS), "mcp", "tools"),
    ]


def _write(document: JSON) -> str:
    return msgspec.json.format(to_bytes(document), indent=2).decode()
