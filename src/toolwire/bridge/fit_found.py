"""Fit the calls and results of tool searches in a history, and calls of the tools that they found.

Separate because the rest of the history does not depend on the tools of the request.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import CallKind, Opaque, ToolCall, ToolResult
from ..ir.request import Request
from ..ir.tools import Tool
from ..wire.content import found_as_text
from ..wire.protocol import Capabilities, Wire
from .hosted_search import HostedSearchConverter
from .search_plan import NO_SEARCH, SearchPlan

__all__ = ["HistorySearch"]


class HistorySearch:
    """The searches in the history of one request."""

    __slots__ = ("_converter", "_declared", "_loaded", "_loading_calls", "is_planned", "plan")

    def __init__(
        self,
        request: Request | None = None,
        plan: SearchPlan = NO_SEARCH,
        tools: list[tuple[Tool, int]] | None = None,
    ) -> None:
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
        """Return a call with the kind that its search has on the target, and without a namespace that is its name."""
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
        """Return a result whose references the target can resolve, or whose text names the found tools."""
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
        """Return a part of another provider's search in the form of the target; None if the target has none."""
        if not self.plan.is_hosted:
            detail = "the target has no such search; the tools that it found are declared"
            losses.add(path, "tool search", "dropped", detail, "info")
            return None
        if self._converter is None:
            self._converter = HostedSearchConverter(wire.name, self._loaded.get, is_output=False)
        return self._converter.convert(part, path, losses)
