"""The official SDKs as judges of what we send: their types, their clients, their stream accumulators."""

import inspect
import json
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

import anthropic
import cohere
import openai
from anthropic.types import Message
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from google import genai
from google.genai import types as google_types
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses import Response
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

import bedrock_types
import ollama_types

KEY = "not-a-key"
_adapter = cache(TypeAdapter)  # a union of events takes 0.1 s


def exhaust(value: Any) -> None:
    """pydantic validates an Iterable when it is read, so read everything."""
    if isinstance(value, dict):
        for item in value.values():
            exhaust(item)
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for item in value:
            exhaust(item)


def validate_request(wire: str, body: dict) -> None:
    """ValidationError if the provider's own types do not know the body."""
    _REQUESTS[wire](body)


def _typed(whole: Any, streaming: Any) -> Any:
    def judge(body: dict) -> None:
        exhaust(_adapter(streaming if body.get("stream") else whole).validate_python(body))

    return judge


def _validate_gemini(body: dict) -> None:
    """google-genai has no type for the body; all that it is made of is strict."""
    body = dict(body)
    for content in body.pop("contents"):
        google_types.Content.model_validate(content)
    if "systemInstruction" in body:
        google_types.Content.model_validate(body.pop("systemInstruction"))
    for tool in body.pop("tools", ()):
        google_types.Tool.model_validate(tool)
    if "toolConfig" in body:
        google_types.ToolConfig.model_validate(body.pop("toolConfig"))
    google_types.GenerationConfig.model_validate(body.pop("generationConfig", {}))
    assert not body, f"fields that generateContent does not have: {sorted(body)}"


_COHERE_MESSAGES = {
    "user": cohere.UserChatMessageV2,
    "assistant": cohere.AssistantChatMessageV2,
    "system": cohere.SystemChatMessageV2,
    "tool": cohere.ToolChatMessageV2,
}
_COHERE_FIELDS = {*inspect.signature(cohere.ClientV2.chat).parameters, "stream"} - {"self", "request_options"}


def _validate_cohere(body: dict) -> None:
    """cohere has no type for the body; its fields are the parameters of the client's method."""
    for message in body["messages"]:
        _COHERE_MESSAGES[message["role"]].model_validate(message)
    for tool in body.get("tools", ()):
        cohere.ToolV2.model_validate(tool)
    if "response_format" in body:
        _adapter(cohere.ResponseFormatV2).validate_python(body["response_format"])
    if "thinking" in body:
        cohere.Thinking.model_validate(body["thinking"])
    assert body.get("tool_choice", "NONE") in ("REQUIRED", "NONE")
    assert body.keys() <= _COHERE_FIELDS, f"fields that chat does not have: {sorted(body.keys() - _COHERE_FIELDS)}"


def _validate_interaction(body: dict) -> None:
    """The unions of google-genai are open: a part that it does not know becomes UNKNOWN, which is a mistake of ours."""
    from google.genai._gaos.types.interactions import CreateModelInteraction

    known = CreateModelInteraction.model_validate(body)
    assert "UNKNOWN" not in str(known.model_dump()), known
    unknown = body.keys() - CreateModelInteraction.model_fields.keys()
    assert not unknown, f"fields that an interaction does not have: {sorted(unknown)}"


_REQUESTS = {
    "cohere": _validate_cohere,
    "openai_chat": _typed(CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming),
    "openai_responses": _typed(ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming),
    "anthropic": _typed(MessageCreateParamsNonStreaming, MessageCreateParamsStreaming),
    "bedrock": bedrock_types.validate_request,
    "gemini": _validate_gemini,
    "gemini_interactions": _validate_interaction,
    "ollama": ollama_types.validate_request,
}


_OF_SHAPES = {"ollama": ollama_types.validate_response, "bedrock": bedrock_types.validate_response}


def validate_response(wire: str, body: dict) -> None:
    """ValidationError if the provider's own type does not know the answer."""
    if wire in _OF_SHAPES:
        _OF_SHAPES[wire](body)
        return
    from google.genai._gaos.types.interactions import Interaction

    model = {
        "cohere": cohere.V2ChatResponse,
        "gemini_interactions": Interaction,
        "openai_chat": ChatCompletion,
        "openai_responses": Response,
        "anthropic": Message,
        "gemini": google_types.GenerateContentResponse,
    }[wire]
    model.model_validate(body)


def validate_chunks(wire: str, data: bytes) -> None:
    """Each event of a stream by its own type."""
    if wire == "ollama":
        for line in data.splitlines():
            ollama_types.validate_line(json.loads(line))
        return
    if wire == "bedrock":
        bedrock_types.validate_events(data)
        return
    payloads = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    if wire == "openai_chat":
        for payload in payloads:
            if "error" not in payload and not _has_custom_call(payload):  # the type of a chunk knows functions only
                ChatCompletionChunk.model_validate(payload)
    elif wire == "gemini":
        for payload in payloads:
            if "error" not in payload:
                google_types.GenerateContentResponse.model_validate(payload)
    elif wire == "cohere":
        for payload in payloads:
            _adapter(cohere.V2ChatStreamResponse).validate_python(payload)
    elif wire == "gemini_interactions":
        from google.genai._gaos.types.interactions import InteractionSSEEvent

        adapter = _adapter(InteractionSSEEvent)
        for payload in payloads:
            assert adapter.validate_python(payload).event_type != "UNKNOWN", payload
    elif wire == "openai_responses":
        from openai.types.responses import ResponseStreamEvent

        adapter = _adapter(ResponseStreamEvent)
        for payload in payloads:
            adapter.validate_python(payload)
    else:
        from anthropic.types import RawMessageStreamEvent

        adapter = _adapter(RawMessageStreamEvent)
        for payload in payloads:
            if payload["type"] not in ("ping", "error"):
                adapter.validate_python(payload)


def _has_custom_call(payload: dict) -> bool:
    return any("custom" in c for choice in payload["choices"] for c in choice["delta"].get("tool_calls") or ())


def calls_by_sdk(wire: str, url: str, *, stream: bool) -> list[tuple[str, Any]]:
    """(name, arguments) of the calls that the official client sees."""
    return _CLIENTS[wire](url, stream)


def _chat(url: str, stream: bool) -> list[tuple[str, Any]]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        ask: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        if stream:
            with client.chat.completions.stream(**ask) as answer:
                for _ in answer:
                    pass
                message = answer.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**ask).choices[0].message
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]


def _responses(url: str, stream: bool) -> list[tuple[str, Any]]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        if stream:
            with client.responses.stream(model="m", input="hi") as answer:
                for _ in answer:
                    pass
                output = answer.get_final_response().output
        else:
            output = client.responses.create(model="m", input="hi").output
    return [(item.name, json.loads(item.arguments)) for item in output if item.type == "function_call"]


def _anthropic(url: str, stream: bool) -> list[tuple[str, Any]]:
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        ask: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        if stream:
            with client.messages.stream(**ask) as answer:
                for _ in answer:
                    pass
                content = answer.get_final_message().content
        else:
            content = client.messages.create(**ask).content
    return [(block.name, block.input) for block in content if block.type == "tool_use"]


def _gemini(url: str, stream: bool) -> list[tuple[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = genai.Client(api_key=KEY, http_options=google_types.HttpOptions(base_url=url))
        if stream:
            answers = list(client.models.generate_content_stream(model="m", contents="hi"))
        else:
            answers = [client.models.generate_content(model="m", contents="hi")]
        client.close()
    parts = [p for a in answers for c in a.candidates or () if c.content for p in c.content.parts or ()]
    return [(part.function_call.name, part.function_call.args) for part in parts if part.function_call]


def _interactions(url: str, stream: bool) -> list[tuple[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = genai.Client(api_key=KEY, http_options=google_types.HttpOptions(base_url=url))
        answer = client.interactions.create(model="m", input="hi", stream=stream)
        steps, texts = {}, {}
        if not stream:
            steps = dict(enumerate(answer.steps))
        for event in answer if stream else ():
            if event.event_type == "step.start":
                steps[event.index] = event.step
            elif event.event_type == "step.delta" and event.delta.type == "arguments_delta":
                texts[event.index] = texts.get(event.index, "") + (event.delta.arguments or "")
        client.close()
    return [
        (step.name, json.loads(texts[index]) if texts.get(index) else step.arguments)
        for index, step in steps.items()
        if step.type == "function_call"
    ]


_CLIENTS = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "bedrock": bedrock_types.calls_by_client,
    "gemini": _gemini,
    "gemini_interactions": _interactions,
    "ollama": ollama_types.calls_by_client,
}
