"""The values of the agent loop: the limits of a run, its steps, and its state with the phases of `Session`.

    ask ──response with calls──▶ run ──results──▶ ask ──response without calls──▶ done
     │                            └──some suspended──▶ wait ──results──▶ ask        (or ask again: invalid output)
     └──a fault, a violated limit, too many failed turns, no time left──▶ gave_up

    phase     next() returns             accepted
    ask       AskModel, or GiveUp        add_response, compact, add_prompt
    run       RunTools                   add_results, add_prompt
    wait      AwaitApproval, RunTools    approve, deny, supply, add_results, add_prompt
    done      Done                       nothing
    gave_up   GiveUp                     nothing

The state is an immutable value, and each method of `Session` replaces it once its decision is made. So the state
between any two steps can be stored, by reference and without a copy, and `next()` returns the same step again in a
process that continues the run after a crash.

The order inside `add_response`: ids of calls are made unique first, because decisions and results refer to them; tokens
and cost are counted next, also of a response that ends the run, because it was paid for; then a fault, the output and
the limits are checked, in this order, before `next` returns the calls. A turn that violates a limit is refused as a
whole.

A waiting run is decided by any process, but only a process with the agent's settings completes the turn: after the last
decision, `next()` returns RunTools even if nothing is left to run. The time of waiting does not count: `started` is
moved by it.

A stored state refers to the tools of a toolbox by name and hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError, ProtocolError
from ...ir.parts import ToolCall, ToolResult
from ...ir.request import Message, Request
from ...ir.response import Response, Usage
from ...ir.tools import Effect, Tool
from ...ir.value import Value
from ..tools.offer import OfferState, ToolOffer, ToolReference, resolve_references
from ..values.waiting import Approval, Turn, WaitingCall
from .compaction import CompactedPrefix


class Budget(Value, frozen=True):
    """The limits of a run.

    `same_call`: how often the model may repeat an identical call. `failures`: how many consecutive turns may return
    only errors; until then the model may adapt.
    """

    iterations: int = 16  # model requests; most tasks need fewer than ten, and each costs the whole conversation
    calls: int | None = 256  # of the whole run; as many as one turn may have (`Runner(max_per_turn=…)`)
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    same_call: int = 4  # a model may poll a status a few times; more identical calls are a loop
    failures: int = 6  # turns; the model had several attempts to adapt its calls

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if limit is None and name not in ("iterations", "same_call", "failures"):
                continue
            if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
                raise ConfigError(f"{name} must be a positive number, got {limit!r}")

    def exhausted_amount(self, seconds: float, usage: Usage | None, cost: float) -> str:
        """Return the exhausted limit of time, tokens or cost; an empty string if there is none."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"max time reached ({self.seconds:g} seconds)"
        if self.tokens is not None and usage is not None and usage.total >= self.tokens:
            return f"max tokens reached ({self.tokens})"
        if self.cost is not None and cost >= self.cost:
            return f"max cost reached ({self.cost:g})"
        return ""


class AskModel(Value, frozen=True):
    """Send `request` to the model, and pass its response to `add_response`."""

    request: Request


class RunTools(Value, frozen=True):
    """Run `calls`. `earlier`: the previous calls of the run. `tainted`: the run contains untrusted tool output.

    `results` and `approvals` are empty, or have one item per call. A call with a result has run, or still waits, and
    must not run; its result is passed back. An approval answers the question that the call asks.
    """

    calls: tuple[ToolCall, ...]
    earlier: tuple[ToolCall, ...] = ()
    tainted: bool = False
    results: tuple[ToolResult | None, ...] = ()
    approvals: tuple[Approval | None, ...] = ()


class AwaitApproval(Value, frozen=True):
    """The run waits for decisions: `approve`, `deny` or `supply`. The calls that do not follow them have run."""

    calls: tuple[WaitingCall, ...]


class Done(Value, frozen=True):
    """The run ended with this response, which has no more calls."""

    response: Response


class GiveUp(Value, frozen=True):
    """The run ended without an answer, for this reason."""

    reason: str
    response: Response | None = None


NextStep: TypeAlias = AskModel | RunTools | AwaitApproval | Done | GiveUp


class RunState(Value, frozen=True):
    """The complete state of a run. `version` is the version of this format.

    `request` has the whole conversation; `compacted` is the form of its first messages that is sent to the model.
    `first_message`: the index of the first message of this run; the messages before it are system prompt and history.
    `has_fixed_tools`: the request names its tools, so tools that appear during the run are not offered. `prompts`: messages
    of the user that follow the results of the current turn. `auxiliary_usage`: the part of `usage` that an auxiliary model
    used, in `auxiliary_requests`. `max_effect`: the strongest effect that calls of this run may have; None for any.
    `revision`: the version of the run in its store that has this state; 0 if it is not stored.
    `agent`: the name of the agent to which the run was transferred; None for the agent that started it.
    `tenant`: the tenant of the runner that started the run; others cannot continue it.
    `budget`: the limits of the run; None for the defaults.
    `has_toolbox_tools`: the tools come from the toolbox of an agent, which has their declarations. A dump of such a run
    has `offered`, the names and hashes of the offered tools, and the declarations of tools whose calls wait.
    """

    version: int
    run_id: str
    request: Request
    phase: Literal["ask", "run", "wait", "done", "gave_up"] = "ask"
    iterations: int = 0
    calls: int = 0
    usage: Usage | None = None
    cost: float = 0.0
    started: float = 0.0
    first_message: int = 0
    has_fixed_tools: bool = False
    tainted: bool = False
    failures: int = 0
    turn: Turn = Turn()
    prompts: tuple[Message, ...] = ()
    waiting_since: float = 0.0
    response: Response | None = None
    reason: str = ""
    asked_again: int = 0  # requests for another output, with the problems of the last one
    resampled: int = 0  # repetitions of the last request, since its output was invalid
    compacted: CompactedPrefix | None = None
    auxiliary_requests: int = 0
    auxiliary_usage: Usage | None = None
    max_effect: Effect | None = None
    revision: int = 0
    budget: Budget | None = None
    agent: str | None = None
    tenant: str = ""
    has_toolbox_tools: bool = False
    offered: tuple[ToolReference, ...] = ()


STATE_VERSION = 2  # 2: the tools of a toolbox are references; 1: declarations

_decode = msgspec.json.Decoder(RunState).decode


def encode_state(state: RunState) -> str:
    return msgspec.json.encode(state).decode()


def decode_state(dumped: str | bytes) -> RunState:
    """Decode the state of a run. Raise ProtocolError if it is malformed, ConfigError for another version."""
    try:
        state = _decode(dumped)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the dumped state of a run cannot be decoded: {error}") from None
    return check_state_version(state)


def check_state_version(state: RunState) -> RunState:
    """Return the state. Raise ConfigError if it has another version."""
    if state.version != STATE_VERSION:
        raise ConfigError(
            f"the state of a run has version {state.version}, expected {STATE_VERSION}",
            hint="continue the run with the version of toolwire that dumped it",
        )
    return state


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
    reference = next((offered for offered in state.offered if offered.name == tool.name), None)
    return "absent" if reference is None else "offered" if reference.matches(tool) else "changed"
