"""Constraints of OpenAI's Responses."""

from __future__ import annotations

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

__all__: list[str] = []

_WIRE = "openai_responses"
_OPENAPI = "openai/openai-openapi f85dbe22 (2026-08-21)"
_SDK = "openai 3.49.0 (2026-11)"
_RECORDED = "recorded exchanges of pydantic-ai 4fda3898 (2026-08)"
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_OUTPUTS = {output: call for call, output in _CALLS.items()}
_INPUT_ROLES = ("user", "system", "developer")
_PREFIXES = {"reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "message": "msg"}


def _items(checked: CheckedBody) -> list[tuple[str, Object]]:
    return list(objects_of(checked.body.get("input"), "/input"))


def _is_stored(checked: CheckedBody) -> bool:
    """Return True if a part of the conversation is kept by the provider, so that it is not in the body."""
    body = checked.body
    referred = any(item.get("type") == "item_reference" for _, item in _items(checked))
    return referred or any(body.get(key) for key in ("previous_response_id", "conversation", "prompt"))


def _tools(checked: CheckedBody) -> Iterator[tuple[str, Object]]:
    """Yield the function and custom tools, also those inside of namespaces."""
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        if tool.get("type") in ("function", "custom"):
            yield at, tool
        elif tool.get("type") == "namespace":
            yield from objects_of(tool.get("tools"), f"{at}/tools")


def _schemas(checked: CheckedBody) -> Iterator[tuple[str, JSON, bool]]:
    for at, tool in _tools(checked):
        if tool.get("parameters") is not None:
            yield f"{at}/parameters", tool["parameters"], tool.get("strict") is True


@constraint("TW003", _WIRE, f"{_OPENAPI}: FunctionToolParam.name", vendors=NATIVE,
            error="Invalid 'tools[0].name': string does not match pattern '^[a-zA-Z0-9_-]+$'")  # fmt: skip
def check_names(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in _tools(checked):
        yield from tool_name(f"{at}/name", tool.get("name"), 128)
    for at, item in _items(checked):
        if str(item.get("type")) in _CALLS:
            yield from tool_name(f"{at}/name", item.get("name"), 128)


declare_schema_rules(_WIRE, _schemas)


@constraint("TW053", _WIRE, f"{_SDK}: ToolChoiceFunctionParam", vendors=NATIVE)
def check_choice(checked: CheckedBody) -> Iterator[Hit]:
    """Report names in `tool_choice`, also in its list of allowed tools, that no tool has."""
    choice = checked.body.get("tool_choice")
    declared = names_in(_tools(checked))
    if type(choice) is not dict or not checked.body.get("tools"):
        return
    entries = [("/tool_choice", choice)]
    if choice.get("type") == "allowed_tools":
        entries = list(objects_of(choice.get("tools"), "/tool_choice/tools"))
    for at, entry in entries:
        name = entry.get("name")
        if entry.get("type") in ("function", "custom") and type(name) is str and name not in declared:
            yield Hit(f"{at}/name", f"no tool has the name {short_repr(name)}")


@constraint("TW061", _WIRE, f"{_OPENAPI}: FunctionCallOutputItemParam", vendors=f"{NATIVE} openrouter",
            error="No tool output found for function call call_1.")  # fmt: skip
def check_pairs(checked: CheckedBody) -> Iterator[Hit]:
    """Report calls without an output anywhere after them, and outputs without a call before them.

    Nothing is reported if the provider keeps the conversation.
    """
    if _is_stored(checked):
        return
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for at, item in _items(checked):
        call_id = str(item.get("call_id"))
        if str(item.get("type")) in _CALLS:
            calls[call_id] = at
        elif str(item.get("type")).endswith("_call"):
            answered.add(call_id)
        elif str(item.get("type")) in _OUTPUTS:
            if call_id not in calls and call_id not in answered:
                yield Hit(f"{at}/call_id", f"no call with the call_id {short_repr(call_id)} is before this output")
            calls.pop(call_id, None)
            answered.add(call_id)
    for call_id, at in calls.items():
        yield Hit(at, f"the call {short_repr(call_id)} has no output")


@constraint(
    "TW061", _WIRE, f"{_RECORDED}: test_deepseek_responses_rejects_interleaved_function_calls", vendors="deepseek",
    error="No tool output found for tool call call-a.",
)  # fmt: skip
def check_adjacent_pairs(checked: CheckedBody) -> Iterator[Hit]:
    """DeepSeek makes one message of adjacent calls, and needs their outputs right after it."""
    if not _is_stored(checked):
        yield from unpaired(_adjacent_steps(_items(checked)))


def _adjacent_steps(items: list[tuple[str, Object]]) -> Iterator[CallTurn]:
    """Yield the items as turns: adjacent calls together, each output alone, anything else as an empty turn.

    Reasoning between calls does not end a turn.
    """
    calls: list[CallRef] = []
    for at, item in items:
        if str(item.get("type")) in _CALLS:
            calls.append(CallRef(at, str(item.get("call_id"))))
            continue
        if item.get("type") == "reasoning":
            continue
        if calls:
            yield CallTurn(calls)
            calls = []
        yield (
            CallTurn(results=[CallRef(at, str(item.get("call_id")))])
            if str(item.get("type")) in _OUTPUTS
            else CallTurn()
        )
    yield CallTurn(calls)


@constraint("TW062", _WIRE, "https://github.com/vercel/ai/issues/7883 (2025-08)", vendors=NATIVE,
            error="Duplicate item found with id rs_1. Remove duplicate items from your input and try again.")  # fmt: skip
def check_item_ids_unique(checked: CheckedBody) -> Iterator[Hit]:
    identified = (
        (f"{at}/id", item["id"])
        for at, item in _items(checked)
        if type(item.get("id")) is str and item.get("type") != "item_reference"
    )
    yield from repeated(identified, "two items have the id {!r}")


@constraint("TW130", _WIRE, f"{_OPENAPI}: FunctionToolCall.call_id", vendors=NATIVE,
            error="Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64")  # fmt: skip
def check_call_ids(checked: CheckedBody) -> Iterator[Hit]:
    for at, item in _items(checked):
        call_id = item.get("call_id")
        if type(call_id) is str and not 1 <= len(call_id) <= CALL_ID_LENGTHS[_WIRE]:
            yield Hit(f"{at}/call_id", f"a call_id has 1 to {CALL_ID_LENGTHS[_WIRE]} characters, got {len(call_id)}")


@constraint("TW131", _WIRE, "https://github.com/openai/codex/issues/33176 (2026-07)", vendors=NATIVE,
            error="Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.")  # fmt: skip
def check_item_ids(checked: CheckedBody) -> Iterator[Hit]:
    """Report item ids without the prefix of their type, or above 64 characters."""
    for at, item in _items(checked):
        item_id, prefix = item.get("id"), _PREFIXES.get(str(item.get("type", "message")))
        if type(item_id) is not str or prefix is None:
            continue
        if not item_id.startswith(prefix):
            yield Hit(f"{at}/id", f"the id must begin with {prefix!r}, got {short_repr(item_id)}")
        elif len(item_id) > 64:
            yield Hit(f"{at}/id", f"an id has at most 64 characters, got {len(item_id)}")


@constraint("TW129", _WIRE, f"{_RECORDED}: test_openai_responses_thinking_with_modified_history", vendors=NATIVE,
            error="Item 'rs_1' of type 'reasoning' was provided without its required following item.")  # fmt: skip
def check_reasoning(checked: CheckedBody) -> Iterator[Hit]:
    """Report reasoning items with an id whose next item is missing, or was not sent back with its own id."""
    following: Object | None = None
    for at, item in reversed(_items(checked)):
        if item.get("type") != "reasoning":
            following = item
        elif not item.get("id"):
            continue
        elif following is None or following.get("role") in _INPUT_ROLES or str(following.get("type")) in _OUTPUTS:
            yield Hit(at, f"the item after the reasoning {short_repr(item['id'])} is missing")
        elif following.get("role") == "assistant" and not following.get("id"):
            yield Hit(
                at, f"the message after the reasoning {short_repr(item['id'])} is not the provider's: it has no id"
            )


@constraint("TW104", _WIRE, _OPENAPI, vendors=NATIVE)
def check_empty(checked: CheckedBody) -> Iterator[Hit]:
    if checked.body.get("input") == [] and not _is_stored(checked):
        yield Hit("/input", "input must have at least one item")
    for at, item in _items(checked):
        if item.get("content") == [] and item.get("role") in ("user", "system", "developer"):
            yield Hit(f"{at}/content", "content must have at least one part")


@constraint(
    "TW101", _WIRE, f"{_SDK}: ResponseCreateParams", vendors=NATIVE, error="Missing required parameter: 'input'."
)
def check_required(checked: CheckedBody) -> Iterator[Hit]:
    if "input" not in checked.body and not _is_stored(checked):
        yield Hit("", "the field 'input' is missing")
    if not checked.body.get("model") and not checked.body.get("prompt") and checked.provider != "azure":
        yield Hit("", "the field 'model' is missing")


@constraint("TW110", _WIRE, f"{_OPENAPI}: TextResponseFormatJsonSchema", vendors=NATIVE,
            error="Invalid schema for response_format")  # fmt: skip
def check_answer_schema(checked: CheckedBody) -> Iterator[Hit]:
    declared = child_object(checked.body, "text", "format")
    if declared.get("type") == "json_schema":
        if not declared.get("name"):
            yield Hit("/text/format", "a json_schema format needs a name")
        yield from check_format("/text/format", declared)


@constraint("TW113", _WIRE, "https://platform.openai.com/docs/guides/reasoning (2026)", vendors=NATIVE,
            error="Unsupported parameter: 'temperature' is not supported with this model.")  # fmt: skip
def check_model_sampling(checked: CheckedBody) -> Iterator[Hit]:
    yield from check_sampling(checked, child_object(checked.body, "reasoning").get("effort"))


@constraint("TW114", _WIRE, "https://platform.openai.com/docs/guides/reasoning (2026)", vendors=NATIVE,
            error="Unsupported parameter: 'reasoning.effort' is not supported with this model.")  # fmt: skip
def check_model_effort(checked: CheckedBody) -> Iterator[Hit]:
    yield from check_effort(checked, child_object(checked.body, "reasoning").get("effort"), "/reasoning/effort")


@constraint("TW111", _WIRE, f"{_OPENAPI}: CreateResponse.conversation", vendors=NATIVE)
def check_exclusive(checked: CheckedBody) -> Iterator[Hit]:
    if checked.body.get("previous_response_id") and checked.body.get("conversation"):
        yield Hit("/conversation", "previous_response_id and conversation exclude each other")


@constraint("TW126", _WIRE, f"{_RECORDED}: test_multimodal_tool_return_matrix", vendors=NATIVE,
            error="Invalid file data: 'input[3].output[0].file_data'. … got unsupported MIME type 'audio/mpeg'.")  # fmt: skip
def check_media(checked: CheckedBody) -> Iterator[Hit]:
    for at, item in _items(checked):
        for key in ("content", "output"):
            for where, part in objects_of(item.get(key), f"{at}/{key}"):
                yield from check_media_type(f"{where}/file_data", part.get("file_data"))
                yield from _check_file_address(f"{where}/file_url", part.get("file_url"))
                if part.get("type") == "input_image" and part.get("image_url") is not None:
                    yield from check_image(f"{where}/image_url", part["image_url"])


def _check_file_address(path: str, url: JSON) -> Iterator[Hit]:
    """Report addresses of sound and film: "The file type you uploaded is not supported"."""
    if type(url) is str and url.partition("?")[0].lower().endswith((".mp3", ".wav", ".ogg", ".flac", ".mp4", ".webm")):
        yield Hit(path, f"files of this type are not supported: {short_repr(url, 80)}")


@constraint("TW010", _WIRE, "https://github.com/zed-industries/zed/issues/42393 (2025-11)", vendors="azure",
            error="Invalid 'tools': array too long. Expected an array with maximum length 128")  # fmt: skip
def check_count(checked: CheckedBody) -> Iterator[Hit]:
    count = len(items_of(checked.body.get("tools")))
    if count > 128:
        yield Hit("/tools", f"at most 128 tools are accepted, got {count}")
