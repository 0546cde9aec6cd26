"""Constraints of Anthropic's Messages that depend on the model, the API version or the vendor.

Sources: the pages "What's new in Claude …" and "Migration guide" of each model on platform.claude.com, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Hit
from .anthropic import messages_of
from .constraints import CheckedBody, ModelName, constraint
from .documents import child_object, items_of, objects_of, short_repr

__all__: list[str] = []

_WIRE = "anthropic"
_NEW_MODELS = "https://platform.claude.com/docs/en/models/opus-5-5/whats-new-opus-5-5 (2026-09)"
_SAMPLING = ("temperature", "top_p", "top_k")


def _since(model: ModelName, **versions: tuple[int, int]) -> bool:
    """Return True if the model has at least the version that is given for its tier."""
    tier = model.family.removeprefix("claude-")
    return tier in versions and model.version >= versions[tier]


def _thinks_always(model: ModelName) -> bool:
    return _since(model, opus=(5, 5), sonnet=(5, 5), fable=(5, 0), mythos=(5, 0))


def _has_system_role(model: ModelName) -> bool:
    return _since(model, opus=(4, 8), sonnet=(5, 5), haiku=(5, 5), fable=(5, 0), mythos=(5, 0))


def _has_effort(model: ModelName) -> bool:
    return _since(model, opus=(4, 5), sonnet=(4, 6), haiku=(5, 5), fable=(5, 0), mythos=(5, 0))


@constraint("TW051", _WIRE, "https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026)",
            error="Thinking may not be enabled when tool_choice forces tool use.")  # fmt: skip
def check_forced_thinking(checked: CheckedBody) -> Iterator[Hit]:
    forced = child_object(checked.body, "tool_choice").get("type") in ("any", "tool")
    if forced and child_object(checked.body, "thinking").get("type") == "enabled":
        yield Hit("/tool_choice", "a forced call and a thinking budget exclude each other")


@constraint("TW116", _WIRE, _NEW_MODELS)
def check_forced_choice(checked: CheckedBody) -> Iterator[Hit]:
    choice, model = child_object(checked.body, "tool_choice").get("type"), checked.model
    if choice in ("any", "tool") and _since(model, opus=(5, 5), sonnet=(5, 5), fable=(5, 1), mythos=(5, 1)):
        yield Hit("/tool_choice", f"{model.name} does not support the forced choice {choice!r}")


@constraint("TW115", _WIRE, "anthropic 2.8.0 (2026-11): ThinkingConfigEnabledParam.budget_tokens",
            error="`max_tokens` must be greater than `thinking.budget_tokens`.")  # fmt: skip
def check_budget(checked: CheckedBody) -> Iterator[Hit]:
    """Report a thinking budget below 1024, or not below max_tokens; interleaved thinking may exceed max_tokens."""
    thinking = child_object(checked.body, "thinking")
    budget, most = thinking.get("budget_tokens"), checked.body.get("max_tokens")
    if thinking.get("type") != "enabled" or type(budget) is not int:
        return
    if budget < 1024:
        yield Hit("/thinking/budget_tokens", f"budget_tokens must be at least 1024, got {budget}")
    if type(most) is int and budget >= most and not _interleaves(checked):
        yield Hit("/thinking/budget_tokens", f"budget_tokens must be less than max_tokens ({most}), got {budget}")


def _interleaves(checked: CheckedBody) -> bool:
    """With interleaved thinking, the budget covers all turns between tools, so it may exceed max_tokens."""
    return "interleaved-thinking-2025-05-14" in items_of(checked.body.get("anthropic_beta"))


@constraint("TW114", _WIRE, _NEW_MODELS,
            error='"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
                  '"output_config.effort" to control thinking behavior.')  # fmt: skip
def check_thinking(checked: CheckedBody) -> Iterator[Hit]:
    """Report a kind of thinking that the Claude model does not have."""
    model, kind = checked.model, child_object(checked.body, "thinking").get("type")
    if not model.claude:
        return
    if kind == "enabled" and model.version >= (4, 7):
        yield Hit("/thinking/type", f"{model.name} has no thinking budget; use 'adaptive'")
    elif kind == "adaptive" and model.version < (4, 6):
        yield Hit("/thinking/type", f"{model.name} has no adaptive thinking; use a budget")
    elif kind == "disabled" and _thinks_always(model):
        yield Hit("/thinking/type", f"{model.name} always thinks; leave the field out")
    elif kind == "enabled" and model.version < (3, 7):
        yield Hit("/thinking/type", f"{model.name} does not think")


@constraint(
    "TW114", _WIRE, "recorded exchange test_anthropic_explicit_effort_xhigh_unsupported_model_errors (2026-08)",
    error="This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium.",
)  # fmt: skip
def check_effort(checked: CheckedBody) -> Iterator[Hit]:
    """Report an effort that the Claude model does not have, or not while thinking is disabled."""
    model, effort = checked.model, child_object(checked.body, "output_config").get("effort")
    if effort is None or not model.claude:
        return
    if not _has_effort(model):
        yield Hit("/output_config/effort", f"{model.name} has no effort")
    elif (effort == "max" and model.version < (4, 6)) or (effort == "xhigh" and model.version < (4, 7)):
        yield Hit("/output_config/effort", f"{model.name} has no effort {effort!r}")
    elif effort in ("xhigh", "max") and model.family == "claude-opus" and model.version == (5, 0):
        if child_object(checked.body, "thinking").get("type") == "disabled":
            yield Hit("/output_config/effort", f"{model.name} has no effort {effort!r} while thinking is disabled")


@constraint("TW113", _WIRE, "https://platform.claude.com/docs/en/api/versioning (2026-10)",
            error="temperature: Extra inputs are not permitted")  # fmt: skip
def check_version_sampling(checked: CheckedBody) -> Iterator[Hit]:
    if checked.version is not None and checked.version >= "2026-10-21":
        for name in _SAMPLING:
            if name in checked.body:
                yield Hit(f"/{name}", f"the API version {checked.version} has no {name}")


@constraint("TW113", _WIRE, "https://github.com/sipeed/picoclaw/issues/2939 (2026); https://docs.memberjunction.org/v6.2 RejectsSamplingParams (2026)",
            error="`temperature` is deprecated for this model.")  # fmt: skip
def check_model_sampling(checked: CheckedBody) -> Iterator[Hit]:
    """Report sampling parameters that the model, or any model while it thinks, does not accept.

    Models from 4.7 accept only the default 1, and no top_k.
    """
    model, body = checked.model, checked.body
    given = [name for name in _SAMPLING if body.get(name) is not None]
    thinks = child_object(body, "thinking").get("type") in ("enabled", "adaptive")
    if model.claude and model.version >= (4, 7):
        for name in given:
            if name == "top_k" or body[name] != 1:
                yield Hit(f"/{name}", f"{model.name} does not support {name}")
    elif thinks:
        if body.get("temperature") not in (None, 1):
            yield Hit("/temperature", f"temperature must be 1 while thinking is on, got {body['temperature']!r}")
        if body.get("top_k") is not None:
            yield Hit("/top_k", "top_k must not be set while thinking is on")
        if type(body.get("top_p")) in (int, float) and body["top_p"] < 0.95:
            yield Hit("/top_p", f"top_p must be at least 0.95 while thinking is on, got {body['top_p']!r}")


@constraint("TW113", _WIRE, "github.com/open-webui/functions pull 9 (2025-10)",
            error="`temperature` and `top_p` cannot both be specified for this model. Please use only one.")  # fmt: skip
def check_both_sampling(checked: CheckedBody) -> Iterator[Hit]:
    body, model = checked.body, checked.model
    if model.claude and (4, 1) <= model.version < (4, 7) and {"temperature", "top_p"} <= body.keys():
        yield Hit("/top_p", f"{model.name} accepts temperature or top_p, not both")


@constraint("TW117", _WIRE, "https://docs.claude.com/en/docs/build-with-claude/structured-outputs (2026)")
def check_structured(checked: CheckedBody) -> Iterator[Hit]:
    """Report structured outputs and strict tools for models before Opus 4.1, Sonnet 4.5 and Haiku 4.5."""
    model = checked.model
    newer = {"opus": (4, 1), "sonnet": (4, 5), "haiku": (4, 5), "fable": (5, 0), "mythos": (5, 0)}
    if not model.claude or _since(model, **newer):
        return
    if child_object(checked.body, "output_config").get("format") is not None:
        yield Hit("/output_config/format", f"{model.name} has no structured outputs")
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        if tool.get("strict") is True:
            yield Hit(f"{at}/strict", f"{model.name} has no strict tools")


@constraint(
    "TW134", _WIRE, "https://github.com/UKGovernmentBEIS/inspect_ai/pull/2675 (2025-10); vercel/ai pull 10554 (2025-11)"
)
def check_output_limit(checked: CheckedBody) -> Iterator[Hit]:
    model, value = checked.model, checked.body.get("max_tokens")
    if model.claude and type(value) is int and value > _output_limit(model):
        yield Hit("/max_tokens", f"{model.name} writes at most {_output_limit(model)} tokens, got {value}")


def _output_limit(model: ModelName) -> int:
    """Return the most tokens that a model writes. Claude 3.7 writes 128,000 with a beta header, as 4.6 and later do."""
    if model.version >= (4, 6) or model.version == (3, 7):
        return 128_000
    if model.version >= (4, 0):
        return 32_000 if model.family == "claude-opus" and model.version < (4, 5) else 64_000
    return 8192 if model.version == (3, 5) else 4096


@constraint("TW118", _WIRE, "https://github.com/anthropics/claude-code/issues/61412 (2026-05)",
            error="role 'system' is not supported on this model")  # fmt: skip
def check_system_role(checked: CheckedBody) -> Iterator[Hit]:
    if checked.model.claude and not _has_system_role(checked.model):
        for at, message in messages_of(checked):
            if message.get("role") == "system":
                yield Hit(f"{at}/role", f"{checked.model.name} does not support the role 'system' inside of messages")


@constraint(
    "TW119", _WIRE, "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages (2026)"
)
def check_system_position(checked: CheckedBody) -> Iterator[Hit]:
    """Report system messages that are not directly after a user turn, and last or before an assistant turn."""
    messages = messages_of(checked) if checked.model.claude else []
    for index, (at, message) in enumerate(messages):
        if message.get("role") != "system":
            continue
        before = messages[index - 1][1].get("role") if index else None
        after = messages[index + 1][1].get("role") if index + 1 < len(messages) else "assistant"
        if before != "user" or after != "assistant":
            yield Hit(
                at,
                f"a system message must be between a user and an assistant turn, is between {before!r} and {after!r}",
            )


@constraint("TW120", _WIRE, "https://platform.claude.com/docs/en/api/errors#prefill-not-supported (2026)",
            error="This model does not support assistant message prefill. The conversation must end with a user message.")  # fmt: skip
def check_prefill(checked: CheckedBody) -> Iterator[Hit]:
    """Report a last assistant message if the model, or any model while it thinks, cannot continue it.

    The answer of a paused turn is sent back as it is, and accepted.
    """
    messages, model = messages_of(checked), checked.model
    if not messages or messages[-1][1].get("role") != "assistant":
        return
    at, message = messages[-1]
    if _is_paused(message.get("content")):
        return
    if model.claude and model.version >= (4, 6):
        yield Hit(f"{at}/role", f"{model.name} does not continue an assistant message")
    elif child_object(checked.body, "thinking").get("type") in ("enabled", "adaptive"):
        yield Hit(f"{at}/role", "an assistant message cannot be continued while thinking is on")


def _is_paused(content: object) -> bool:
    """Return True for a turn that the provider paused (`pause_turn`): it is sent back as it came."""
    blocks = [block for _, block in objects_of(content, "")]
    return any(str(block.get("type")) in ("server_tool_use", "mcp_tool_use") or str(block.get("type")).endswith("_tool_result") for block in blocks)  # fmt: skip


@constraint("TW121", _WIRE, "https://github.com/tailcallhq/forgecode/issues/1872 (2025-11)",
            error="messages: final assistant content cannot end with trailing whitespace")  # fmt: skip
def check_trailing_space(checked: CheckedBody) -> Iterator[Hit]:
    """Report a last assistant message whose text, or last block, ends with whitespace."""
    messages = messages_of(checked)
    if not messages or messages[-1][1].get("role") != "assistant":
        return
    at, message = messages[-1]
    content, where = message.get("content"), f"{at}/content"
    if type(content) is list and content and type(content[-1]) is dict:
        where, content = f"{where}/{len(content) - 1}/text", content[-1].get("text")
    if type(content) is str and content != content.rstrip():
        yield Hit(where, f"the text must not end with whitespace, ends with {short_repr(content[-3:])}")


@constraint(
    "TW133", _WIRE, "recorded exchange test_anthropic_bedrock_count_tokens_rejects_server_tools (2026-08)", vendors="bedrock",
    error="tools.0: Input tag 'web_search_20250305' found using 'type' does not match any of the expected tags",
)  # fmt: skip
def check_server_tools(checked: CheckedBody) -> Iterator[Hit]:
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        kind = str(tool.get("type", "custom"))
        if kind.startswith(("web_search_", "web_fetch_", "code_execution_", "mcp_")):
            yield Hit(f"{at}/type", f"Bedrock does not run the server tool {kind!r}")
