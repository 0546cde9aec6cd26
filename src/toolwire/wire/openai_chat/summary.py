"""Summaries of Chat answers: the fields of OpenAI and of the servers that copy its API."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder
from msgspec.structs import astuple

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON
from ..answer_summary import (
    AnswerFields,
    AnswerSummary,
    Scalar,
    count_members,
    decode_fields,
    has_duplicate_keys,
    is_plausible,
)
from .response import STOP_REASONS, read_usage

__all__ = ["summarise"]


class _ChatFunction(AnswerFields):
    name: str
    arguments: str


class _ChatCall(AnswerFields, kw_only=True):
    index: int | UnsetType = UNSET
    id: str
    type: Literal["function"] | UnsetType = UNSET
    function: _ChatFunction


class _ChatMessage(AnswerFields):
    role: str
    content: str | UnsetType | None = UNSET
    tool_calls: list[_ChatCall] | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    annotations: tuple[()] | UnsetType | None = UNSET
    audio: UnsetType | None = UNSET
    function_call: UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    reasoning_details: list[JSON] | UnsetType = UNSET  # OpenRouter


class _ChatChoice(AnswerFields, kw_only=True):
    index: int | UnsetType = UNSET
    message: _ChatMessage
    logprobs: UnsetType | None = UNSET
    finish_reason: str
    stop_reason: str | int | UnsetType | None = UNSET  # vLLM
    matched_stop: str | int | UnsetType | None = UNSET  # SGLang
    token_ids: UnsetType | None = UNSET
    native_finish_reason: str | UnsetType | None = UNSET  # OpenRouter
    seed: int | UnsetType | None = UNSET  # Together


class _ChatAnswer(AnswerFields, kw_only=True):
    id: str
    object: str | UnsetType = UNSET
    created: int | UnsetType = UNSET
    model: str
    choices: tuple[_ChatChoice]
    usage: dict[str, Scalar | dict[str, Scalar]]
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    provider: str | UnsetType = UNSET
    prompt_logprobs: UnsetType | None = UNSET
    prompt_token_ids: UnsetType | None = UNSET
    kv_transfer_params: UnsetType | None = UNSET
    timings: dict[str, JSON] | UnsetType = UNSET  # llama.cpp
    time_info: dict[str, JSON] | UnsetType = UNSET  # Cerebras
    x_groq: dict[str, JSON] | UnsetType = UNSET
    usage_breakdown: dict[str, JSON] | UnsetType | None = UNSET  # Groq
    moderation: JSON = UNSET


_DECODER = Decoder(_ChatAnswer)
_get_function_name = attrgetter("function.name")
_CALL_MEMBERS = 6  # index, id, type, function with name and arguments
_FREE_FIELDS = 5  # the last fields of an answer, from `timings` on
_NO_FREE_FIELDS = (UNSET,) * _FREE_FIELDS


def summarise(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded in full."""
    answer = decode_fields(_DECODER, data)
    if answer is None:
        return None
    choice = answer.choices[0]
    message = choice.message
    reason = STOP_REASONS.get(choice.finish_reason, "error")
    if reason == "error" or has_duplicate_keys(data, _count_answer(answer, choice)):
        return None
    try:
        usage = read_usage(answer.usage)
    except ProtocolError:
        return None
    if usage is None or not is_plausible(usage):
        return None
    calls = tuple(map(_get_function_name, message.tool_calls)) if message.tool_calls else ()
    if reason == "stop" or reason == "tool_calls":  # the content decides where they disagree, as in `make_stop`
        reason = "tool_calls" if calls else "refusal" if message.refusal else "stop"
    return AnswerSummary(answer.id, answer.model, reason, usage, calls)


def _count_answer(answer: _ChatAnswer, choice: _ChatChoice) -> int:
    """Return the number of members of all objects in the answer."""
    message = choice.message
    fields = astuple(choice) + astuple(message) + astuple(answer)
    usage = answer.usage
    members = len(fields) - fields.count(UNSET)
    members += count_members(usage) if dict in map(type, usage.values()) else len(usage)
    for call in message.tool_calls or ():
        members += _CALL_MEMBERS - (call.index is UNSET) - (call.type is UNSET)
    if message.reasoning_details is not UNSET:
        members += count_members(message.reasoning_details)
    free = fields[-_FREE_FIELDS:]
    return members if free == _NO_FREE_FIELDS else members + sum([count_members(value) for value in free])
