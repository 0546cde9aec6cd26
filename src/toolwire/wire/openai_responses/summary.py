"""Summaries of Responses objects. Encrypted reasoning is an artefact, so an answer that has it has no summary."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder
from msgspec.structs import astuple

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON
from ...ir.response import StopReason
from ..answer_summary import (
    AnswerFields,
    AnswerSummary,
    Scalar,
    count_fields,
    count_members,
    decode_fields,
    has_duplicate_keys,
    is_plausible,
)
from .response import INCOMPLETE_REASONS, read_usage

__all__ = ["summarise"]


class _ResponsesText(AnswerFields, tag_field="type", tag="output_text"):
    text: str
    annotations: list[JSON] | UnsetType = UNSET
    logprobs: list[JSON] | UnsetType = UNSET


class _ResponsesRefusal(AnswerFields, tag_field="type", tag="refusal"):
    refusal: str


class _ResponsesMessage(AnswerFields, tag_field="type", tag="message"):
    role: Literal["assistant"]
    content: list[_ResponsesText | _ResponsesRefusal]
    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    phase: str | UnsetType | None = UNSET


class _ResponsesCall(AnswerFields, tag_field="type", tag="function_call"):
    call_id: str
    name: str
    arguments: str
    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    namespace: str | UnsetType | None = UNSET


class _ResponsesReasoningText(AnswerFields):
    type: str
    text: str


class _ResponsesReasoning(AnswerFields, tag_field="type", tag="reasoning"):
    id: str
    summary: list[_ResponsesReasoningText]
    content: list[_ResponsesReasoningText] | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    encrypted_content: UnsetType | None = UNSET


class _ResponsesAnswer(AnswerFields, kw_only=True):
    id: str
    object: str | UnsetType = UNSET
    created_at: int | float | UnsetType = UNSET
    status: Literal["completed", "incomplete"]
    model: str
    output: list[_ResponsesMessage | _ResponsesCall | _ResponsesReasoning]
    usage: dict[str, Scalar | dict[str, Scalar]]
    error: UnsetType | None = UNSET
    incomplete_details: dict[str, Scalar] | UnsetType | None = UNSET
    billing: dict[str, Scalar] | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    moderation: JSON = UNSET
    tool_usage: JSON = UNSET
    content_filters: JSON = UNSET  # Azure
    # fields that repeat the request
    background: JSON = UNSET
    conversation: JSON = UNSET
    completed_at: JSON = UNSET
    frequency_penalty: JSON = UNSET
    instructions: JSON = UNSET
    max_output_tokens: JSON = UNSET
    max_tool_calls: JSON = UNSET
    metadata: JSON = UNSET
    parallel_tool_calls: JSON = UNSET
    presence_penalty: JSON = UNSET
    previous_response_id: JSON = UNSET
    prompt_cache_key: JSON = UNSET
    prompt_cache_retention: JSON = UNSET
    reasoning: JSON = UNSET
    safety_identifier: JSON = UNSET
    store: JSON = UNSET
    temperature: JSON = UNSET
    text: JSON = UNSET
    tool_choice: JSON = UNSET
    tools: JSON = UNSET
    top_logprobs: JSON = UNSET
    top_p: JSON = UNSET
    truncation: JSON = UNSET
    user: JSON = UNSET


_DECODER = Decoder(_ResponsesAnswer)


def summarise(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded in full."""
    answer = decode_fields(_DECODER, data)
    if answer is None:
        return None
    reason = _stop_reason(answer)
    if reason is None or has_duplicate_keys(data, _count_answer(answer)):
        return None
    try:
        usage = read_usage(answer.usage)
    except ProtocolError:
        return None
    if usage is None or not is_plausible(usage):
        return None
    calls = tuple([item.name for item in answer.output if type(item) is _ResponsesCall])
    return AnswerSummary(answer.id, answer.model, reason, usage, calls)


def _stop_reason(answer: _ResponsesAnswer) -> StopReason | None:
    """Derive the stop reason as `read_stop` does; None if it is unknown."""
    if answer.status == "incomplete":
        details = answer.incomplete_details or {}
        return INCOMPLETE_REASONS.get(str(details.get("reason")))
    reason: StopReason = "stop"
    for item in answer.output:
        if type(item) is _ResponsesCall:
            return "tool_calls"
        if type(item) is _ResponsesMessage and any(type(content) is _ResponsesRefusal for content in item.content):
            reason = "refusal"
    return reason


def _count_answer(answer: _ResponsesAnswer) -> int:
    """Return the number of members of all objects in the answer."""
    fields = astuple(answer)
    members = len(fields) - fields.count(UNSET)
    for value in fields:
        if type(value) is dict or (type(value) is list and value is not answer.output):
            members += count_members(value)
    for item in answer.output:
        members += 1 + count_fields(item)  # the type
        if type(item) is _ResponsesMessage:
            members += sum([_count_content(content) for content in item.content])
        elif type(item) is _ResponsesReasoning:
            members += 2 * (len(item.summary) + len(item.content or ()))
    return members


def _count_content(content: _ResponsesText | _ResponsesRefusal) -> int:
    members = 1 + count_fields(content)
    if type(content) is _ResponsesText:
        for free in (content.annotations, content.logprobs):
            if free:
                members += count_members(free)
    return members
