"""Translate with LiteLLM and llm-rosetta, through their own functions.

LiteLLM's hub is Chat: from any wire to Chat, from Chat to any wire, so between two others both steps are taken. It modifies
its input, so every run gets a copy; the copying is measured separately and subtracted.
"""

import json
import logging
import os

WIRES = ("anthropic", "gemini", "openai_chat", "openai_responses")
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro-preview",
    "openai_chat": "gpt-5.1",
    "openai_responses": "gpt-5.1",
}


def copy(document: dict) -> dict:
    return json.loads(json.dumps(document))


class LiteLLM:
    """Translate requests and responses with LiteLLM's transformations."""

    name = "LiteLLM"

    def __init__(self) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        logging.disable(logging.CRITICAL)
        import httpx
        import litellm
        from litellm.completion_extras.litellm_responses_transformation.transformation import (
            LiteLLMResponsesTransformationHandler,
        )
        from litellm.google_genai.adapters.transformation import GoogleGenAIAdapter
        from litellm.llms.anthropic.chat.transformation import AnthropicConfig
        from litellm.llms.anthropic.pass_through.adapters.transformation import LiteLLMAnthropicMessagesAdapter
        from litellm.llms.openai.chat.gpt_transformation import OpenAIGPTConfig
        from litellm.llms.vertex_ai.gemini.transformation import transform_request_body
        from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig
        from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig
        from litellm.utils import ModelResponse, get_optional_params

        self.version = litellm.__version__ if hasattr(litellm, "__version__") else _version("litellm")
        self._optional = get_optional_params
        self._model_response = ModelResponse
        self._anthropic, self._messages = AnthropicConfig(), LiteLLMAnthropicMessagesAdapter()
        self._gemini_body, self._gemini = transform_request_body, VertexGeminiConfig()
        self._google = GoogleGenAIAdapter()
        self._openai = OpenAIGPTConfig()
        self._responses = LiteLLMCompletionResponsesConfig
        self._responses_handler = LiteLLMResponsesTransformationHandler()
        self._http = httpx.Response(200)

    def request(self, source: str, target: str, body: dict) -> dict:
        chat = self._to_chat(source, body)
        return self._from_chat(target, chat)

    def _to_chat(self, source: str, body: dict) -> dict:
        if source == "openai_chat":
            return body
        if source == "anthropic":
            translated = self._messages.translate_anthropic_to_openai(body)
            return dict(translated[0] if isinstance(translated, tuple) else translated)
        if source == "gemini":
            config = {**body.get("generationConfig", {}), "tools": body.get("tools")}
            return self._google.translate_generate_content_to_completion(
                MODELS["gemini"], body["contents"], config, tools=body.get("tools")
            )
        rest = {key: value for key, value in body.items() if key not in ("model", "input")}
        return self._responses.transform_responses_api_request_to_chat_completion_request(
            body["model"], body["input"], rest
        )

    def _from_chat(self, target: str, chat: dict) -> dict:
        model = MODELS[target]
        given = {
            key: value
            for key, value in chat.items()
            if key in ("tools", "tool_choice", "max_tokens", "temperature", "stream")
        }
        if target == "anthropic":
            optional = self._optional(model=model, custom_llm_provider="anthropic", messages=chat["messages"], **given)
            return self._anthropic.transform_request(model, chat["messages"], optional, {}, {})
        if target == "gemini":
            optional = self._optional(model=model, custom_llm_provider="gemini", messages=chat["messages"], **given)
            return self._gemini_body(chat["messages"], model, optional, "gemini", {}, None)
        optional = self._optional(model=model, custom_llm_provider="openai", messages=chat["messages"], **given)
        if target == "openai_chat":
            return self._openai.transform_request(model, chat["messages"], optional, {}, {})
        return self._responses_handler.transform_request(model, chat["messages"], optional, {}, {}, _Log())

    def response(self, source: str, target: str, body: dict) -> object:
        return self._answer_from_chat(target, self._answer_to_chat(source, body))

    def _answer_to_chat(self, source: str, body: dict):
        if source == "openai_chat":
            return self._model_response(**body)
        if source == "anthropic":
            return self._anthropic.transform_parsed_response(body, self._http, self._model_response())
        if source == "gemini":
            return self._gemini._transform_google_generate_content_to_openai_model_response(
                body, self._model_response(), MODELS["gemini"], _Log(), self._http
            )
        raise NotImplementedError("Responses to Chat needs a live exchange")

    def _answer_from_chat(self, target: str, chat):
        if target == "openai_chat":
            return chat.model_dump()
        if target == "anthropic":
            return self._messages.translate_openai_response_to_anthropic(chat)
        if target == "gemini":
            return self._google.translate_completion_to_generate_content(chat)
        return self._responses.transform_chat_completion_response_to_responses_api_response("hi", {}, chat)


class _Log:
    """A replacement for LiteLLM's logging object."""

    def __init__(self) -> None:
        self.optional_params: dict = {}
        self.model_call_details: dict = {}

    def __getattr__(self, name: str):
        return lambda *_, **__: None


class Rosetta:
    """Translate requests and responses with llm-rosetta."""

    name = "llm-rosetta"
    _names = {
        "anthropic": "anthropic",
        "gemini": "google",
        "openai_chat": "openai_chat",
        "openai_responses": "openai_responses",
    }

    def __init__(self) -> None:
        import llm_rosetta

        self.version = _version("llm-rosetta")
        self._rosetta = llm_rosetta

    def request(self, source: str, target: str, body: dict) -> dict:
        return self._rosetta.convert(body, self._names[target], self._names[source])

    def response(self, source: str, target: str, body: dict) -> dict:
        from llm_rosetta import get_converter_for_provider

        read, write = get_converter_for_provider(self._names[source]), get_converter_for_provider(self._names[target])
        return write.response_to_provider(read.response_from_provider(body))


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
