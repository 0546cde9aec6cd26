"""Summaries of generateContent answers, in camelCase as Google sends them. A signed part prevents a summary."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON
from ..answer_summary import (
    AnswerFields,
    AnswerSummary,
    count_fields,
    count_members,
    decode_fields,
    has_duplicate_keys,
    is_plausible,
)
from .response import STOP_REASONS, read_usage

__all__ = ["summarise"]


class _GeminiCall(AnswerFields, rename="camel"):
    name: str
    args: dict[str, JSON] | UnsetType = UNSET
    id: str | UnsetType = UNSET


class _GeminiPart(AnswerFields, rename="camel"):
    text: str | UnsetType = UNSET
    function_call: _GeminiCall | UnsetType = UNSET
    thought: bool | UnsetType = UNSET


class _GeminiContent(AnswerFields, rename="camel"):
    parts: list[_GeminiPart]
    role: str | UnsetType = UNSET


class _GeminiCandidate(AnswerFields, rename="camel"):
    content: _GeminiContent
    finish_reason: str
    index: int | UnsetType = UNSET
    safety_ratings: list[JSON] | UnsetType = UNSET
    citation_metadata: dict[str, JSON] | UnsetType = UNSET
    grounding_metadata: dict[str, JSON] | UnsetType = UNSET
    avg_logprobs: float | UnsetType = UNSET
    token_count: int | UnsetType = UNSET


class _GeminiAnswer(AnswerFields, rename="camel"):
    candidates: tuple[_GeminiCandidate]
    usage_metadata: dict[str, JSON]
    model_version: str | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    create_time: str | UnsetType = UNSET


_DECODER = Decoder(_GeminiAnswer)
_FAULTS = ("malformed_call", "error")  # `stop_fault`


def summarise(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded in full."""
    answer = decode_fields(_DECODER, data)
    if answer is None:
        return None
    candidate = answer.candidates[0]
    reason = STOP_REASONS.get(candidate.finish_reason, "error")
    if reason in _FAULTS or has_duplicate_keys(data, _count_answer(answer, candidate)):
        return None
    try:
        usage = read_usage(answer.usage_metadata)
    except ProtocolError:
        return None
    if usage is None or not is_plausible(usage):
        return None
    calls = tuple([part.function_call.name for part in candidate.content.parts if part.function_call is not UNSET])
    return AnswerSummary(
        answer.response_id or "",
        answer.model_version or "",
        "tool_calls" if calls and reason == "stop" else reason,
        usage,
        calls,
    )


def _count_answer(answer: _GeminiAnswer, candidate: _GeminiCandidate) -> int:
    """Return the number of members of all objects in the answer."""
    members = count_fields(answer) + count_members(answer.usage_metadata)
    members += count_fields(candidate) + count_fields(candidate.content)
    for free in (candidate.safety_ratings, candidate.citation_metadata, candidate.grounding_metadata):
        if free is not UNSET:
            members += count_members(free)
    for part in candidate.content.parts:
        members += count_fields(part)
        if part.function_call is not UNSET:
            members += count_fields(part.function_call)
            if part.function_call.args is not UNSET:
                members += count_members(part.function_call.args)
    return members
