"""Tool search: tools that are declared or loaded only when the model searches for them.

A tool with `deferred=True` is not part of the prompt until a search finds it. Two kinds of search exist:

    run by the caller      a tool of kind "search"; calls have the kind "search", and the result names the tools that
                           it loads in `ToolResult.found`
    run by the provider    a built-in tool; its calls and results are opaque parts of the answer. A wire that has them
                           converts them to and from the values of this module

The tool `search_tools` is toolwire's own search that the caller runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from .parts import ToolResult
from .pointer import Object
from .request import Message
from .tools import Tool
from .value import Value

__all__ = ["MAX_FOUND", "SEARCH_TOOLS", "HostedSearchCall", "HostedSearchResult", "found_in_history", "search_tool"]

SEARCH_TOOLS = "search_tools"
"""The name of toolwire's search tool, and of a search on a wire where it has no name."""

MAX_FOUND = 20
_DESCRIPTION = (
    "Search for more tools by a description of the task. Found tools can be called from then on. "
    "Search before you conclude that a task is impossible."
)
_PARAMETERS: Object = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "The task in short, such as 'send an e-mail'"},
        "k": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "description": "The maximum number of tools"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class HostedSearchCall(Value, frozen=True):
    """A search that the provider ran. `method` is "regex", "bm25", or empty if the provider does not name one."""

    id: str
    arguments: Object
    method: str = ""
    is_complete: bool = True


class HostedSearchResult(Value, frozen=True):
    """The tools that a search of the provider found, or its error. An empty `call_id` means the call before it."""

    call_id: str
    found: tuple[str, ...] = ()
    error: str | None = None


def search_tool(description: str | None = None) -> Tool:
    """Return the declaration of `search_tools`."""
    text = _DESCRIPTION if description is None else description
    return Tool(SEARCH_TOOLS, text, _PARAMETERS, kind="search", effect="pure")


def found_in_history(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the names of the tools that searches of the caller have loaded, in order and without repetitions."""
    results = (part for message in messages for part in message.parts if isinstance(part, ToolResult))
    return tuple(dict.fromkeys(name for result in results for name in result.found))
