"""Summaries of /api/chat answers."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON
from ...ir.response import Usage
from ..answer_summary import (
    AnswerFields,
    AnswerSummary,
    count_fields,
    count_members,
    decode_fields,
    has_duplicate_keys,
    is_plausible,
)
from .response import STOP_REASONS, read_created

__all__ = ["summarise"]


class _OllamaFunction(AnswerFields):
    name: str
    arguments: dict[str, JSON]
    index: int | UnsetType = UNSET


class _OllamaCall(AnswerFields):
    function: _OllamaFunction
    id: str | UnsetType = UNSET


class _OllamaMessage(AnswerFields):
    role: str
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[_OllamaCall] | UnsetType | None = UNSET


class _OllamaAnswer(AnswerFields):
    model: str
    created_at: str
    message: _OllamaMessage
    done: bool
    done_reason: str
    prompt_eval_count: int
    eval_count: int
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET


_DECODER = Decoder(_OllamaAnswer)


def summarise(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded in full."""
    answer = decode_fields(_DECODER, data)
    if answer is None:
        return None
    reason = STOP_REASONS.get(answer.done_reason)
    usage = Usage(answer.prompt_eval_count, answer.eval_count)
    if reason is None or not is_plausible(usage) or has_duplicate_keys(data, _count_answer(answer)):
        return None
    try:
        read_created({"created_at": answer.created_at})
    except (ProtocolError, OverflowError):
        return None
    calls = tuple([call.function.name for call in answer.message.tool_calls or ()])
    return AnswerSummary("", answer.model, "tool_calls" if calls and reason == "stop" else reason, usage, calls)


def _count_answer(answer: _OllamaAnswer) -> int:
    """Return the number of members of all objects in the answer."""
    members = count_fields(answer) + count_fields(answer.message)
    for call in answer.message.tool_calls or ():
        members += count_fields(call) + count_fields(call.function) + count_members(call.function.arguments)
    return members
