"""Constraints of OpenAI's Chat Completions, and of the vendors with the same wire."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...ir.pointer import JSON, Object
from ..findings import Hit
from .constraints import CheckedBody, constraint
from .documents import (
    CallRef,
    CallTurn,
    child_object,
    items_of,
    names_in,
    objects_of,
    repeated,
    short_repr,
    unpaired,
)
from .openai_shared import (
    CALL_ID_LENGTHS,
    NATIVE,
    check_effort,
    check_format,
    check_image,
    check_media_type,
    check_sampling,
    declare_schema_rules,
    tool_name,
)

_WIRE = "openai_chat"
_SDK = "openai 3.49.0 (2026-11)"
_RECORDED = "recorded exchanges of pydantic-ai 4fda3898 (2026-08)"


def _messages(checked: CheckedBody) -> list[tuple[str, Object]]:
    return list(objects_of(checked.body.get("messages"), "/messages"))


def _calls(message: Object, at: str) -> Iterator[tuple[str, Object]]:
    if message.get("role") == "assistant":
        yield from objects_of(message.get("tool_calls"), f"{at}/tool_calls")


def _tools(checked: CheckedBody) -> Iterator[tuple[str, Object]]:
    """Yield the declarations with their pointers: functions, custom tools, and the older `functions`."""
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        for kind in ("function", "custom"):
            if type(tool.get(kind)) is dict:
                yield f"{at}/{kind}", tool[kind]
    yield from objects_of(checked.body.get("functions"), "/functions")


def _schemas(checked: CheckedBody) -> Iterator[tuple[str, JSON, bool]]:
    for at, tool in _tools(checked):
        if "parameters" in tool:
            yield f"{at}/parameters", tool["parameters"], tool.get("strict") is True


@constraint("TW002", _WIRE, f"{_SDK}: FunctionDefinition.name", vendors=f"{NATIVE} mistral groq",
            error="Invalid 'tools[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'")  # fmt: skip
def check_names(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in _tools(checked):
        yield from tool_name(f"{at}/name", tool.get("name"), 64)
    for at, message in _messages(checked):
        for where, call in _calls(message, at):
            yield from tool_name(f"{where}/function/name", child_object(call, "function").get("name"), 64)


@constraint("TW010", _WIRE, "https://github.com/musistudio/claude-code-router/issues/686 (2025-08)", vendors=NATIVE,
            error="Invalid 'tools': array too long. Expected an array with maximum length 128")  # fmt: skip
def check_count(checked: CheckedBody) -> Iterator[Hit]:
    for key in ("tools", "functions"):
        count = len(items_of(checked.body.get(key)))
        if count > 128:
            yield Hit(f"/{key}", f"at most 128 tools are accepted, got {count}")
    for at, message in _messages(checked):
        if len(items_of(message.get("tool_calls"))) > 128:
            yield Hit(f"{at}/tool_calls", "at most 128 calls are accepted in a message")


declare_schema_rules(_WIRE, _schemas)


@constraint("TW053", _WIRE, f"{_SDK}: ChatCompletionNamedToolChoiceParam", vendors=NATIVE)
def check_choice(checked: CheckedBody) -> Iterator[Hit]:
    """Report names in `tool_choice`, also in its list of allowed tools, that no tool has."""
    choice = checked.body.get("tool_choice")
    declared = names_in(_tools(checked))
    if type(choice) is not dict or not declared:
        return
    entries = [("/tool_choice", choice)]
    if choice.get("type") == "allowed_tools":
        allowed = child_object(choice, "allowed_tools").get("tools")
        entries = list(objects_of(allowed, "/tool_choice/allowed_tools/tools"))
    for at, entry in entries:
        for kind in ("function", "custom"):
            name = child_object(entry, kind).get("name")
            if type(name) is str and name not in declared:
                yield Hit(f"{at}/{kind}/name", f"no tool has the name {short_repr(name)}")


def chat_steps(messages: list[tuple[str, Object]]) -> Iterator[CallTurn]:
    for at, message in messages:
        if message.get("role") == "tool":
            yield CallTurn(results=[CallRef(f"{at}/tool_call_id", str(message.get("tool_call_id")))])
        else:
            yield CallTurn([CallRef(where, str(call.get("id"))) for where, call in _calls(message, at)])


@constraint(
    "TW061", _WIRE, "https://github.com/BerriAI/litellm/issues/10083 (2025-04)", vendors=f"{NATIVE} groq deepseek cerebras mistral xai",
    error="An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
)  # fmt: skip
def check_pairs(checked: CheckedBody) -> Iterator[Hit]:
    yield from unpaired(chat_steps(_messages(checked)))


@constraint("TW062", _WIRE, f"{_SDK}: ChatCompletionToolMessageParam.tool_call_id", vendors=NATIVE)
def check_ids_unique(checked: CheckedBody) -> Iterator[Hit]:
    """Report an id that two calls of a message share."""
    for at, message in _messages(checked):
        named = ((f"{where}/id", call["id"]) for where, call in _calls(message, at) if type(call.get("id")) is str)
        yield from repeated(named, "two calls of a message have the id {!r}")


@constraint("TW130", _WIRE, "https://github.com/Portkey-AI/gateway/issues/1062 (2025-04)", vendors="azure openai_chat",
            error="Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40")  # fmt: skip
def check_call_ids(checked: CheckedBody) -> Iterator[Hit]:
    for at, message in _messages(checked):
        for where, call in _calls(message, at):
            call_id = call.get("id")
            if type(call_id) is str and not 1 <= len(call_id) <= CALL_ID_LENGTHS[_WIRE]:
                most = CALL_ID_LENGTHS[_WIRE]
                yield Hit(f"{where}/id", f"an id has 1 to {most} characters, got {len(call_id)}")


@constraint("TW130", _WIRE, "client-python issues of Mistral, error code 3280 (2024-2026)", vendors="mistral",
            error="Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9.")  # fmt: skip
def check_mistral_ids(checked: CheckedBody) -> Iterator[Hit]:
    for at, message in _messages(checked):
        for where, call in _calls(message, at):
            if not re.fullmatch(r"[a-zA-Z0-9]{9}", str(call.get("id"))):
                yield Hit(f"{where}/id", f"an id has exactly 9 letters and digits, got {short_repr(call.get('id'))}")


@constraint("TW120", _WIRE, "https://github.com/agno-agi/agno/issues/2285 (2025-03)", vendors="mistral",
            error="Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant")  # fmt: skip
def check_mistral_last(checked: CheckedBody) -> Iterator[Hit]:
    messages = _messages(checked)
    if messages and messages[-1][1].get("role") == "assistant" and messages[-1][1].get("prefix") is not True:
        yield Hit(f"{messages[-1][0]}/role", "the last message must have the role 'user' or 'tool', or a prefix")


@constraint("TW135", _WIRE, "https://github.com/zed-industries/zed/issues/37021 (2025-08)", vendors="mistral",
            error="Unexpected role 'user' after role 'tool'")  # fmt: skip
def check_mistral_order(checked: CheckedBody) -> Iterator[Hit]:
    before = None
    for at, message in _messages(checked):
        if before == "tool" and message.get("role") == "user":
            yield Hit(f"{at}/role", "a user message must not be directly after a result")
        before = message.get("role")


@constraint("TW101", _WIRE, f"{_SDK}: ChatCompletionAssistantMessageParam", vendors=NATIVE,
            error="Invalid value for 'content': expected a string, got null.")  # fmt: skip
def check_answers(checked: CheckedBody) -> Iterator[Hit]:
    """Report assistant messages without content, calls, a refusal and audio."""
    for at, message in _messages(checked):
        if message.get("role") == "assistant" and message.get("content") is None:
            if not any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")):
                yield Hit(at, "an assistant message without calls needs content")


@constraint("TW108", _WIRE, f"{_SDK}: CompletionCreateParams.stop", vendors=NATIVE,
            error="Invalid 'stop': array too long. Expected an array with maximum length 4")  # fmt: skip
def check_stop(checked: CheckedBody) -> Iterator[Hit]:
    count = len(items_of(checked.body.get("stop")))
    if count > 4:
        yield Hit("/stop", f"at most 4 stop sequences are accepted, got {count}")


@constraint("TW110", _WIRE, f"{_SDK}: ResponseFormatJSONSchema", vendors=NATIVE,
            error="Invalid schema for response_format")  # fmt: skip
def check_answer_schema(checked: CheckedBody) -> Iterator[Hit]:
    declared = checked.body.get("response_format")
    if type(declared) is dict and declared.get("type") == "json_schema":
        yield from check_format("/response_format/json_schema", child_object(declared, "json_schema"))


@constraint("TW113", _WIRE, "https://platform.openai.com/docs/guides/reasoning (2026)", vendors=NATIVE,
            error="Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.")  # fmt: skip
def check_model_sampling(checked: CheckedBody) -> Iterator[Hit]:
    yield from check_sampling(checked, checked.body.get("reasoning_effort"))


@constraint("TW114", _WIRE, "https://platform.openai.com/docs/guides/reasoning (2026)", vendors=NATIVE,
            error="Unrecognized request argument supplied: reasoning_effort")  # fmt: skip
def check_model_effort(checked: CheckedBody) -> Iterator[Hit]:
    yield from check_effort(checked, checked.body.get("reasoning_effort"), "/reasoning_effort")


@constraint("TW117", _WIRE, f"{_SDK}: CompletionCreateParams.max_tokens, stop; {_RECORDED}", vendors=NATIVE,
            error="Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")  # fmt: skip
def check_model_parameters(checked: CheckedBody) -> Iterator[Hit]:
    model, body = checked.model, checked.body
    if model.reasons and body.get("max_tokens") is not None:
        yield Hit("/max_tokens", f"{model.name} needs max_completion_tokens in place of max_tokens")
    if model.name.startswith(("o3", "o4-mini")) and not model.name.startswith("o3-mini") and body.get("stop"):
        yield Hit("/stop", f"{model.name} does not support stop sequences")
    if model.openai and body.get("web_search_options") is not None and "-search" not in model.name:
        yield Hit("/web_search_options", f"{model.name} does not support web_search_options")


_OUTPUT_LIMITS = (("gpt-3.5", 4096), ("gpt-4-turbo", 4096), ("gpt-4o", 16_384), ("gpt-4.1", 32_768))


@constraint("TW134", _WIRE, "https://github.com/opencode-ai/opencode/issues/140 (2025-05)", vendors=NATIVE,
            error="max_tokens is too large: 50000. This model supports at most 32768 completion tokens")  # fmt: skip
def check_output_limit(checked: CheckedBody) -> Iterator[Hit]:
    model = checked.model
    most = next((limit for prefix, limit in _OUTPUT_LIMITS if model.name.startswith(prefix)), float("inf"))
    for name in ("max_tokens", "max_completion_tokens"):
        value: JSON = checked.body.get(name, 0)
        if type(value) is int and value > most:
            yield Hit(f"/{name}", f"{model.name} writes at most {most} tokens, got {value}")


@constraint("TW118", _WIRE, f"{_RECORDED}: test_openai_o1_mini_system_role", vendors=NATIVE,
            error="Unsupported value: 'messages[0].role' does not support 'system' with this model.")  # fmt: skip
def check_roles(checked: CheckedBody) -> Iterator[Hit]:
    if checked.model.name.startswith(("o1-mini", "o1-preview")):
        for at, message in _messages(checked):
            if message.get("role") in ("system", "developer"):
                yield Hit(f"{at}/role", f"{checked.model.name} does not support the role {message['role']!r}")


@constraint("TW126", _WIRE, f"{_RECORDED}: test_multimodal_tool_return_matrix", vendors=NATIVE,
            error="Invalid 'messages[3]'. Content blocks are expected to be either text or image_url type.")  # fmt: skip
def check_media(checked: CheckedBody) -> Iterator[Hit]:
    """Report audio for a model without audio, and files and images of an unsupported type."""
    for at, message in _messages(checked):
        for where, part in objects_of(message.get("content"), f"{at}/content"):
            if part.get("type") == "input_audio" and checked.model.openai and "audio" not in checked.model.name:
                yield Hit(where, f"{checked.model.name} does not accept audio")
            if part.get("type") == "file":
                yield from check_media_type(f"{where}/file/file_data", child_object(part, "file").get("file_data"))
            if part.get("type") == "image_url":
                yield from check_image(f"{where}/image_url/url", child_object(part, "image_url").get("url"))
