"""Constraints of Anthropic's Messages that hold for every model; anthropic_models.py has the others."""

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
    hits_below,
    is_blank,
    items_of,
    names_in,
    objects_of,
    out_of_range,
    repeated,
    short_repr,
    unpaired,
)
from .schema_subsets import (
    anthropic_property_names,
    anthropic_strict,
    count_parameters,
    root_combinators,
    root_type,
)

_WIRE = "anthropic"
_SDK = "anthropic 2.8.0 (2026-11)"
_ERRORS = "https://platform.claude.com/docs/en/api/errors (2026)"
_THINKING = ("thinking", "redacted_thinking")


def messages_of(checked: CheckedBody) -> list[tuple[str, Object]]:
    return list(objects_of(checked.body.get("messages"), "/messages"))


def _blocks(checked: CheckedBody) -> Iterator[tuple[str, Object, Object]]:
    """Yield (path, message, block) for the blocks of the messages."""
    for at, message in messages_of(checked):
        for where, block in objects_of(message.get("content"), f"{at}/content"):
            yield where, message, block


def _client_tools(checked: CheckedBody) -> Iterator[tuple[str, Object]]:
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        if tool.get("type", "custom") in ("custom", None):
            yield at, tool


@constraint(
    "TW001",
    _WIRE,
    "https://github.com/anthropics/claude-code/issues/10687 (2025-10)",
    error="tools: Tool names must be unique.",
)
def check_unique_names(checked: CheckedBody) -> Iterator[Hit]:
    tools = objects_of(checked.body.get("tools"), "/tools")
    named = ((f"{at}/name", tool["name"]) for at, tool in tools if type(tool.get("name")) is str)
    yield from repeated(named, "two tools have the name {!r}")


@constraint("TW003", _WIRE, "https://github.com/home-assistant/core/issues/147760 (2025-06)",
            error="tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")  # fmt: skip
def check_names(checked: CheckedBody) -> Iterator[Hit]:
    named = list(_client_tools(checked))
    named += [(at, block) for at, _, block in _blocks(checked) if block.get("type") == "tool_use"]
    for at, one in named:
        name = one.get("name")
        if type(name) is str and not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name):
            yield Hit(f"{at}/name", f"{short_repr(name)} must match ^[a-zA-Z0-9_-]{{1,128}}$")


@constraint("TW020", _WIRE, f"{_SDK}: ToolParam.input_schema")
def check_root_types(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in _client_tools(checked):
        yield from hits_below(f"{at}/input_schema", root_type(tool.get("input_schema")))


@constraint("TW021", _WIRE, "https://github.com/anthropics/claude-code/issues/40075 (2026-03)",
            error="tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")  # fmt: skip
def check_roots(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in _client_tools(checked):
        hits = root_combinators(tool.get("input_schema"), ("oneOf", "allOf", "anyOf"))
        yield from hits_below(f"{at}/input_schema", hits)


@constraint("TW022", _WIRE, "claude-code issues (2025-2026)",
            error="tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'")  # fmt: skip
def check_property_names(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in _client_tools(checked):
        yield from hits_below(f"{at}/input_schema", anthropic_property_names(tool.get("input_schema")))


@constraint("TW109", _WIRE, "https://platform.claude.com/docs/en/build-with-claude/structured-outputs (2026)",
            error="tools.0.custom: For 'integer' type, properties maximum, minimum are not supported")  # fmt: skip
def check_strict(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in _client_tools(checked):
        if tool.get("strict") is True:
            yield from hits_below(f"{at}/input_schema", anthropic_strict(tool.get("input_schema")))


@constraint("TW012", _WIRE, "https://github.com/firebase/genkit/issues/5230 (2026)",
            error="Schemas contains too many parameters with union types (limit: 16)")  # fmt: skip
def check_strict_budget(checked: CheckedBody) -> Iterator[Hit]:
    """Report strict tools, optional parameters or union types of all strict tools together above the limits."""
    schemas = [tool.get("input_schema") for _, tool in _client_tools(checked) if tool.get("strict") is True]
    counted = [count_parameters(schema) for schema in schemas]
    totals = (len(schemas), sum(one for one, _ in counted), sum(one for _, one in counted))
    for total, limit, what in zip(
        totals, (20, 24, 16), ("strict tools", "optional parameters", "union types"), strict=True
    ):
        if total > limit:
            yield Hit("/tools", f"strict tools may have at most {limit} {what} together, got {total}")


@constraint("TW110", _WIRE, "https://platform.claude.com/docs/en/build-with-claude/structured-outputs (2026)",
            error="For 'object' type, 'additionalProperties' must be explicitly set to false")  # fmt: skip
def check_answer_schema(checked: CheckedBody) -> Iterator[Hit]:
    schema = child_object(checked.body, "output_config", "format").get("schema")
    yield from hits_below("/output_config/format/schema", anthropic_strict(schema))


@constraint("TW053", _WIRE, "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools (2026)")
def check_choice(checked: CheckedBody) -> Iterator[Hit]:
    choice = child_object(checked.body, "tool_choice")
    declared = names_in(objects_of(checked.body.get("tools"), "/tools"))
    name = choice.get("name")
    if choice.get("type") == "tool" and type(name) is str and declared and name not in declared:
        yield Hit("/tool_choice/name", f"no tool has the name {short_repr(name)}")


@constraint(
    "TW106",
    _WIRE,
    "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools (2026)",
    error="tool_choice may only be specified while providing tools.",
)
def check_choice_without_tools(checked: CheckedBody) -> Iterator[Hit]:
    if (
        checked.body.get("tool_choice") is not None
        and not checked.body.get("tools")
        and not checked.body.get("mcp_servers")
    ):
        yield Hit("/tool_choice", "a tool choice needs tools, and the request declares none")


def _steps(messages: list[tuple[str, Object]]) -> Iterator[CallTurn]:
    """Yield the calls and results of each turn; consecutive messages of one role are one turn, as in the API."""
    calls: list[CallRef] = []
    results: list[CallRef] = []
    role: JSON = None
    for at, message in messages:
        if message.get("role") == "system":
            continue
        if message.get("role") != role and role is not None:
            yield CallTurn(calls, results)
            calls, results = [], []
        role = message.get("role")
        for where, block in objects_of(message.get("content"), f"{at}/content"):
            if block.get("type") == "tool_use" and role == "assistant":
                calls.append(CallRef(where, str(block.get("id"))))
            elif block.get("type") == "tool_result" and role == "user":
                results.append(CallRef(f"{where}/tool_use_id", str(block.get("tool_use_id"))))
    yield CallTurn(calls, results)


@constraint("TW061", _WIRE, "https://github.com/Hmbown/Codewhale/issues/4329 (2026-07)",
            error="`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.")  # fmt: skip
def check_pairs(checked: CheckedBody) -> Iterator[Hit]:
    yield from unpaired(_steps(messages_of(checked)))


@constraint("TW062", _WIRE, "claude-code issues (2025-2026); recorded exchanges of pydantic-ai 4fda3898 (2026-08)",
            error="messages.3.content.0: `tool_use` ids must be unique")  # fmt: skip
def check_ids_unique(checked: CheckedBody) -> Iterator[Hit]:
    """Report an id that two calls of a turn share; an id of an earlier, answered turn is accepted again."""
    for step in _steps(messages_of(checked)):
        yield from repeated(
            ((f"{call.path}/id", call.id) for call in step.calls), "two calls of a turn have the id {!r}"
        )


@constraint("TW130", _WIRE, "https://github.com/HKUDS/nanobot/pull/4356 (2026-06)",
            error="messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")  # fmt: skip
def check_call_ids(checked: CheckedBody) -> Iterator[Hit]:
    for at, _, block in _blocks(checked):
        key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(block.get("type")), "")
        call_id = block.get(key)
        if type(call_id) is str and not re.fullmatch(r"[a-zA-Z0-9_-]+", call_id):
            yield Hit(f"{at}/{key}", f"{short_repr(call_id)} must match ^[a-zA-Z0-9_-]+$")


@constraint(
    "TW063",
    _WIRE,
    f"{_SDK}: ThinkingBlockParam.signature",
    error="messages.1.content.0.thinking.signature: Field required",
)
def check_signatures(checked: CheckedBody) -> Iterator[Hit]:
    for at, _, block in _blocks(checked):
        if block.get("type") == "thinking" and not block.get("signature"):
            yield Hit(at, "thinking is only accepted with the signature that came with it")


@constraint(
    "TW065",
    _WIRE,
    "https://github.com/LibreChat-AI/agents/pull/124 (2026-04)",
    error="messages: text content blocks must be non-empty",
)
def check_empty(checked: CheckedBody) -> Iterator[Hit]:
    """Report messages without content, empty texts, and messages whose only texts are whitespace.

    A final assistant message may be empty: the answer continues it.
    """
    messages = messages_of(checked)
    for index, (at, message) in enumerate(messages):
        content = message.get("content")
        final = index == len(messages) - 1 and message.get("role") == "assistant"
        if content in ("", []) and not final:
            yield Hit(f"{at}/content", "every message needs content, except a final assistant message")
        elif is_blank(content) and content:
            yield Hit(f"{at}/content", "the text must contain more than whitespace")
        yield from _check_texts(list(objects_of(content, f"{at}/content")))
    for at, block in objects_of(checked.body.get("system"), "/system"):
        if block.get("text") == "":
            yield Hit(f"{at}/text", "the text must not be empty")


def _check_texts(blocks: list[tuple[str, Object]]) -> Iterator[Hit]:
    """Check the texts of a message. A text of whitespace is accepted beside another text, an empty one is not."""
    texts = [(f"{at}/text", block["text"]) for at, block in blocks if type(block.get("text")) is str]
    has_text = any(not is_blank(text) for _, text in texts)
    for at, text in texts:
        if text == "":
            yield Hit(at, "the text must not be empty")
        elif is_blank(text) and not has_text:
            yield Hit(at, "the text must contain more than whitespace")
    for at, block in blocks:
        for where, inner in objects_of(block.get("content"), f"{at}/content"):
            if block.get("type") == "tool_result" and inner.get("text") == "":
                yield Hit(f"{where}/text", "the text must not be empty")


@constraint("TW104", _WIRE, _ERRORS, error="messages: at least one message is required")
def check_no_messages(checked: CheckedBody) -> Iterator[Hit]:
    if checked.body.get("messages") == []:
        yield Hit("/messages", "at least one message is required")


@constraint("TW105", _WIRE, f"{_SDK}: MessageCreateParams", error="temperature: range: 0..1")
def check_ranges(checked: CheckedBody) -> Iterator[Hit]:
    limits = (("max_tokens", 0, float("inf")), ("temperature", 0, 1), ("top_p", 0, 1), ("top_k", 0, float("inf")))
    yield from out_of_range(checked.body, limits)
    user = child_object(checked.body, "metadata").get("user_id")
    if type(user) is str and len(user) > 256:
        yield Hit("/metadata/user_id", f"user_id has at most 256 characters, got {len(user)}")


@constraint("TW108", _WIRE, _ERRORS, error="stop_sequences: each stop sequence must contain non-whitespace")
def check_stop(checked: CheckedBody) -> Iterator[Hit]:
    for index, one in enumerate(items_of(checked.body.get("stop_sequences"))):
        if is_blank(one):
            yield Hit(f"/stop_sequences/{index}", "a stop sequence must contain more than whitespace")


@constraint("TW123", _WIRE, "https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls (2026)")
def check_results_first(checked: CheckedBody) -> Iterator[Hit]:
    """Report, once per user message, a tool result after another block."""
    for at, message in messages_of(checked):
        other = False
        for where, block in objects_of(message.get("content"), f"{at}/content"):
            if block.get("type") != "tool_result":
                other = True
            elif other and message.get("role") == "user":
                yield Hit(where, "results must be the first blocks of a user message")
                break


@constraint("TW124", _WIRE, "https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026)",
            error="messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.")  # fmt: skip
def check_thinking_first(checked: CheckedBody) -> Iterator[Hit]:
    """Report the last assistant turn if it has calls and does not begin with thinking, with a thinking budget."""
    if child_object(checked.body, "thinking").get("type") != "enabled":
        return
    messages = messages_of(checked)
    last = next(
        (index for index in range(len(messages) - 1, -1, -1) if messages[index][1].get("role") == "assistant"), -1
    )
    if last < 0:
        return
    at, message = messages[last]
    while last > 0 and messages[last - 1][1].get("role") == "assistant":
        last -= 1
        at, message = messages[last]
    content = items_of(message.get("content"))
    kinds = [block.get("type") for block in content if type(block) is dict]
    if "tool_use" in kinds and kinds[0] not in _THINKING:
        yield Hit(f"{at}/content/0", f"the turn must begin with thinking, found {kinds[0]!r}")


@constraint("TW125", _WIRE, "https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026)",
            error="A maximum of 4 blocks with cache_control may be provided. Found 5.")  # fmt: skip
def check_cache(checked: CheckedBody) -> Iterator[Hit]:
    found = [""] if checked.body.get("cache_control") else []
    for key in ("tools", "system", "messages"):
        found += _cached(checked.body.get(key), f"/{key}")
    if len(found) > 4:
        yield Hit(f"{found[4]}/cache_control", f"at most 4 blocks may have cache_control, got {len(found)}")


def _cached(value: JSON, at: str, depth: int = 0) -> Iterator[str]:
    """Yield the pointers of the blocks with cache_control: messages contain blocks, and results contain blocks."""
    for where, block in objects_of(value, at):
        if block.get("cache_control") is not None:
            yield where
        if depth < 2:
            yield from _cached(block.get("content"), f"{where}/content", depth + 1)
