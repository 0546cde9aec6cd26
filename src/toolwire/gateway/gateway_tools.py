"""Tools run by the gateway. The model is offered them beside the client's tools; the client never sees their calls.

With `retrieve`, the model is offered a selection of all these tools, and its searches for others are answered here.

A turn that calls only these tools is answered here, and the model is asked again. A turn that also calls the client's
tools goes to the client with the client's calls. The gateway's calls and results of that turn are stored by call id,
and put back into the history when the client returns.

Hosted tools of the client (`hosted_tools`) are run in the same way, but the client sees their runs, in place of the
calls. So a stream waits from the first such call of a turn on, until the turn has ended and the calls have run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..bridge.conversation.turns import StoredTurn
from ..ir.events import (
    CallStart,
    Event,
    Ping,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextEnd,
    UsageUpdate,
    WholePart,
)
from ..ir.folding import Folder, merge_extra
from ..ir.parts import Opaque, Part, Text, ToolCall, ToolResult
from ..ir.request import Message, Request
from ..ir.response import Fault, Response, Stop, UpstreamError, Usage, add_usage
from ..ir.tools import Tool
from ..net.tools.runner import Runner
from ..net.tools.stored_approvals import owned_by
from .hosted_tools import HostedRuns, HostedService
from .retrieval.offered_tools import OfferedClientTools

if TYPE_CHECKING:
    from ..mcp.server.server import Server


class ToolBindings(Struct, frozen=True):
    """Tools run by the gateway, by model pattern, and the server for MCP clients at `/mcp`."""

    runners: Mapping[str, Runner] = {}
    publish: Server | None = None
    publish_for: str = "*"  # the model pattern that a key must allow to use it
    hosted: Mapping[str, HostedService] = {}  # that replace hosted tools, by kind


_MAX_TURNS = 16  # of the model for one answer; each is billed, and a model may call tools forever
_KEY_SPACE = 1_000_000  # keys of one turn; the keys of the next turn follow them


def with_gateway_tools(request: Request, runner: Runner) -> Request:
    """Add the gateway's tools to `request`; a client's tool of the same name takes precedence."""
    client_names = {tool.name for tool in request.tools}
    added_tools = tuple(tool for tool in runner.tools_for_run("") if tool.name not in client_names)
    forbidden = request.choice is not None and request.choice.mode != "auto"
    return request if forbidden or not added_tools else replace(request, tools=(*request.tools, *added_tools))


class GatewayTools:
    """The turns of one request. `request` is the next request to the model. `owner`: the client, for approvals."""

    def __init__(
        self,
        runner: Runner | None,
        client: Request,
        run_id: str,
        owner: str = "",
        offer: OfferedClientTools | None = None,
        hosted: HostedRuns | None = None,
    ) -> None:
        """Create the turns. `offer`: the selected tools, among the client's and ours, and the search for others.

        `hosted`: the hosted tools of the client that the gateway runs, for which `client` declares functions.
        """
        self.hosted = hosted
        self.request = client if runner is None else with_gateway_tools(client, runner)
        self.turn: StoredTurn | None = None  # the last turn, which the client gets without our calls
        self.earlier_parts: tuple[Part, ...] = ()  # parts sent to the client in earlier turns
        self.usage: Usage | None = None  # of the earlier turns
        self.turns = 0  # earlier turns, which only called our tools
        self.last_id = ""  # of the last answer
        self._runner = runner
        self._client_length = len(client.messages)
        self._names = {tool.name for tool in self.request.tools[len(client.tools) :]}  # of our tools
        self.offer = offer
        if offer is not None:
            self.request = replace(self.request, tools=offer.tools)
        self._run_id = run_id
        self._owner = owner
        self._earlier: list[ToolCall] = []  # our calls so far

    @property
    def has_run_tools(self) -> bool:
        """True if tools have run: starting over could run them twice."""
        return bool(self._earlier) or (self.hosted is not None and bool(self.hosted.started))

    @property
    def runs_hosted_search(self) -> bool:
        """True if `search_tools` replaces the tool search of a provider, which the client has declared."""
        return self.offer is not None and self.offer.is_hosted

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools whose calls are passed on, also tools of the client that are not offered."""
        return self.request.tools if self.offer is None else (*self.offer.all_tools, *self.request.tools)

    def is_gateway_tool(self, name: str) -> bool:
        """Return True for a call that is answered here: of our tools, a search, or of a tool that does not exist."""
        if name in self._names or (self.hosted is not None and self.hosted.is_hosted(name)):
            return True
        return self.offer is not None and (self.offer.is_search(name) or self.offer.is_unknown(name))

    def gateway_calls(self, response: Response) -> list[ToolCall]:
        return [call for call in response.calls if self.is_gateway_tool(call.name)]

    def is_client_visible(self, response: Response) -> bool:
        """Check whether the client gets the response: it has no call of ours, or also one of the client's."""
        return len(self.gateway_calls(response)) == 0 or len(self.gateway_calls(response)) < len(response.calls)

    async def run(self, response: Response) -> bool:
        """Run our calls of this turn, and store the turn. Return whether the model must be asked again.

        Then `request` has the results. Raise UpstreamError if the model calls our tools without end.
        """
        calls = self.gateway_calls(response)
        self.last_id = response.id
        self.turn = StoredTurn(response.parts, self.request.messages[self._client_length :])
        if not calls:
            return False
        is_last = self.offer is not None and self.offer.has_no_search  # the request did not offer the search
        if self.hosted is not None:
            self.hosted.turn_parts.clear()
        results, found = await self._run_calls(calls)
        if self.is_client_visible(response):
            self.turn = replace(self.turn, hidden=tuple([call.id for call in calls]), results=tuple(results))
            return False
        self.turns += 1
        only_searches = all(self.offer is not None and self.offer.is_search(call.name) for call in calls)
        if self.turns >= _MAX_TURNS or (is_last and only_searches):
            message = f"the model called the gateway's tools {self.turns} times without finishing"
            raise UpstreamError(Fault("server", message, 502, "no_end", retryable=False))
        self._append_turn(response, results, found)
        return True

    async def _run_calls(self, calls: list[ToolCall]) -> tuple[list[ToolResult], list[Tool]]:
        """Run our tools, answer searches, and refuse other calls. Return the results in order, and the tools found."""
        results: dict[int, ToolResult] = {}
        found: list[Tool] = []
        own: dict[int, ToolCall] = {}
        for number, call in enumerate(calls):
            if self.offer is not None and self.offer.is_search(call.name):
                results[number], new_tools = await self.offer.search(call)
                found += new_tools
            elif self.hosted is not None and self.hosted.is_hosted(call.name):
                results[number] = await self.hosted.run(call, self._run_id)
            elif self._is_runnable(call.name):
                own[number] = call
            elif self.offer is not None:
                results[number] = await self.offer.refuse(call)
        if own and self._runner is not None:
            earlier = tuple(self._earlier)
            self._earlier += own.values()
            with owned_by(self._owner):
                own_results = await self._runner.run(list(own.values()), run_id=self._run_id, earlier=earlier)
            results.update(zip(own, own_results, strict=True))
        return [results[number] for number in sorted(results)], found

    def _is_runnable(self, name: str) -> bool:
        """Return True for our own tool, if it is offered."""
        return name in self._names and (self.offer is None or self.offer.is_offered(name))

    def _append_turn(self, response: Response, results: list[ToolResult], found: list[Tool]) -> None:
        """Add a turn to the next request, which also offers the tools that became available in it.

        The parts that the client sees, and the usage, are kept for the whole answer.
        """
        assistant_message, result_message = Message("assistant", response.parts), Message("user", tuple(results))
        messages = (*self.request.messages, assistant_message, result_message)
        tools = (*self.request.tools, *found, *self._list_new_tools())
        if self.offer is not None and self.offer.has_no_search:
            tools = tuple(tool for tool in tools if not self.offer.is_search(tool.name))
        self.request = replace(self.request, messages=messages, tools=tools)
        self.earlier_parts = (*self.earlier_parts, *self.client_view(response).parts)
        if self.hosted is not None:
            self.request = self.hosted.release_choice(self.request)
        self.usage = add_usage(self.usage, response.usage)

    def _list_new_tools(self) -> list[Tool]:
        """Return our tools that became available in the last turn, and know them from now on."""
        if self._runner is None:
            return []
        known = self._names | {tool.name for tool in self.callable_tools}
        new_tools = [tool for tool in self._runner.tools_for_run(self._run_id) if tool.name not in known]
        self._names |= {tool.name for tool in new_tools}
        if self.offer is not None:
            self.offer.add(new_tools)
        return new_tools

    def total_usage(self, response: Response) -> Usage | None:
        """Add up the usage of all turns so far, including this one."""
        return add_usage(self.usage, response.usage)

    def client_view(self, response: Response) -> Response:
        """Return a turn without our calls, but with the runs of hosted tools in place of their calls.

        If no call is left, its stop reason is not `tool_calls`.
        """
        runs = iter(() if self.hosted is None else self.hosted.turn_parts)
        parts: list[Part] = []
        for part in response.parts:
            if not isinstance(part, ToolCall) or not self.is_gateway_tool(part.name):
                parts.append(part)
            elif self.hosted is not None and self.hosted.is_hosted(part.name):
                parts += next(runs, ())
        stop = response.stop
        if (
            stop is not None
            and stop.reason == "tool_calls"
            and not any(isinstance(kept_part, ToolCall) for kept_part in parts)
        ):
            stop = replace(stop, reason="stop")
        return replace(response, parts=tuple(parts), stop=stop)

    def merged_response(self, response: Response) -> Response:
        """Return the last turn, with the visible parts and the usage of the earlier turns."""
        visible = self.client_view(response)
        parts = (*self.earlier_parts, *visible.parts)
        merged = replace(visible, parts=parts, usage=add_usage(self.usage, visible.usage))
        return merged if self.hosted is None else self.hosted.finish_response(merged)


class TurnEvents:
    """The events of one turn for the client, which gets one response for any number of turns.

    Keys are shifted per turn, because each turn numbers its parts anew.
    """

    def __init__(self, gateway_tools: GatewayTools) -> None:
        self.response: Response | None = None  # the turn, once it is complete
        self._gateway_tools = gateway_tools
        self._is_first = gateway_tools.turns == 0
        self._first_key = gateway_tools.turns * _KEY_SPACE
        self._run_key = self._first_key + _KEY_SPACE  # above the keys of parts of runs, which are counted downwards
        self._earlier_usage = gateway_tools.usage
        self._folder = Folder()
        self._hidden: set[int] = set()  # keys of our calls
        self._has_client_call = False
        self._held: list[Event] | None = None  # from the first call of a hosted tool on

    def feed(self, event: Event) -> list[Event]:
        """Return the events that the client gets now. The turn's response is kept at its end."""
        self._folder.feed(event)
        if isinstance(event, ResponseEnd):
            self.response = self._folder.response()
        if self._held is None and isinstance(event, CallStart) and self._is_hosted(event):
            self._held = []
        if self._held is None or isinstance(event, (StreamFault, Ping)):
            return self._show(event, iter(()))
        self._held.append(event)
        return []

    def release(self) -> list[Event]:
        """Return the events that waited for the runs of hosted tools, with these runs."""
        held, self._held = self._held, None
        hosted = self._gateway_tools.hosted
        runs = iter(() if hosted is None else hosted.turn_parts)
        return [shown for event in held or () for shown in self._show(event, runs)]

    def _is_hosted(self, event: CallStart) -> bool:
        hosted = self._gateway_tools.hosted
        return hosted is not None and not event.choice and hosted.is_hosted(event.name)

    def _show(self, event: Event, runs: Iterator[list[Opaque]]) -> list[Event]:
        """Return an event as the client sees it: no calls of our tools, only the first start, and the whole usage."""
        if isinstance(event, ResponseStart):
            return [event] if self._is_first else []
        if isinstance(event, ResponseEnd):
            return self._end_turn(event)
        if isinstance(event, UsageUpdate):
            return [UsageUpdate(add_usage(self._earlier_usage, event.usage) or event.usage)]
        key = getattr(event, "key", None)
        if key is None:
            return [event]
        if isinstance(event, CallStart):
            if self._gateway_tools.is_gateway_tool(event.name):
                self._hidden.add(key)
                return self._show_run(next(runs, [])) if self._is_hosted(event) else []
            self._has_client_call = True
        if key in self._hidden:
            return []
        hosted = self._gateway_tools.hosted
        if hosted is not None and isinstance(event, TextEnd) and isinstance(text := self._folder.part(key), Text):
            event = replace(event, extra=merge_extra(event.extra, hosted.cite(text.text)))
        return [replace(event, key=key + self._first_key)]

    def _show_run(self, parts: list[Opaque]) -> list[Event]:
        events: list[Event] = []
        for part in parts:
            self._run_key -= 1
            events.append(WholePart(self._run_key, part))
        return events

    def _end_turn(self, event: ResponseEnd) -> list[Event]:
        """Return the end if the client gets this turn, after the number of runs.

        If it sees no call of the turn, the stop reason must not be `tool_calls`.
        """
        response, hosted = self.response, self._gateway_tools.hosted
        if response is None or not self._gateway_tools.is_client_visible(response):
            return []
        stops = event.stops
        if self._hidden and not self._has_client_call:
            stops = tuple(Stop("stop") if stop and stop.reason == "tool_calls" else stop for stop in stops)
        end = replace(event, stops=stops)
        if hosted is None:
            return [end]
        usage = add_usage(self._earlier_usage, response.usage)
        counted = usage if usage is None else hosted.count(usage)
        return [*([] if counted is None or counted is usage else [UsageUpdate(counted)]), hosted.finish(end)]
