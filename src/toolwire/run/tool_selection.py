"""The tools that an agent with a retriever offers: a set that only grows, in a stable order.

Providers cache the beginning of a prompt, and tools come first. So a conversation keeps the tools that it began with.
A search of the model, or a call in the history, adds tools at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..ir.request import Request, found_in_history
from ..ir.tools import SEARCH_TOOLS, Tool
from .effect_limit import is_stronger
from .observe import Retriever
from .output import READ_OUTPUT, SEARCH_OUTPUT
from .session import Session

__all__ = ["defer_found_tools", "select_tools"]

_AUXILIARY = frozenset({SEARCH_TOOLS, READ_OUTPUT, SEARCH_OUTPUT})


def select_tools(
    retriever: Retriever, session: Session, tools: Sequence[Tool], always: Sequence[str]
) -> tuple[Tool, ...]:
    """Return the tools for the next turn of a run: those that it offered before, then new ones.

    `tools`: all tools that the agent has now, with auxiliary tools such as `search_tools`, which are always offered.
    `always`: names of other tools that are always offered, besides those that the request chooses by name.
    """
    request, offered = session.state.request, session.offered_names
    max_effect = session.state.max_effect
    known = {tool.name: tool for tool in tools if not is_stronger(tool.effect, max_effect)}
    candidates = [tool for name, tool in known.items() if name not in _AUXILIARY]
    others = [name for name in offered if name not in _AUXILIARY and name not in always]
    chosen = retriever.choose(request, candidates, others)
    names = dict.fromkeys(
        (
            *offered,
            SEARCH_TOOLS,
            *[tool.name for tool in chosen],
            *found_in_history(request.messages),
            *(() if request.choice is None else request.choice.names),
            *always,
            *[name for name in known if name in _AUXILIARY],
        )
    )
    return tuple([known[name] for name in names if name in known])


def defer_found_tools(request: Request) -> Request:
    """Defer the loading of tools that a search in the messages of this request found.

    A tool whose search result has been removed from the messages is declared like any other.
    """
    found = frozenset(found_in_history(request.messages))
    if not found:
        return request
    tools = tuple([replace(tool, deferred=True) if tool.name in found else tool for tool in request.tools])
    return replace(request, tools=tools)
