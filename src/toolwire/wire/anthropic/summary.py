"""Summaries of Messages answers. Thinking is signed, so an answer with thinking has no summary."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON
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
from .response import STOP_REASONS, read_usage

__all__ = ["summarise"]


class _MessagesText(AnswerFields, tag_field="type", tag="text"):
    text: str
    citations: list[JSON] | UnsetType | None = UNSET


class _MessagesCall(AnswerFields, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, JSON]
    caller: dict[str, JSON] | UnsetType = UNSET


class _MessagesAnswer(AnswerFields, kw_only=True):
    id: str
    type: Literal["message"]
    role: str | UnsetType = UNSET
    model: str
    content: list[_MessagesText | _MessagesCall]
    stop_reason: str
    stop_sequence: str | UnsetType | None = UNSET
    usage: dict[str, Scalar | dict[str, Scalar]]
    stop_details: UnsetType | None = UNSET
    container: UnsetType | None = UNSET
    context_management: dict[str, JSON] | UnsetType | None = UNSET


_DECODER = Decoder(_MessagesAnswer)


def summarise(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded in full."""
    answer = decode_fields(_DECODER, data)
    if answer is None:
        return None
    reason = STOP_REASONS.get(answer.stop_reason)
    if reason is None or has_duplicate_keys(data, _count_answer(answer)):
        return None
    try:
        usage = read_usage(answer.usage)
    except ProtocolError:
        return None
    if usage is None or not is_plausible(usage):
        return None
    calls = tuple([block.name for block in answer.content if type(block) is _MessagesCall])
    if calls and reason == "stop":
        reason = "tool_calls"
    return AnswerSummary(answer.id, answer.model, reason, usage, calls)


def _count_answer(answer: _MessagesAnswer) -> int:
    """Return the number of members of all objects in the answer."""
    members = count_fields(answer) + count_members(answer.usage)
    for block in answer.content:
        if isinstance(block, _MessagesCall):
            members += 4 + count_members(block.input)
            if block.caller is not UNSET:
                members += 1 + count_members(block.caller)
        elif block.citations is UNSET:
            members += 2
        else:
            members += 3 + count_members(block.citations)
    return members if answer.context_management is UNSET else members + count_members(answer.context_management)
