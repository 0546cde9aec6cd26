"""Translate requests to the wire of a provider, and check the bodies; FIXED are the smallest examples of past defects."""

from typing import Any, NamedTuple

from msgspec.structs import replace

import toolwire
from toolwire.audit import check_body
from toolwire.ir import (
    Artefact,
    Media,
    Message,
    Reasoning,
    ReasoningConfig,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolwireError,
)
from toolwire.wire import get

MODELS = {
    "openai_chat": ("gpt-4o", "gpt-5", "gpt-5.2", "o3-mini", "my-model"),
    "openai_responses": ("gpt-4o", "gpt-5", "gpt-5.6", "my-model"),
    "anthropic": (
        "claude-3-7-sonnet-latest",
        "claude-sonnet-4-5",
        "claude-opus-4-6",
        "claude-opus-4-8",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-haiku-5-5",
        "claude-fable-5-1",
        "my-model",
    ),
    "gemini": (
        "gemini-2.0-flash",
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemini-3-pro-preview",
        "gemini-3-flash-preview",
    ),
    "ollama": ("qwen3",),
}
"""A model of each family, by wire."""
VERSIONS = {"anthropic": "2026-10-21"}
"""The API version that the codec of a wire writes."""

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def chat(*messages, **fields) -> tuple[str, dict[str, Any]]:
    return "openai_chat", {"model": "m", "messages": list(messages) or [USER], **fields}


def gemini(*contents, **fields) -> tuple[str, dict[str, Any]]:
    return "gemini", {"contents": list(contents) or [{"role": "user", "parts": [{"text": "hi"}]}], **fields}


def says(role, text="hi"):
    return {"role": role, "content": text}


class Failure(NamedTuple):
    """A request of one wire whose translation to another wire violates a rule."""

    target: str
    rule: str
    model: str
    reason: str
    source: tuple[str, dict[str, Any]] | Request
    """(wire, body), or a canonical request."""

    def __repr__(self):
        return f"{self.target} {self.rule} {self.model}"


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "ok"}
THINKING = {
    "model": "m",
    "max_tokens": 4096,
    "messages": [USER],
    "thinking": {"type": "enabled", "budget_tokens": 2000},
}
JSON_MODE = gemini(generationConfig={"responseMimeType": "application/json"})
COLD = gemini(generationConfig={"temperature": 0.2})
AUDIO = gemini({"role": "user", "parts": [{"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}]})
ANSWER = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
TWO_MODEL_TURNS = gemini(
    {"role": "user", "parts": [{"text": "hi"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "g", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": name, "response": {}}} for name in "fg"]},
)
HELLO = Message("user", (Text("hi"),))
SIGNED = (Artefact("google", "signature", "c2lnbmF0dXJl"),)
CALLS = Message("assistant", (ToolCall("a", "f", {}), ToolCall("b", "g", {}, artefacts=SIGNED)))
RECORDING = Message("user", (Media("file", "audio/wav", "AAAA", name="a.wav"),))
REASONING = Reasoning("hm", extra={"openai_responses": {"id": "rs_1"}})
FIXED = (
    Failure("openai_chat", "TW134", "gpt-4o", "max_tokens of Claude Code", ("anthropic", {"model": "m", "max_tokens": 64000, "messages": [USER]})),
    Failure("anthropic", "TW134", "claude-opus-4-1", "max_tokens above the limit of the model", chat(max_tokens=64000)),
    Failure("openai_responses", "TW101", "gpt-5", "reasoning without its id, which the item requires", Request("m", (HELLO, Message("assistant", (REASONING, Text("hi"))), HELLO))),
    Failure("openai_chat", "TW126", "gpt-4o", "an audio file", Request("m", (RECORDING,))),
    Failure("gemini", "TW111", "gemini-3-pro-preview", "thinking off, with effort and budget", Request("m", (HELLO,), reasoning=ReasoningConfig("off", "high", 1024))),
    Failure("gemini", "TW114", "gemini-2.5-pro", "thinking off, with effort and budget", Request("m", (HELLO,), reasoning=ReasoningConfig("off", "high", 1024))),
    Failure("anthropic", "TW114", "claude-3-7-sonnet-latest", "effort of a model without effort, while thinking is off", Request("m", (HELLO,), reasoning=ReasoningConfig("off", "low"))),
    Failure("anthropic", "TW120", "claude-opus-4-6", "a late result moves to its call, so the history ends with the assistant", chat(CALL, USER, says("assistant"), RESULT)),
    Failure("anthropic", "TW120", "claude-sonnet-4-5", "a prefill with thinking", chat(USER, says("assistant"), reasoning_effort="high")),
    Failure("anthropic", "TW117", "claude-3-7-sonnet-latest", "structured outputs of older models", chat(response_format=ANSWER)),
    Failure("gemini", "TW120", "gemini-3-pro-preview", "S18: history ends with the model", chat(USER, says("assistant"))),
    Failure("openai_chat", "TW101", "gpt-4o", "a turn with reasoning only", Request("m", (HELLO, Message("assistant", (Reasoning(artefacts=(Artefact("openai", "signature", "c2lnbmF0dXJl"),)),)), HELLO))),
    Failure("openai_responses", "TW126", "gpt-4o", "an audio file", Request("m", (RECORDING,))),
    Failure("openai_responses", "TW129", "gpt-5", "reasoning without the id of its message", Request("m", (HELLO, Message("assistant", (REASONING, Text("hi"))), HELLO))),
    Failure("anthropic", "TW125", "claude-sonnet-4-5", "more than four cache breakpoints", Request("m", (Message("user", (Text("hi", cache="5m"),) * 5),))),
    Failure("gemini", "TW127", "gemini-3-pro-preview", "signature on the second call only", Request("m", (HELLO, CALLS))),
    Failure("gemini", "TW132", "gemini-2.5-pro", "functions and a JSON answer", chat(tools=[TOOL], response_format=ANSWER)),
    Failure("openai_chat", "TW061", "gpt-4o", "S3: consecutive turns with calls", TWO_MODEL_TURNS),
    Failure("openai_chat", "TW112", "gpt-4o", "JSON mode without a message that mentions JSON", JSON_MODE),
    Failure("openai_chat", "TW113", "gpt-5", "sampling parameters of reasoning models", COLD),
    Failure("openai_chat", "TW114", "gpt-4o", "G8: effort for a model without reasoning", ("anthropic", THINKING)),
    Failure("openai_chat", "TW126", "gpt-4o", "audio for a model without audio", AUDIO),
    Failure("openai_responses", "TW105", "gpt-4o", "G7: max_output_tokens below 16", chat(max_tokens=1)),
    Failure("openai_responses", "TW112", "gpt-4o", "JSON mode without a message that mentions JSON", JSON_MODE),
    Failure("openai_responses", "TW113", "gpt-5", "sampling parameters of reasoning models", COLD),
    Failure("openai_responses", "TW114", "gpt-4o", "G8: effort for a model without reasoning", ("anthropic", THINKING)),
    Failure("anthropic", "TW065", "claude-sonnet-4-5", "S7: text of whitespace", chat(says("user", " "))),
    Failure("anthropic", "TW110", "claude-sonnet-4-5", "G4: schemas of answers are not lowered", chat(response_format=ANSWER)),
    Failure("anthropic", "TW114", "claude-opus-5-5", "G8: thinking cannot be disabled", chat(reasoning_effort="none")),
    Failure("anthropic", "TW116", "claude-opus-5-5", "G8: forced choice", chat(tools=[TOOL], tool_choice="required")),
    Failure("anthropic", "TW118", "claude-sonnet-4-5", "G1: system message inside of messages", chat(USER, says("system"), says("assistant"), USER)),
    Failure("anthropic", "TW119", "claude-opus-4-8", "G1: position of a system message", chat(USER, says("system"), USER)),
    Failure("anthropic", "TW120", "claude-opus-4-6", "a document_url of Mistral is dropped with its turn",
            chat(USER, says("assistant"), {"role": "user", "content": [{"type": "document_url", "document_url": "https://e.com/a.pdf"}]})),
    Failure("anthropic", "TW121", "claude-sonnet-4-5", "S7: final assistant text with trailing whitespace", chat(USER, says("assistant", "hi "))),
    Failure("anthropic", "TW124", "claude-sonnet-4-5", "G22: thinking without the thinking of the turn", chat(USER, CALL, RESULT, reasoning_effort="high")),
    Failure("gemini", "TW114", "gemini-2.5-pro", "G8: thinking cannot be disabled", chat(reasoning_effort="none")),
    Failure("gemini", "TW122", "gemini-2.5-pro", "S8: history begins with the model", chat(says("assistant"), USER)),
    Failure("gemini", "TW128", "gemini-2.5-pro", "S8: history begins with a call", chat(CALL, RESULT)),
    Failure("openai_responses", "TW109", "gpt-4o", "a strict tool without parameters", Request("m", (HELLO,), (Tool("f", strict=True),))),
    Failure("anthropic", "TW109", "claude-sonnet-4-5", "a strict tool without parameters", Request("m", (HELLO,), (Tool("f", strict=True),))),
    Failure("gemini", "TW111", "gemini-3-pro-preview", "budget and level", Request("m", (HELLO,), reasoning=ReasoningConfig("off", "low"))),
)  # fmt: skip
"""Defects that were found in the same way and are fixed."""


def violations(body, target, model):
    return check_body(body, target, model, version=VERSIONS.get(target))


def translated(source, target, model):
    """The body of a request on another wire, or None where the request is refused before it is sent."""
    try:
        if isinstance(source, Request):
            codec = get(target)
            return codec.encode_request(toolwire.prepare(replace(source, model=model), codec).request).body
        wire, body = source
        return toolwire.translate(body, source=wire, target=target, model=model).body
    except ToolwireError:
        return None
