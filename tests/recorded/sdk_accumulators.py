"""The answer that a provider's own SDK makes of a recorded stream, as a document of the wire."""

import json
import re
import warnings

import anthropic
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

from sdk_validation import KEY

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
REFUSALS = (RuntimeError, TypeError, AttributeError, AssertionError, openai.OpenAIError, anthropic.AnthropicError)


class Accumulators:
    """The SDKs' clients for one server, which is told what to stream."""

    wires = ("anthropic", "gemini", "openai_chat")

    def __init__(self, server):
        self.server = server
        self.clients = {
            "anthropic": anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0),
            "openai_chat": openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0),
        }

    def whole(self, wire, data):
        """The whole answer, or None where the SDK does not accumulate streams of this wire, or not this one."""
        client = self.clients.get(wire)
        if wire == "gemini":
            return _gemini(data)
        if client is None or (
            wire == "openai_chat" and b'"content":[' in data
        ):  # Mistral's, which OpenAI's SDK cannot read
            return None
        self.server.will_stream(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of types that the SDK does not know yet
            try:
                return _anthropic(client) if wire == "anthropic" else _chat(client)
            except REFUSALS:
                return None

    def close(self):
        for client in self.clients.values():
            client.close()


def _anthropic(client):
    with client.beta.messages.stream(**QUESTION, max_tokens=1) as stream:
        return stream.get_final_message().model_dump(mode="json", exclude_unset=True, by_alias=True)


def _chat(client):
    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(**QUESTION, stream=True):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot.model_dump(mode="json", exclude_unset=True)


def _gemini(data):
    """Google's SDK does not accumulate: text continues text, thoughts continue thoughts, a signature ends either."""
    whole = {}
    for found in re.findall(rb"(?m)^data: ?(\{.*)$", data):
        chunk = json.loads(found)
        candidates = chunk.pop("candidates", [])
        whole |= chunk
        for candidate in candidates:
            content = candidate.pop("content", {})
            first = whole.setdefault("candidates", [{"content": {"role": "model", "parts": []}}])[0]
            first |= candidate
            for part in content.get("parts", ()):
                if "partialArgs" in part.get("functionCall", {}) or "willContinue" in part.get("functionCall", {}):
                    return None
                _continue(first["content"]["parts"], part)
    return whole


def _continue(parts, part):
    last = parts[-1] if parts else {}
    is_text = set(part) <= {"text", "thought", "thoughtSignature"}
    if is_text and part.get("text") == "" and "thoughtSignature" not in part:
        return
    if is_text and "text" in last and "thoughtSignature" not in last and last.get("thought") == part.get("thought"):
        parts[-1] = {**last, **part, "text": last["text"] + part.get("text", "")}
    else:
        parts.append(part)
