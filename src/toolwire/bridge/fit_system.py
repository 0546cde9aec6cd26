"""Fit system messages to the places that the target allows."""

from __future__ import annotations

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.pointer import join
from ..ir.request import Message, Request
from ..wire.protocol import Wire
from .history import DraftMessage
from .locations import message_index

__all__ = ["ensure_user_message", "hoist_system"]


def ensure_user_message(turns: list[DraftMessage], request: Request, wire: Wire, losses: Losses) -> list[DraftMessage]:
    """Ensure a message to answer, for a conversation that is empty or has only system messages."""
    if wire.capabilities.system_only and turns:
        return turns
    if not turns:
        if wire.name in request.extra:  # its provider may store the conversation
            return turns
        hint = "add a user message; state stored by one provider cannot be sent to another"
        raise EncodeError("the request has no message to answer", pointer=join("messages"), hint=hint)
    last = turns[-1]
    detail = "the target requires a message to answer; the last system message is sent as a user message"
    losses.add(join("messages", message_index(last.locations[0])), "system message", "rewritten", detail)
    return [*turns[:-1], DraftMessage(Message("user", tuple(last.parts)), last.parts, last.locations)]


def hoist_system(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Move all system messages to the start, for a target that allows them only there."""
    head: list[DraftMessage] = []
    rest: list[DraftMessage] = []
    for turn in turns:
        if turn.message.role not in ("system", "developer"):
            rest.append(turn)
            continue
        if rest:
            where = join("messages", message_index(turn.locations[0]))
            losses.add(where, "system message", "moved", "the target allows system messages only at the start")
        head.append(turn)
    return head + rest
