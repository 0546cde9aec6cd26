"""Fit system messages to the positions that the target allows."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.parts import Reasoning, Refusal, Text
from ..ir.pointer import join
from ..ir.request import Message, Request
from ..wire.protocol import Wire
from .history import DraftMessage
from .locations import message_index

__all__ = ["ensure_user_message", "fit_system", "has_late_system"]

_SYSTEM = ("system", "developer")


def ensure_user_message(turns: list[DraftMessage], request: Request, wire: Wire, losses: Losses) -> list[DraftMessage]:
    """Ensure a message to answer, for a conversation that is empty or has only system messages."""
    if wire.capabilities.system_only and turns:
        return turns
    if not turns:
        if wire.name in request.extra:  # its provider may store the conversation
            return turns
        hint = "add a user message; state stored by one provider cannot be sent to another"
        raise EncodeError("the request has no message to answer", pointer=join("messages"), hint=hint)
    return [*turns[:-1], _as_user(turns[-1], "the target requires a message to answer", losses)]


def fit_system(turns: list[DraftMessage], wire: Wire, losses: Losses) -> list[DraftMessage]:
    """Move system messages to positions that the target allows, with the least change of their order."""
    can = wire.capabilities
    if can.system_anywhere or not has_late_system(turns):
        return turns
    if not can.prefill:
        turns = _answer_last_system(turns, losses)
    return _move_after_user(turns, losses) if can.system_after_user else _hoist(turns, losses)


def has_late_system(turns: Iterable[DraftMessage], *, is_start: bool = True) -> bool:
    """Return whether a system message is anywhere but at the start. `is_start`: the turns begin the conversation."""
    for turn in turns:
        if turn.message.role in _SYSTEM:
            if not is_start:
                return True
        else:
            is_start = False
    return False


def _as_user(turn: DraftMessage, reason: str, losses: Losses) -> DraftMessage:
    detail = f"{reason}; the last system message is sent as a user message"
    losses.add(join("messages", message_index(turn.locations[0])), "system message", "rewritten", detail)
    return DraftMessage(Message("user", tuple(turn.parts)), turn.parts, turn.locations)


def _answer_last_system(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Send a system message at the end, after an assistant text, as a user message.

    Anywhere else it would leave the assistant text at the end, which the model cannot continue.
    """
    others = [turn for turn in turns if turn.message.role not in _SYSTEM]
    is_continued = bool(others) and others[-1].message.role == "assistant"
    if turns[-1].message.role not in _SYSTEM or not is_continued or not _is_text(others[-1]):
        return turns
    return [*turns[:-1], _as_user(turns[-1], "this model cannot continue an assistant message", losses)]


def _is_text(turn: DraftMessage) -> bool:
    return all(isinstance(part, (Text, Reasoning, Refusal)) for part in turn.parts)


def _hoist(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Move all system messages to the start."""
    head: list[DraftMessage] = []
    rest: list[DraftMessage] = []
    for turn in turns:
        if turn.message.role not in _SYSTEM:
            rest.append(turn)
            continue
        if rest:
            where = join("messages", message_index(turn.locations[0]))
            losses.add(where, "system message", "moved", "the target allows system messages only at the start")
        head.append(turn)
    return head + rest


def _move_after_user(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Move system messages to the end of a run of user messages, where one position holds one message.

    A message between two user messages, or after an assistant message, waits for the end of the next run. Without one,
    it goes to the end of the last run; in a conversation without user messages, to the start.
    """
    fitted: list[DraftMessage] = []
    waiting: list[DraftMessage] = []
    marked = 0  # waiting messages that are in `moved` already
    moved: set[int] = set()
    for turn in turns:
        role = turn.message.role
        if role in _SYSTEM:
            if fitted and fitted[-1].message.role not in ("user", *_SYSTEM):
                moved.add(id(turn))
            waiting.append(turn)
            continue
        if role == "user" and fitted:
            moved.update(map(id, waiting[marked:]))
            marked = len(waiting)
        if not fitted:  # leading messages are at the start already
            fitted, waiting = waiting, []
        elif role == "assistant" and fitted[-1].message.role == "user":
            _insert(fitted, len(fitted), waiting)
            waiting, marked = [], 0
        fitted.append(turn)
    _place_rest(fitted, waiting, moved)
    for turn in turns:
        if id(turn) in moved:
            where = join("messages", message_index(turn.locations[0]))
            detail = "the target allows it only at the start, or after a user message and before the answer to it"
            losses.add(where, "system message", "moved", detail)
    return fitted


def _place_rest(fitted: list[DraftMessage], waiting: list[DraftMessage], moved: set[int]) -> None:
    """Place the messages after the last assistant turn."""
    if not waiting:
        return
    users = [index for index, turn in enumerate(fitted) if turn.message.role == "user"]
    if not users or users[-1] != len(fitted) - 1:
        moved.update(id(message) for message in waiting)
    start = users[-1] + 1 if users else 0
    _insert(fitted, start, waiting)


def _insert(fitted: list[DraftMessage], index: int, waiting: list[DraftMessage]) -> None:
    """Insert system messages as one message, together with one that is already there."""
    if not waiting:
        return
    stop = index
    while stop < len(fitted) and fitted[stop].message.role in _SYSTEM:
        stop += 1
    group = [*fitted[index:stop], *waiting]
    if len(group) > 1:
        parts = tuple([part for turn in group for part in turn.parts])
        locations = [location for turn in group for location in turn.locations]
        group = [DraftMessage(Message("system", parts), parts, locations)]
    fitted[index:stop] = group
