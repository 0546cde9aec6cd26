"""Tool declarations, tool choice, and tool search, which loads tools only when the model searches for them.

A tool with `deferred=True` is not part of the prompt until a search finds it. Two kinds of search exist:

    run by the caller      a tool of kind "search"; calls have the kind "search", and the result names the tools that
                           it loads in `ToolResult.found`
    run by the provider    a built-in tool; its calls and results are opaque parts of the answer. A wire that has them
                           converts them to and from the values of this module

The tool `search_tools` is toolwire's own search that the caller runs.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from .notebook import repr_html
from .parts import Extra
from .pointer import Object
from .value import Value

ToolKind: TypeAlias = Literal["function", "freeform", "builtin", "search", "typed"]
Effect: TypeAlias = Literal["pure", "read", "idempotent", "write"]
ChoiceMode: TypeAlias = Literal["auto", "required", "none", "tool", "allowed", "validated"]


class Grammar(Value, frozen=True):
    """The grammar that a freeform tool's input must match; `syntax` is "lark" or "regex"."""

    syntax: str
    definition: str


class Tool(Value, frozen=True):
    """One tool, declared once.

    `strict` and `deferred` have three values; unset differs from false. `input_schema` None means that none was
    declared, which is equivalent to a tool without parameters. A `builtin` is the provider's own tool; its declaration
    is in `extra` under the wire that supports it. A `search` is a function of the caller that finds deferred tools (see
    `search_tool`). A `typed` tool is a function of the caller whose form a provider defines, such as `bash` of Anthropic;
    its declaration is in `extra`, too.
    """

    name: str
    description: str | None = None
    input_schema: Object | None = None
    output_schema: Object | None = None
    strict: bool | None = None
    kind: ToolKind = "function"
    effect: Effect = "write"
    examples: tuple[Object, ...] = ()
    namespace: str | None = None
    grammar: Grammar | None = None
    deferred: bool | None = None
    cache: str | None = None
    extra: Extra = {}
    _columns = "name effect description"
    _repr_html_ = repr_html


class ToolChoice(Value, frozen=True):
    """The tools that the model may or must call.

    auto        text or calls            required    at least one call          none       no calls
    tool        exactly `names[0]`       allowed     only `names`, and at least one of them if `required`
    validated   text, or calls that fit their schemas
    """

    mode: ChoiceMode
    names: tuple[str, ...] = ()
    required: bool = False
    extra: Extra = {}

    @property
    def forces_call(self) -> bool:
        return self.mode in ("required", "tool") or (self.mode == "allowed" and self.required)


SEARCH_TOOLS = "search_tools"
"""The name of toolwire's search tool, and of a search on a wire where it has no name."""

MAX_FOUND = 20  # a search result is as long as these declarations; with more, the search saves nothing
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
