"""Fit the first and the last message of a conversation to the target."""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Opaque, Reasoning, Refusal, Text
from ..ir.pointer import join
from ..ir.request import Message
from ..wire.protocol import Capabilities
from .history import DraftMessage
from .locations import location_pointer, message_index

__all__ = ["BLANK", "CLOSING", "OPENING", "fit_ends"]

BLANK = "[blank message]"
"""The text of a last user message of which nothing else remains."""
OPENING = "[The conversation begins with the assistant.]"
"""The text of a user message before an assistant message at the start."""

CLOSING = "[Continue.]"
"""The text of a user message after an assistant message that the model cannot continue."""


def fit_ends(turns: list[DraftMessage], can: Capabilities, losses: Losses) -> list[DraftMessage]:
    """Start and end with a user message, and end without trailing whitespace, where the target requires it."""
    if can.starts_with_user:
        turns = _start_with_user(turns, losses)
    if not turns or turns[-1].message.role != "assistant" or not turns[-1].parts:
        return turns
    if not can.prefill:
        turns = _end_with_user(turns, losses)
    return turns if can.blank_text else _strip_last_text(turns, losses)


def _start_with_user(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Insert a user message before a conversation that begins with the model."""
    for index, turn in enumerate(turns):
        role = turn.message.role
        if role == "user":
            return turns
        if role == "assistant":
            return _insert_opening(turns, index, losses)
    return turns


def _insert_opening(turns: list[DraftMessage], first: int, losses: Losses) -> list[DraftMessage]:
    if any(isinstance(part, Opaque) for part in turns[first].parts):
        return turns  # a block of the provider's own, such as a compaction, may come first
    opening, location = (Text(OPENING),), turns[first].locations[0]
    detail = "the target requires a user message first; one was inserted before it"
    losses.add(join("messages", message_index(location)), "assistant message at the start", "rewritten", detail)
    return [*turns[:first], DraftMessage(Message("user", opening), opening, [location]), *turns[first:]]


def _end_with_user(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Append a user message to an assistant text that the model cannot continue.

    A request that ends with one is refused before; here the messages after it are blank, or results that moved to
    their calls.
    """
    last = turns[-1]
    if not all(isinstance(part, (Text, Reasoning, Refusal)) for part in last.parts):
        return turns
    location = last.locations[-1]
    detail = "nothing remains after it, and the model cannot continue it; a user message was added"
    losses.add(join("messages", message_index(location)), "assistant message at the end", "rewritten", detail)
    return [*turns, DraftMessage(Message("user", (Text(CLOSING),)), (Text(CLOSING),), [location])]


def _strip_last_text(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Remove trailing whitespace from the assistant text that the model is to continue."""
    last = turns[-1]
    part = last.parts[-1]
    if last.message.role != "assistant" or not isinstance(part, Text) or part.text == part.text.rstrip():
        return turns
    detail = "the target refuses whitespace at the end of the last assistant message"
    losses.add(location_pointer(last.locations[-1]), "trailing whitespace", "dropped", detail, "info")
    parts = (*last.parts[:-1], replace(part, text=part.text.rstrip()))
    return [*turns[:-1], DraftMessage(replace(last.message, parts=parts), parts, last.locations)]
