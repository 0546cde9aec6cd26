"""Fit a conversation to a target: as it is, from a stored beginning, or turn by turn.

System messages move to the positions that the target allows. The first and the last message get the roles that it
requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.losses import Losses
from ...ir.parts import Opaque, Reasoning, Refusal, Text, ToolResult
from ...ir.pointer import join
from ...ir.request import Message, Request
from ...ir.tools import Tool
from ...schema.lowering.lowered import Lowered
from ...wire.protocol import Capabilities, Wire
from ..conversation.fitted_prefix import FittedPrefix, PrefixReuse
from ..conversation.history import DraftMessage, gather, location_pointer, merge_turns, message_index, normalise
from ..conversation.names import NameMap
from ..conversation.outline import HistoryOutline, fit_plain
from ..conversation.provider_state import continues_stored
from .tool_search import NO_SEARCH, HistorySearch, SearchPlan
from .turns import TurnFitter

_SYSTEM = ("system", "developer")


def ensure_user_message(turns: list[DraftMessage], request: Request, wire: Wire, losses: Losses) -> list[DraftMessage]:
    """Return turns that end with a user message, for a conversation that is empty or has only system messages.

    The last system message becomes a user message, unless the target answers system messages. Raise EncodeError if
    there is no message at all, unless the target's own fields may refer to a stored conversation.
    """
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
    """Move all system messages to the start, with a loss for each that moves."""
    system_turns: list[DraftMessage] = []
    others: list[DraftMessage] = []
    for turn in turns:
        if turn.message.role not in _SYSTEM:
            others.append(turn)
            continue
        if others:
            where = join("messages", message_index(turn.locations[0]))
            losses.add(where, "system message", "moved", "the target allows system messages only at the start")
        system_turns.append(turn)
    return system_turns + others


def _move_after_user(turns: list[DraftMessage], losses: Losses) -> list[DraftMessage]:
    """Move system messages to the end of a run of user messages, with losses; one position holds one message.

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
    """Insert system messages at `index` of `fitted`, in place, merged with those already there into one message."""
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


OPENING = "[The conversation begins with the assistant.]"
"""The text of a user message before an assistant message at the start."""

CLOSING = "[Continue.]"
"""The text of a user message after an assistant message that the model cannot continue."""


def fit_ends(turns: list[DraftMessage], can: Capabilities, losses: Losses) -> list[DraftMessage]:
    """Start and end with a user message, and end without trailing whitespace, where the target requires it.

    Return the changed turns, and add every change to `losses`.
    """
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
    """Remove trailing whitespace from the assistant text that the model is to continue, with a loss."""
    last = turns[-1]
    part = last.parts[-1]
    if last.message.role != "assistant" or not isinstance(part, Text) or part.text == part.text.rstrip():
        return turns
    detail = "the target refuses whitespace at the end of the last assistant message"
    losses.add(location_pointer(last.locations[-1]), "trailing whitespace", "dropped", detail, "info")
    parts = (*last.parts[:-1], replace(part, text=part.text.rstrip()))
    return [*turns[:-1], DraftMessage(replace(last.message, parts=parts), parts, last.locations)]


def fit_history(
    request: Request,
    wire: Wire,
    names: NameMap,
    losses: Losses,
    history_model: str | None,
    lifts: Mapping[str, Lowered],
    plan: SearchPlan,
    tools: list[tuple[Tool, int]],
    reuse: PrefixReuse | None,
    outline: HistoryOutline,
) -> tuple[list[DraftMessage], int]:
    """Return the conversation in a form that the target accepts, and the number of its cache marks.

    `lifts` are the tools whose arguments change shape. `plan` and `tools` are the search and the tools on the target.
    `reuse` has the form of the first messages, and stores it for the next request. `outline` describes the messages.
    Raise EncodeError if the target cannot continue the last message, or there is none to answer.
    """
    _refuse_prefill(request, wire)
    can = wire.capabilities
    # the provider stores the beginning, so calls and results cannot be paired here
    is_part = bool(request.extra or outline.may_refer) and continues_stored(request, wire.name, outline)
    if outline.plain is not None and plan is NO_SEARCH and not is_part:
        turns = fit_plain(outline.plain, wire, names, losses, lifts)
        if turns is not None:
            return fit_ends(turns, can, losses), 0
    search = HistorySearch(request, plan, tools)
    new_fitter = partial(TurnFitter, request, wire, names, history_model, lifts, search)
    if reuse is not None and not is_part:
        fitted = _fit_rest(request, can, losses, new_fitter, reuse)
        if fitted is not None:
            return fitted
    fitter = new_fitter(losses)
    turns = fitter.fit_all(gather(request.messages) if is_part else normalise(request.messages, losses))
    if not is_part and all(turn.message.role in ("system", "developer") for turn in turns):
        turns = ensure_user_message(turns, request, wire, losses)
    turns = merge_turns(fit_system(turns, wire, losses), can)
    return turns if is_part else fit_ends(turns, can, losses), fitter.marks


def _fit_rest(
    request: Request, can: Capabilities, losses: Losses, new_fitter: Callable[[Losses], TurnFitter], reuse: PrefixReuse
) -> tuple[list[DraftMessage], int] | None:
    """Fit the messages after the reused prefix and save the longer prefix; return the turns and the number of marks.

    Return None where fitting has to look across the boundary: if results are missing or out of place, or a system
    message has to move. The result is the same as without `reuse`.
    """
    prefix, messages = reuse.prefix, request.messages
    own_losses = Losses() if prefix is None else Losses(prefix.losses)
    fitter = new_fitter(own_losses)
    turns: list[DraftMessage] = []
    if prefix is not None:
        fitter.resume(prefix)
        turns += prefix.turns
    saved: FittedPrefix | None = None
    known = len(turns)
    for start, stop in reuse.segments:
        fitted = fitter.fit_next(messages[start:stop], start, is_last=stop is None)
        if not fitted or not _is_boundary(turns, fitted):
            return None
        turns += fitted
        if stop is not None:
            saved = fitter.suspend(messages[:stop], turns)
    if not can.system_anywhere and has_late_system(turns[known:], is_start=prefix is None):
        return None
    reuse.save(saved)
    losses.extend(own_losses)
    return fit_ends(turns, can, losses), fitter.marks


def _is_boundary(before: list[DraftMessage], after: list[DraftMessage]) -> bool:
    """Return whether no rule joins the two: a user message is before the boundary, an assistant message after it."""
    return not before or (before[-1].message.role == "user" and after[0].message.role == "assistant")


def fit_results(results: tuple[ToolResult, ...], wire: Wire) -> tuple[Message, ...]:
    """Return results alone, as messages. Content that the target does not allow in a result follows separately."""
    names = NameMap(wire.limits, wire.capabilities.namespaces)
    fitter = TurnFitter(Request(), wire, names, None, {}, HistorySearch(), Losses())
    turns = fitter.fit_all([DraftMessage(Message("user", results), results, range(len(results)))])
    return tuple(turn.message for turn in turns)


def _refuse_prefill(request: Request, wire: Wire) -> None:
    """Raise EncodeError if the last message is an assistant text that the model cannot continue."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or wire.capabilities.prefill:
        return
    if all(isinstance(part, (Text, Reasoning, Refusal)) for part in last.parts):
        raise EncodeError(
            f"{request.model} cannot continue an assistant message",
            pointer=join("messages", len(request.messages) - 1),
            hint="end with a user message",
        )
