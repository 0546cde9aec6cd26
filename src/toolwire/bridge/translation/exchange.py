"""Restore an answer: the tool names of the request, ids that exist and are unique, freeform calls as freeform.

An Exchange belongs to one request and one target. One machine, the `Restorer`, works on whole answers and, event by
event, on streams, with the same result. An `AnswerConverter` also reports the losses of a client on another wire; a
whole answer has the same losses as the stream of its events. In a provider error, the tool that exceeded a limit gets
its name in the request; a provider knows its sent name or its position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import asdict, replace

from ...ir.errors import ToolwireError
from ...ir.events import CallDelta, Event, ReasoningDelta, TextDelta
from ...ir.losses import Losses, RelocatedLosses
from ...ir.parts import Opaque, ToolCall
from ...ir.pointer import JSON, join, nearest_existing, resolve, split
from ...ir.request import Request
from ...ir.response import Breach, Fault, Response
from ...ir.tools import SEARCH_TOOLS, Tool
from ...schema.lowering.lowered import Lowered
from ...wire.hosted import HostedCodec
from ...wire.protocol import Capabilities, Wire
from ...wire.typed_tools import FitArguments
from ..conversation.names import NameMap
from ..fitting.tool_search import NO_SEARCH, SearchPlan
from ..fitting.typed_tools import typed_calls
from ..restoration.hosted_answers import has_hosted_content
from ..restoration.provider_fields import AnswerReporter
from ..restoration.repair import CallRepairer
from ..restoration.restorer import Restorer
from .required_call import RequiredCall, RequiredCallRestorer


def resolve_breach(breach: Breach, wire: Wire, request: Request, fitted: list[tuple[Tool, int]]) -> Breach:
    """Return the breach with the caller's tool name and pointers into `request`; its tools were sent as `fitted`.

    A breach of an unknown tool is returned as it is.
    """
    sent = _sent_name(breach, wire, tuple(tool for tool, _ in fitted))
    tool, index = next(((tool, index) for tool, index in fitted if tool.name == sent), (None, -1))
    if tool is None or index < 0:
        return breach
    original = request.tools[index]
    pointer = _name_properties(breach.pointer, tool.input_schema)
    return replace(
        breach, tool=original.name, at=join("tools", index), pointer=nearest_existing(asdict(original), pointer)
    )


def _sent_name(breach: Breach, wire: Wire, tools: tuple[Tool, ...]) -> str | None:
    """Return the sent name of the tool in `breach`, or None if it names no tool of the request.

    If the provider reports only a position, the sent declarations are rebuilt to find the tool there.
    """
    if isinstance(breach.tool, str):
        return breach.tool
    if breach.tool is None:
        return None
    try:
        declaration = resolve({"tools": wire.encode_tools(tools)[0]}, breach.at)
        (tool,) = wire.decode_tools([declaration])
    except (ToolwireError, LookupError, TypeError, ValueError):
        return None  # not in the sent document: the provider refers to something else
    return tool.name


def _name_properties(pointer: str, schema: JSON) -> str:
    """Replace each position among sibling properties (`[2]`) by a name; end the pointer where the schema has none."""
    segments: list[str] = []
    for segment in split(pointer):
        if segments and segments[-1] == "properties" and segment.startswith("["):
            try:
                parent = resolve({"input_schema": schema}, join(*segments))
                segment = list(parent)[int(segment[1:-1])]
            except (LookupError, TypeError, ValueError):
                break
        segments.append(segment)
    return join(*segments)


_call_id, _call_name = attrgetter("id"), attrgetter("name")
_arguments = attrgetter("arguments")
_kind, _call_options = attrgetter("kind"), attrgetter("kind", "state", "namespace")


class Exchange:
    """The changes to undo in an answer; an empty exchange only ensures that every call has an id."""

    __slots__ = (
        "_calls",
        "_fitted",
        "_has_freeform",
        "_names",
        "_request",
        "_wire",
        "lifts",
        "output",
        "required",
        "search",
        "text_tools",
    )

    def __init__(
        self,
        names: NameMap | None = None,
        request: Request | None = None,
        has_freeform: bool = True,
        lifts: dict[str, Lowered] | None = None,
        wire: Wire | None = None,
        fitted: list[tuple[Tool, int]] | None = None,
        output: Lowered | None = None,
        search: SearchPlan = NO_SEARCH,
        required: RequiredCall | None = None,
        calls: Sequence[ToolCall] | None = None,
    ) -> None:
        """Create an exchange. `calls` are the calls in the conversation, if known; otherwise they are looked up."""
        self.lifts = lifts or {}
        """The tools whose arguments have another shape on the target, by their names there."""
        self.output = output
        """The schema of the answer, if the answer has another shape on the target."""
        self.search = search
        """The form of a tool search on the target."""
        self.required = required
        """The call that the schema of the answer enforces, if a forced choice was sent so."""
        self.text_tools: tuple[Tool, ...] = ()
        """The tools of a model without tool calls, which its prompt has as text."""
        self._names = names
        self._request = request
        self._has_freeform = has_freeform  # of the target; otherwise freeform tools were sent as functions
        self._wire = wire
        self._calls = calls
        self._fitted = fitted or []  # the tools as sent, with their indices in the request

    @property
    def is_single_call(self) -> bool:
        """True if the request allows only one call at a time."""
        return self._request is not None and self._request.parallel is False

    @property
    def source(self) -> str:
        """The wire of the answer, or "" if it is not known."""
        return "" if self._wire is None else self._wire.name

    @property
    def has_hosted(self) -> bool:
        """True if the provider may run a tool of the request, or if the request is not known."""
        return self._request is None or "builtin" in map(_kind, self._request.tools)

    @property
    def call_ids(self) -> list[str]:
        """The ids used in the conversation."""
        if self._calls is not None:
            return [*map(_call_id, self._calls)]
        messages = () if self._request is None else self._request.messages
        return [part.id for message in messages for part in message.parts if type(part) is ToolCall]

    @property
    def wrapped(self) -> frozenset[str]:
        """Freeform tools that were sent as functions, by their names on the target."""
        if self._request is None or self._names is None or self._has_freeform:
            return frozenset()
        if "freeform" not in map(_kind, self._request.tools):
            return frozenset()
        to_wire = self._names.to_wire
        return frozenset(
            [to_wire(tool.namespace, tool.name) for tool in self._request.tools if tool.kind == "freeform"]
        )

    @property
    def typed(self) -> dict[str, FitArguments]:
        """The functions that replace typed tools whose calls have items of their own, by their names on the target."""
        if self.text_tools:
            functions = [(replace(tool, kind="function"), index) for index, tool in enumerate(self.text_tools)]
            return typed_calls(functions, self.text_tools)
        if self._request is None or "typed" not in map(_kind, self._request.tools):
            return {}
        return typed_calls(self._fitted, self._request.tools)

    def restore(
        self,
        response: Response,
        losses: Losses | None = None,
        client: Capabilities | None = None,
        *,
        repairer: CallRepairer | None = None,
    ) -> Response:
        """Return the answer in the terms of the request; `client` has the capabilities of the wire it is written to."""
        if repairer is None and self.is_unchanged(response, client):
            return response
        return self.make_restorer(losses, client, repairer=repairer).restore(response)

    def is_unchanged(self, response: Response, client: Capabilities | None) -> bool:
        """Return True if a `Restorer` would return an answer equal to this one, and report no loss.

        Most answers are of this kind: one choice with a stop reason, complete calls with new ids, tools with the same
        names and schemas on both sides. The check costs much less than a restorer.
        """
        stop = response.stop
        if stop is None or stop.reason == "refusal" or response.fault is not None or response.alternatives:
            return False
        if self.output is not None or self.required is not None:
            return False
        kinds = [*map(type, response.parts)]
        if Opaque in kinds:
            return False
        if ToolCall in kinds and not self._are_unchanged([part for part in response.parts if type(part) is ToolCall]):
            return False
        return not self._has_citations(response, client)

    def _has_citations(self, response: Response, client: Capabilities | None) -> bool:
        """Return whether an answer has citations or metadata of hosted tools that the client's wire represents."""
        codec: HostedCodec | None = getattr(self._wire, "hosted", None)
        if codec is None or client is None or client.hosted_wire in ("", self.source):
            return False
        return has_hosted_content(response, codec)

    def _are_unchanged(self, calls: list[ToolCall]) -> bool:
        """Return whether a `Restorer` would return these calls as they are."""
        if self.lifts or self.search.name is not None or self.is_single_call:
            return False
        ids = set(map(_call_id, calls))
        if "" in ids or len(ids) < len(calls) or not ids.isdisjoint(self.call_ids):
            return False
        if [*map(_call_options, calls)].count(("function", "complete", None)) < len(calls):
            return False
        if not all(map(_arguments, calls)):  # their text may be empty, or null
            return False
        names, call_names = self._names, [*map(_call_name, calls)]
        if not self.typed.keys().isdisjoint(call_names):
            return False
        return self.wrapped.isdisjoint(call_names) and (names is None or names.keeps_all(call_names))

    def restore_fault(self, fault: Fault) -> Fault:
        """Return a provider error in which the tool has the name that the request uses."""
        if fault.breach is None or self._wire is None or self._request is None:
            return fault
        return replace(fault, breach=resolve_breach(fault.breach, self._wire, self._request, self._fitted))

    def original_search(self) -> Tool | None:
        """Return the search tool of the request that the caller runs."""
        tools = () if self._request is None else self._request.tools
        return next((tool for tool in tools if tool.name == self.search.name and tool.kind != "builtin"), None)

    def find_tool(self, name: str) -> Tool | None:
        """Return a tool of the request, given its name on the target."""
        tools = () if self._request is None else self._request.tools
        namespace, original = self.original_name(None, name)
        same_name = [tool for tool in tools if tool.name == original]
        return next((tool for tool in same_name if tool.namespace == namespace), same_name[0] if same_name else None)

    def original_name(self, namespace: str | None, name: str) -> tuple[str | None, str]:
        """Return the request's (namespace, name) of a tool, given its names on the target."""
        if self.search.kind == "search" and name == SEARCH_TOOLS and self.search.name is not None:
            return None, self.search.name  # a search has no name on this target
        return (namespace, name) if self._names is None else self._names.from_wire(namespace, name)

    def make_restorer(
        self,
        losses: Losses | None = None,
        client: Capabilities | None = None,
        *,
        repairer: CallRepairer | None = None,
    ) -> Restorer:
        """Like `restore`, for the events of one stream."""
        losses = Losses() if losses is None else losses
        if self.required is not None:
            return RequiredCallRestorer(self, self.required, losses, client, repairer)
        return Restorer(self, losses, client, repairer)


DELTAS = frozenset({TextDelta, ReasoningDelta, CallDelta})


class AnswerConverter:
    """Convert the events of one answer for a client of `writer`. After a fault it returns no more events."""

    __slots__ = ("_reporter", "_restorer", "encoder_losses", "has_started", "restore_delta")

    def __init__(self, exchange: Exchange, writer: Wire, losses: Losses) -> None:
        self._restorer = exchange.make_restorer(losses, writer.capabilities)
        runs = self._restorer.hosted
        self.encoder_losses = losses if runs is None else RelocatedLosses(losses, runs.locate)
        """The losses for the encoder of the answer, whose paths are paths of the client's answer."""
        self._reporter = AnswerReporter(writer.name, self.encoder_losses)
        self.restore_delta = self._restorer.feed
        """Like `feed`, for deltas only, which have no losses."""
        self.has_started = False

    @property
    def fault(self) -> Fault | None:
        """The fault of an answer that must not reach the client, because one of its calls is malformed."""
        return self._restorer.fault

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Return the client's events for one event of the provider, and report their losses."""
        if type(event) in DELTAS:
            return self.restore_delta(event)
        if self.fault is not None:
            return ()
        self.has_started = True
        return tuple([self._reporter.report_event(restored) for restored in self._restorer.feed(event)])


class ConvertedAnswer(NamedTuple):
    """An answer for the client. Its parts may have other numbers than the provider's, if it has hosted tools."""

    response: Response
    encoder_losses: Losses  # for its encoder, whose paths are paths of the client's answer
    find: Callable[[str], str | None]  # the path in it of a path in the provider's answer


def convert_response(response: Response, exchange: Exchange, writer: Wire, losses: Losses) -> ConvertedAnswer:
    """Convert a whole answer."""
    restored, encoder_losses, find = response, losses, _same_path
    if not exchange.is_unchanged(response, writer.capabilities):
        restorer = exchange.make_restorer(losses, writer.capabilities)
        restored = restorer.restore(response)
        if restorer.hosted is not None:
            encoder_losses, find = RelocatedLosses(losses, restorer.hosted.locate), restorer.hosted.find
    reporter = AnswerReporter(writer.name, encoder_losses)
    reported = reporter.report_response(restored)
    if reported.fault is not None:
        reporter.report_fault(has_items=bool(response.parts or response.alternatives))
    return ConvertedAnswer(reported, encoder_losses, find)


def _same_path(path: str) -> str | None:
    return path
