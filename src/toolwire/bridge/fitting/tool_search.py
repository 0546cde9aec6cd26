"""Fit a tool search to the target: its declaration, its calls and results in a history, and the tools that it found.

A search that a provider ran is converted between the wires that have one. `plan_search` decides how a target
represents the search of a request, and when it loads deferred tools:

native     the target has deferred tools: they are declared as such, and its search or a result loads them
results    the target declares a tool in the result of the search that loads it
append     the target has no deferred tools: found tools are appended to the declarations, the others wait. A request
           whose deferred tools have all been found grows with each search: its tools keep their order, new ones last
at once    there is no search: the model could not find a deferred tool, so all are declared as usual
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.parts import CallKind, Opaque, ToolCall, ToolResult
from ...ir.pointer import join
from ...ir.request import Request, found_in_history
from ...ir.tools import SEARCH_TOOLS, HostedSearchCall, HostedSearchResult, Tool, search_tool
from ...ir.value import Value
from ...wire import get
from ...wire.codec import HostedSearchPart, SearchCodec, WireCodec
from ...wire.content import found_as_text
from ...wire.protocol import Capabilities, Wire
from ..conversation.outline import HistoryOutline


def hosted_method(tool: Tool) -> str | None:
    """Return the method of a provider's search tool ("" if it names none), or None for any other tool."""
    if tool.kind != "builtin":
        return None
    for wire, declaration in tool.extra.items():
        codec = _search_codec(wire)
        method = None if codec is None else codec.method_of(declaration)
        if method is not None:
            return method
    return None


def unread_fields(tool: Tool) -> list[str]:
    """Return the fields of a provider's search tool that no other provider has."""
    return [
        field
        for wire, declaration in tool.extra.items()
        if (codec := _search_codec(wire)) is not None
        for field in declaration
        if field not in codec.fields
    ]


def read_hosted(part: Opaque) -> HostedSearchPart | None:
    """Read a part of a search that a provider ran; None for any other part."""
    codec = _search_codec(part.wire)
    return None if codec is None else codec.read(part)


def _search_codec(wire: str) -> SearchCodec | None:
    try:
        codec = get(wire)
    except ConfigError:
        return None  # a key of `extra` that is no wire
    return codec.search if isinstance(codec, WireCodec) else None


class HostedSearchConverter:
    """Convert the searches of one conversation or answer for `wire`; `find` returns a tool by its name in the source."""

    __slots__ = ("_count", "_find", "_is_output", "_pending", "_target", "_wire")

    def __init__(self, wire: str, find: Callable[[str], Tool | None], *, is_output: bool) -> None:
        self._wire = wire
        self._target = _search_codec(wire) if wire else None
        self._find = find
        self._is_output = is_output
        self._pending: deque[str] = deque()  # ids of calls without a result
        self._count = 0

    def convert(self, part: Opaque, path: str, losses: Losses) -> Opaque | None:
        """Return the part on the target, or None for a result without a call.

        A part that is no search, or that is the target's own, is returned unchanged. Changes are added to `losses`.
        """
        if self._target is None or part.wire == self._wire:
            return part
        source = _search_codec(part.wire)
        search = None if source is None else source.read(part)
        if source is None or search is None:
            return part
        for pointer in source.unread(part):
            losses.add(path + pointer, pointer.rpartition("/")[2], "dropped", f"specific to {part.wire}")
        if isinstance(search, HostedSearchCall):
            return self._convert_call(search, self._target, path, losses)
        return self._convert_result(search, self._target, path, losses)

    def _convert_call(self, call: HostedSearchCall, target: SearchCodec, path: str, losses: Losses) -> Opaque:
        self._count += 1
        if not call.id:
            call = replace(call, id=f"search_{self._count}")
        self._pending.append(call.id)
        losses.add(path, "tool search", "rewritten", "sent as a search of the target's provider", "info")
        return target.write_call(call, is_output=self._is_output)

    def _convert_result(
        self, result: HostedSearchResult, target: SearchCodec, path: str, losses: Losses
    ) -> Opaque | None:
        """Convert a result; one without a call id belongs to the first call without a result.

        Without such a call, return None, with a loss.
        """
        if not result.call_id and self._pending:
            result = replace(result, call_id=self._pending[0])
        if result.call_id not in self._pending:
            losses.add(path, "result of a tool search", "dropped", "its call is not in the conversation")
            return None
        self._pending.remove(result.call_id)
        tools = [(name, self._find(name)) for name in result.found]
        for name, tool in tools:
            if tool is None:
                losses.add(path, "found tool", "dropped", f"{name!r} is not declared in the request")
        if result.error is not None:
            losses.add(path, "error of a tool search", "weakened", f"the code {result.error!r} may differ", "info")
        losses.add(path, "tool search", "rewritten", "sent as a search of the target's provider", "info")
        declared = [tool for _, tool in tools if tool is not None]
        return target.write_result(result, declared, is_output=self._is_output)


ToolLoading: TypeAlias = Literal["native", "results", "append", "at once"]
_LOADED = "a search has found the tool, or the conversation names it"
_SEARCH_WORDS = ("search", "find", "discover")


class SearchPlan(Value, frozen=True):
    """The tool search of a request on one target."""

    name: str | None = None  # of the search that the caller runs, in the request
    kind: CallKind = "function"  # of its calls on the target
    is_hosted: bool = False  # the target's provider runs a search
    loading: ToolLoading = "at once"
    found: tuple[str, ...] = ()  # names of the deferred tools that are loaded, in order


NO_SEARCH = SearchPlan()


def plan_search(
    request: Request, wire: Wire, *, runs_search: bool, outline: HistoryOutline | None = None
) -> SearchPlan:
    """Plan the search of a request. `runs_search`: the caller runs `search_tools` in place of a provider's search.

    `outline` describes the messages; with it, most histories need no pass over them.
    """
    can, choice = wire.capabilities, request.choice
    if choice is not None and choice.mode == "allowed" and "allowed" not in can.choices:  # only these are declared
        request = replace(request, tools=tuple([tool for tool in request.tools if tool.name in choice.names]))
    tools, found = request.tools, _found_names(request, outline)
    if any(hosted_method(tool) is not None for tool in tools):
        if can.deferred and isinstance(wire, WireCodec) and wire.search is not None:
            return SearchPlan(is_hosted=True, loading="native", found=found)
        return SearchPlan(SEARCH_TOOLS, loading="append", found=found) if runs_search else NO_SEARCH
    search = _find_search(request, outline)
    if search is None:
        is_native = can.deferred and _loads_without_search(request, wire, outline)
        return SearchPlan(loading="native", found=found) if is_native else NO_SEARCH
    kind: CallKind = "search" if can.search_calls else "function"
    return SearchPlan(search.name, kind, loading=_loading(can), found=found)


def _loads_without_search(request: Request, wire: Wire, outline: HistoryOutline | None) -> bool:
    """Return whether deferred tools of a request without a known search can be loaded on a target that has them.

    A built-in tool of the target may be a search that this version does not know. Anthropic accepts references to
    deferred tools in results of any call.
    """
    if any(tool.kind == "builtin" and wire.name in tool.extra for tool in request.tools):
        return True
    return not wire.capabilities.search_calls and next(_loader_names(request, outline), None) is not None


def _loading(can: Capabilities) -> ToolLoading:
    return "results" if can.search_calls else "native" if can.deferred else "append"


def _found_names(request: Request, outline: HistoryOutline | None = None) -> tuple[str, ...]:
    """Return the tools that searches in the history have found, and deferred tools that the conversation names.

    A call in the history shows that its tool was loaded, also if the client has removed the search. The model can
    follow a tool choice only if the tool is declared.
    """
    deferred = frozenset([tool.name for tool in request.tools if tool.deferred])
    names: dict[str, None] = {}
    is_plain = outline is not None and not outline.has_found_tools and not outline.has_opaque_parts
    if outline is not None and is_plain and deferred:
        names = {name: None for name in outline.call_names if name in deferred}
    for message in () if is_plain else request.messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                names.update(dict.fromkeys(part.found))
            elif isinstance(part, Opaque) and isinstance(search := read_hosted(part), HostedSearchResult):
                names.update(dict.fromkeys(search.found))
            elif isinstance(part, ToolCall) and part.name in deferred:
                names[part.name] = None
    if request.choice is not None:
        names.update(dict.fromkeys(name for name in request.choice.names if name in deferred))
    return tuple(names)


def _find_search(request: Request, outline: HistoryOutline | None = None) -> Tool | None:
    """Return the tool that finds deferred tools and that the caller runs.

    On Anthropic it is an ordinary function: the one whose results have references to tools, or the only one with the
    name of a tool search.
    """
    declared = next((tool for tool in request.tools if tool.kind == "search"), None)
    if declared is not None or not any(tool.deferred for tool in request.tools):
        return declared
    functions = {tool.name: tool for tool in request.tools if tool.kind == "function" and not tool.deferred}
    loaders = [functions[name] for name in _loader_names(request, outline) if name in functions]
    named = [tool for tool in functions.values() if _is_search_name(tool.name)]
    return loaders[0] if loaders else named[0] if len(named) == 1 else None


def _is_search_name(name: str) -> bool:
    lowered = name.lower()
    return "tool" in lowered and any(word in lowered for word in _SEARCH_WORDS)


def waiting_indices(request: Request) -> frozenset[int]:
    """Return the indices of the deferred tools that wait for a search of the caller."""
    tools = request.tools
    if not any(tool.deferred for tool in tools) or _find_search(request) is None:
        return frozenset()
    found = frozenset(_found_names(request))
    return frozenset([index for index, tool in enumerate(tools) if tool.deferred and tool.name not in found])


def _loader_names(request: Request, outline: HistoryOutline | None) -> Iterator[str]:
    """Yield the names of the tools whose results have loaded others; a result without a call is sent as text."""
    if outline is not None and not outline.has_found_tools:
        return
    names: dict[str, str] = {}
    declared = frozenset([tool.name for tool in request.tools])
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
            elif isinstance(part, ToolResult) and part.call_id in names and not declared.isdisjoint(part.found):
                yield names[part.call_id]


def fit_search_tool(tool: Tool, index: int, wire: Wire, plan: SearchPlan, losses: Losses) -> Tool | None:
    """Return a search tool in the form of the target, any other tool unchanged, and None for a search without use.

    Changed and dropped fields are losses.
    """
    path = join("tools", index)
    method = hosted_method(tool)
    if method is not None and wire.name not in tool.extra:
        for field in unread_fields(tool):
            losses.add(path + join(field), field, "dropped", "specific to the provider of the search")
        return _fit_hosted(method, path, wire, plan, losses)
    is_planned = tool.name == plan.name and tool.kind in ("function", "search")
    if tool.kind != "search" and not (is_planned and plan.kind == "search"):
        return tool
    if is_planned and plan.kind == "search":
        if tool.name != SEARCH_TOOLS:
            detail = "sent as a search that the client runs, which has no name; calls are returned under the name"
            losses.add(f"{path}/name", "tool name", "rewritten", detail, "info")
        if tool.kind != "search":
            losses.add(f"{path}/kind", "search tool", "rewritten", "sent as a search that the client runs", "info")
        return replace(tool, kind="search", name=SEARCH_TOOLS, strict=None)
    if is_planned and plan.loading == "native":
        return tool  # the encoder writes a function; the kind shows that the request has a search
    losses.add(f"{path}/kind", "search tool", "rewritten", "sent as a function", "info")
    return replace(tool, kind="function")


def _fit_hosted(method: str, path: str, wire: Wire, plan: SearchPlan, losses: Losses) -> Tool | None:
    """Replace another provider's search with the target's own, with `search_tools`, or with None; add a loss."""
    if plan.is_hosted:
        assert isinstance(wire, WireCodec)
        assert wire.search is not None
        detail = f"sent as the target's own search{f' instead of {method}' if method else ''}"
        losses.add(path, "tool search", "rewritten", detail, "warning" if method == "regex" else "info")
        return wire.search.declare(method)
    if plan.name is not None:
        losses.add(path, "tool search", "rewritten", f"sent as the function {SEARCH_TOOLS}", "info")
        return replace(search_tool(), kind="function")
    detail = "the target has no tool search; all deferred tools are declared from the start"
    losses.add(path, "tool search", "dropped", detail, "info")
    return None


def load_deferred(
    tools: Sequence[tuple[Tool, int]], request: Request, plan: SearchPlan, losses: Losses
) -> list[tuple[Tool, int]]:
    """Return the tools that the target gets now, with deferred tools as the plan loads them.

    Found tools come last, in the order of their discovery; a tool that waits for a search is left out. A tool that is
    declared at another time is a loss.
    """
    if plan.loading == "native" or not any(tool.deferred for tool, _ in tools):
        return list(tools)
    if plan.loading == "at once":
        reason = "no search tool of the target is declared; the model sees the tool from the start"
        return [(_undefer(tool, index, reason, losses), index) for tool, index in tools]
    if plan.loading == "append" and _keeps_order(request, plan):
        _report_appended(losses)
        return [(_undefer(tool, index, _LOADED, losses), index) for tool, index in tools]
    found: dict[str, tuple[Tool, int]] = {}
    others: list[tuple[Tool, int]] = []
    names = frozenset(plan.found)
    for tool, index in tools:
        if not tool.deferred:
            others.append((tool, index))
        elif (name := request.tools[index].name) in names:
            found.setdefault(name, (tool, index))
        else:
            losses.add(join("tools", index), "deferred tool", "moved", "declared when a search finds it", "info")
    loaded = [found[name] for name in plan.found if name in found]
    if plan.loading == "append" and loaded:
        _report_appended(losses)
        loaded = [(_undefer(tool, index, _LOADED, losses), index) for tool, index in loaded]
    elif plan.loading == "results":
        in_results = frozenset(found_in_history(request.messages))
        loaded = [
            entry if request.tools[entry[1]].name in in_results else (_undefer(*entry, _LOADED, losses), entry[1])
            for entry in loaded
        ]
    return [*others, *loaded]


def _keeps_order(request: Request, plan: SearchPlan) -> bool:
    """Return whether the request lists its tools in the order in which they were first offered.

    Agents and the gateway declare a found tool when it is found, and may declare another one after it. A client that
    declares all tools from the start has deferred ones that wait, at any position.
    """
    search = next((tool for tool in request.tools if tool.kind == "search"), None)
    return search is not None and search.name == plan.name and not waiting_indices(request)


def _report_appended(losses: Losses) -> None:
    detail = "found tools are appended to the declarations, which changes the beginning of the prompt"
    losses.add(join("tools"), "prompt prefix", "rewritten", detail, "info")


def _undefer(tool: Tool, index: int, reason: str, losses: Losses) -> Tool:
    if not tool.deferred:
        return tool
    losses.add(join("tools", index, "deferred"), "deferred loading", "dropped", reason, "info")
    return replace(tool, deferred=None)


class HistorySearch:
    """The searches in the history of one request."""

    __slots__ = ("_converter", "_declared", "_loaded", "_loading_calls", "is_planned", "plan")

    def __init__(
        self,
        request: Request | None = None,
        plan: SearchPlan = NO_SEARCH,
        tools: list[tuple[Tool, int]] | None = None,
    ) -> None:
        """Collect the tools of `request`, as they are and as fitted `tools`, and the calls that load tools."""
        self.plan = plan
        self.is_planned = plan is not NO_SEARCH
        originals = () if request is None else request.tools
        self._declared = {(tool.namespace, tool.name) for tool in originals}
        self._loaded = {originals[index].name: tool for tool, index in tools or () if index >= 0}  # fitted
        self._converter: HostedSearchConverter | None = None
        # Calls whose results load tools, beside a search of the provider: any function may do that on Anthropic.
        self._loading_calls: set[str] = set()
        if request is not None and plan.is_hosted:
            parts = [part for message in request.messages for part in message.parts]
            self._loading_calls = {part.call_id for part in parts if isinstance(part, ToolResult) and part.found}

    def concerns(self, call: ToolCall) -> bool:
        """Return whether a call is a search, or a call of a deferred function in a namespace of its own name."""
        is_search = call.kind == "search" or call.name == self.plan.name or call.id in self._loading_calls
        return is_search or call.namespace == call.name

    def fit_call(self, call: ToolCall, can: Capabilities, path: str, losses: Losses) -> ToolCall:
        """Return a call of a search in the kind of the target; a namespace that only repeats its name is dropped."""
        if call.namespace is not None and call.namespace == call.name:
            if (call.namespace, call.name) not in self._declared and (None, call.name) in self._declared:
                losses.add(f"{path}/namespace", "namespace", "dropped", "the tool is in no namespace", "info")
                call = replace(call, namespace=None)
        kind = self._call_kind(call, can)
        if call.kind == kind:
            return call
        losses.add(path, "call of a search", "rewritten", f"sent as a call of the kind {kind!r}", "info")
        return replace(call, kind=kind)

    def _call_kind(self, call: ToolCall, can: Capabilities) -> CallKind:
        """Return the kind of a call on the target."""
        if call.kind == "freeform":
            return "freeform"
        if call.name == self.plan.name:
            return self.plan.kind
        is_other_function = call.kind == "search" and (call.namespace, call.name) in self._declared
        is_search = call.id in self._loading_calls or (call.kind == "search" and not is_other_function)
        return "search" if is_search and can.search_calls else "function"

    def call_namespace(self, call: ToolCall) -> str | None:
        """Return the namespace of a call on a target with calls of searches.

        "Missing namespace for function_call": Responses has a deferred function in a namespace of its own name.
        """
        tool = self._loaded.get(call.name)
        if call.namespace is None and tool is not None and tool.deferred:
            return call.name
        return call.namespace

    def fit_result(self, result: ToolResult, kind: CallKind, wire: Wire, path: str, losses: Losses) -> ToolResult:
        """Return a result whose references the target can resolve, or whose text names the found tools.

        `kind` is the kind of its call on the target. A dropped text is a loss.
        """
        can = wire.capabilities
        if kind == "search":
            return replace(result, kind="search", found=self._fit_names(result, path, losses), structured=None)
        if not can.deferred or self.plan.loading != "native":
            names = [self._loaded[name].name if name in self._loaded else name for name in result.found]
            return found_as_text(replace(result, found=tuple(names)), path, losses)
        found = self._fit_names(result, path, losses)
        if not found:
            return found_as_text(result, path, losses)
        if f"{wire.name}~" not in result.extra and result.kind == "search":
            if replace(result, found=()).text:
                detail = "the references load the declarations of the found tools"
                losses.add(path, "text of a search result", "dropped", detail, "info")
            result = replace(result, parts=(), structured=None)
        return replace(result, found=found)

    def _fit_names(self, result: ToolResult, path: str, losses: Losses) -> tuple[str, ...]:
        """Return the names of the found tools on the target."""
        for name in result.found:
            if name not in self._loaded:
                losses.add(f"{path}/found", "found tool", "dropped", f"{name!r} is not declared in the request")
        return tuple([self._loaded[name].name for name in result.found if name in self._loaded])

    def fit_hosted(self, part: Opaque, wire: Wire, path: str, losses: Losses) -> Opaque | None:
        """Return a part of another provider's search in the form of the target; None if the target has none.

        A dropped part is a loss.
        """
        if not self.plan.is_hosted:
            detail = "the target has no such search; the tools that it found are declared"
            losses.add(path, "tool search", "dropped", detail, "info")
            return None
        if self._converter is None:
            self._converter = HostedSearchConverter(wire.name, self._loaded.get, is_output=False)
        return self._converter.convert(part, path, losses)
