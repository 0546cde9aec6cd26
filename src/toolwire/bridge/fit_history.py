"""Fit a conversation to a target: as it is, from a stored beginning, or turn by turn."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.parts import Reasoning, Refusal, Text, ToolResult
from ..ir.pointer import join
from ..ir.request import Message, Request
from ..ir.tools import Tool
from ..schema.lowering.lowered import Lowered
from ..wire.protocol import Wire
from .fit_ends import fit_ends
from .fit_found import HistorySearch
from .fit_system import ensure_user_message, fit_system, has_late_system
from .fitted_prefix import FittedPrefix, PrefixReuse
from .history import DraftMessage, gather, merge_turns, normalise
from .history_outline import HistoryOutline
from .names import NameMap
from .plain_history import fit_plain
from .search_plan import NO_SEARCH, SearchPlan
from .stored import continues_stored
from .turn_fitter import TurnFitter

__all__ = ["fit_history", "fit_results"]


def fit_history(
    request: Request,
    wire: Wire,
    names: NameMap,
    losses: Losses,
    history_model: str | None = None,
    lifts: Mapping[str, Lowered] | None = None,
    plan: SearchPlan = NO_SEARCH,
    tools: list[tuple[Tool, int]] | None = None,
    reuse: PrefixReuse | None = None,
    outline: HistoryOutline | None = None,
) -> tuple[list[DraftMessage], int]:
    """Return the conversation in a form that the target accepts, and the number of its cache marks.

    `plan` and `tools` are the search and the tools on the target. `reuse` has the form of the first messages, and
    stores it for the next request. `outline` is that of the messages.
    """
    _refuse_prefill(request, wire)
    can = wire.capabilities
    is_part = continues_stored(request, wire.name, outline)
    if outline is not None and outline.plain is not None and plan is NO_SEARCH and not is_part:
        turns = fit_plain(outline.plain, wire, names, losses, lifts or {})
        if turns is not None:
            return fit_ends(turns, can, losses), 0
    search = HistorySearch(request, plan, tools)
    if reuse is not None and not is_part:
        fitted = _fit_rest(request, wire, names, losses, history_model, lifts or {}, search, reuse)
        if fitted is not None:
            return fitted
    fitter = TurnFitter(request, wire, names, losses, history_model, lifts or {}, search)
    turns = fitter.fit_all(gather(request.messages) if is_part else normalise(request.messages, losses))
    if not is_part and all(turn.message.role in ("system", "developer") for turn in turns):
        turns = ensure_user_message(turns, request, wire, losses)
    turns = merge_turns(fit_system(turns, wire, losses), can)
    return turns if is_part else fit_ends(turns, can, losses), fitter.marks


def _fit_rest(
    request: Request,
    wire: Wire,
    names: NameMap,
    losses: Losses,
    history_model: str | None,
    lifts: Mapping[str, Lowered],
    search: HistorySearch,
    reuse: PrefixReuse,
) -> tuple[list[DraftMessage], int] | None:
    """Return the same as without `reuse`, or None where fitting has to look across the boundary.

    That is the case if results are missing or out of place, and if a system message has to move.
    """
    can, prefix, messages = wire.capabilities, reuse.prefix, request.messages
    own_losses = Losses() if prefix is None else Losses(prefix.losses)
    fitter = TurnFitter(request, wire, names, own_losses, history_model, lifts, search)
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
    fitter = TurnFitter(
        Request(), wire, NameMap(wire.limits, wire.capabilities.namespaces), Losses(), None, {}, HistorySearch()
    )
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
