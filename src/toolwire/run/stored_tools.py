"""The tools in the state of a run. A stored state refers to those of a toolbox by name and hash.

Separate because the rules of a session do not depend on how its tools are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..ir.tools import Tool
from .run_state import RunState
from .tool_offer import OfferState, ToolOffer, resolve_references

__all__ = ["compare_offer", "refer_to_tools", "restore_tools"]


def refer_to_tools(state: RunState, offer: ToolOffer) -> RunState:
    """Return the state with references in place of declarations.

    The tools of waiting calls stay declared, because a person may edit the arguments before an agent continues the run.
    """
    tools = state.request.tools
    waiting = {call.tool for call in state.turn.waiting if call is not None}
    declared = tuple([tool for tool in tools if tool.name in waiting])
    references = state.offered or offer.make_references(tools)
    return replace(state, request=replace(state.request, tools=declared), offered=references)


def restore_tools(state: RunState, tools: Sequence[Tool]) -> RunState:
    """Return the state with the present declarations of its tools, without those that changed or are gone.

    The references stay until the next offer: the calls of the current turn are compared with them.
    """
    restored = resolve_references(state.offered, tools)
    names = {tool.name for tool in restored}
    declared = tuple([tool for tool in state.request.tools if tool.name not in names])
    return replace(state, request=replace(state.request, tools=(*restored, *declared)))


def compare_offer(state: RunState, offer: ToolOffer, tool: Tool) -> OfferState:
    """Compare a tool with the offer of a run. Tools that the user chose may be declared otherwise."""
    if state.has_fixed_tools:
        return "offered" if any(tool.name == known.name for known in state.request.tools) else "absent"
    if not state.offered:
        return offer.state_of(state.request.tools, tool)
    reference = next((one for one in state.offered if one.name == tool.name), None)
    return "absent" if reference is None else "offered" if reference.matches(tool) else "changed"
