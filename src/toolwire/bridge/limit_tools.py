"""Keep to the target's maximum number of tools, by name and never by position.

Tools that the conversation names are always kept: tools of calls in the history, tools that a search has found, the
tools of the tool choice, built-in tools and the search tool itself. A chooser fills the remaining places. Without one,
all other tools are left out, each with a loss that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ..ir.errors import ConfigError, EncodeError
from ..ir.losses import Losses, Severity
from ..ir.parts import ToolCall
from ..ir.pointer import join
from ..ir.request import Request, found_in_history
from ..ir.tools import Tool
from ..wire.faults import FEWER_TOOLS

__all__ = ["ToolChooser", "keep_all", "limit_tools"]

ToolChooser: TypeAlias = Callable[[Request, Sequence[Tool], int], Sequence[Tool]]
"""Select at least one and at most the given number of tools for a request, such as `toolwire.run.choose_by_words`."""


def keep_all(request: Request, tools: Sequence[Tool], count: int) -> Sequence[Tool]:
    """Keep all tools: for the exchange of an answer, whose request has been sent already."""
    del request, count
    return tools


def limit_tools(
    tools: list[tuple[Tool, int]], max_tools: int | None, request: Request, losses: Losses, choose: ToolChooser | None
) -> list[tuple[Tool, int]]:
    """Return at most `max_tools` tools in their order; each has its index in the request.

    Raise EncodeError if the named tools alone exceed the maximum, or if none is named and there is no chooser. Raise
    ConfigError for a chooser that breaks its contract.
    """
    if max_tools is None or len(tools) <= max_tools or choose is keep_all:
        return tools
    kept = _named_indices(tools, request)
    if len(kept) > max_tools:
        raise EncodeError(
            f"{len(kept)} tools are named in the history and in tool_choice; the target accepts at most {max_tools}",
            pointer=join("tools"),
            hint="shorten the history, or name fewer tools in tool_choice",
        )
    if choose is not None and len(kept) < max_tools:
        kept |= _chosen_indices(tools, kept, max_tools, request, choose)
    elif not kept:
        raise EncodeError(
            f"the request has {len(tools)} tools; the target accepts at most {max_tools}",
            pointer=join("tools"),
            hint=FEWER_TOOLS,
        )
    severity: Severity = "error" if choose is None else "warning"
    for _, index in tools:
        if index not in kept:
            name = request.tools[index].name
            detail = f"{name!r} is left out: the request has {len(tools)} tools, the target accepts at most {max_tools}"
            losses.add(join("tools", index), "tool", "dropped", detail, severity)
    return [(tool, index) for tool, index in tools if index in kept]


def _named_indices(tools: list[tuple[Tool, int]], request: Request) -> set[int]:
    named = {part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall)}
    named.update(found_in_history(request.messages))
    if request.choice is not None:
        named.update(request.choice.names)
    originals = ((request.tools[index], index) for _, index in tools)
    return {index for tool, index in originals if tool.kind in ("builtin", "search") or tool.name in named}


def _chosen_indices(
    tools: list[tuple[Tool, int]], kept: set[int], max_tools: int, request: Request, choose: ToolChooser
) -> set[int]:
    """Return the indices of the tools that the chooser selects among the tools that are not named."""
    indices = {
        (original.namespace, original.name): index
        for original, index in ((request.tools[index], index) for _, index in tools if index not in kept)
    }
    candidates, count = [request.tools[index] for index in indices.values()], max_tools - len(kept)
    chosen: object = choose(request, candidates, count)  # of a caller: checked below
    name = getattr(choose, "__qualname__", None) or type(choose).__qualname__
    found: set[int] = set()
    for tool in chosen if isinstance(chosen, Iterable) else (chosen,):
        if not isinstance(tool, Tool):
            raise _chooser_error(name, f"must return tools, got {type(tool).__name__}")
        if (tool.namespace, tool.name) not in indices:
            raise _chooser_error(name, f"returned {tool.name!r}, which is not one of the tools to choose from")
        found.add(indices[tool.namespace, tool.name])
    if len(found) > count:
        raise _chooser_error(name, f"returned {len(found)} tools, but only {count} may be chosen")
    if not found and not kept:
        raise _chooser_error(name, f"returned none of {len(candidates)} tools")
    return found


def _chooser_error(name: str, problem: str) -> ConfigError:
    hint = "return a non-empty list of some of the given tools, at most `count`"
    return ConfigError(f"the chooser {name} {problem}", hint=hint)
