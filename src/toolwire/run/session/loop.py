"""The agent loop, sans-IO: ask the model, run its tool calls and send the results, until a response has no more calls.

    session = Session(request, budget=Budget(iterations=8), now=time.time)
    match session.next():
        case AskModel(request): session.add_response(response)
        case RunTools(calls):   session.add_results(results)
        case AwaitApproval(calls): session.approve(call_id), session.deny(call_id, reason), session.supply(call_id, …)
        case Done(response):    …
        case GiveUp(reason):    …

`state` has the phases and the order of the steps. After every step `session.dump()` returns the whole state;
`Session.load` continues the run in another process, hours later if it waits for approval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.prompt_size import MessageSizes
from ...ir.request import Message, Request
from ...ir.response import Response, Usage, add_usage
from ...ir.tools import SEARCH_TOOLS, Effect, Tool
from ..tools.offer import OfferState, ToolFinder, ToolOffer, strip_function
from ..values.results import has_untrusted_output, is_untrusted, mark_untrusted, text_of_edited
from ..values.waiting import Turn, WaitingCall
from .compaction import CompactedPrefix, Compaction, CompactionPlan, plan_compaction
from .events import EventKind, RunStep
from .history import CallHistory, CallIds, CallLimits, EarlierCalls, replace_system
from .state import (
    STATE_VERSION,
    AskModel,
    AwaitApproval,
    Budget,
    Done,
    GiveUp,
    NextStep,
    RunState,
    RunTools,
    compare_offer,
    decode_state,
    encode_state,
    refer_to_tools,
    restore_tools,
)

if TYPE_CHECKING:
    from .output import OutputPlan


_DEFAULT_BUDGET = Budget()


class StartingCall(Protocol):
    """The attributes of a `CallContext` that a run inside its call uses."""

    session: Session | None
    tainted: bool
    untrusted: bool


class Session:
    """One run. `untrusted`: tools whose output may contain third-party instructions. `price`: cost of a response.

    `output`: the plan for a structured output; by default, the output is the text of the last response. `tainted`: the
    run starts with untrusted output, in addition to the output of untrusted tools in its messages. `has_toolbox_tools`: a
    dump refers to the tools by name and hash, because the agent that continues the run has their declarations.
    """

    def __init__(
        self,
        request: Request,
        *,
        now: Callable[[], float],
        run_id: str = "",
        budget: Budget | None = None,
        untrusted: Iterable[str] = (),
        price: Callable[[Response], float] | None = None,
        first_message: int = 0,
        has_fixed_tools: bool = False,
        output: OutputPlan | None = None,
        compacted: CompactedPrefix | None = None,
        tainted: bool = False,
        max_effect: Effect | None = None,
        tenant: str = "",
        has_toolbox_tools: bool = False,
    ) -> None:
        """Begin a run; arguments that the class does not explain are fields of `RunState`, with the same names."""
        declared_request = replace(request, tools=tuple(map(strip_function, request.tools)))
        state = RunState(
            STATE_VERSION,
            run_id,
            declared_request,
            started=now(),
            first_message=first_message,
            has_fixed_tools=has_fixed_tools,
            compacted=compacted,
            tainted=tainted,
            max_effect=max_effect,
            budget=budget,
            tenant=tenant,
            has_toolbox_tools=has_toolbox_tools,
        )
        self._initialise(state, now, budget, untrusted, price, output)

    def _initialise(
        self,
        state: RunState,
        now: Callable[[], float],
        budget: Budget | None,
        untrusted: Iterable[str],
        price: Callable[[Response], float] | None,
        output: OutputPlan | None,
    ) -> None:
        """Set the fields; shared by a new session and by `load`, which does not call `__init__`."""
        self.state = state if budget is None else replace(state, budget=budget)
        self._now = now
        self._untrusted = frozenset(untrusted)
        self._price = price
        self.output = output
        self._offer = ToolOffer()
        self._calls = CallHistory()
        self._sizes = MessageSizes()
        self._needs_tools = bool(state.offered)  # they are known by reference only
        self.tool_search: ToolFinder | None = None  # set by an agent whose model can search for tools
        self.parent: Session | None = None
        self._call: StartingCall | None = None  # the tool call that this run belongs to
        self.steps: list[RunStep] | None = None  # recorded if the run is stored
        self.losses = Losses()  # of the model requests since the run was started or loaded
        self._used_by_others: deque[tuple[Usage | None, float]] = deque()  # appended by other threads
        if has_untrusted_output(state.request.messages, self._untrusted):
            self._taint()

    @classmethod
    def load(
        cls,
        dumped: str | bytes | RunState,
        *,
        now: Callable[[], float],
        budget: Budget | None = None,
        untrusted: Iterable[str] = (),
        price: Callable[[Response], float] | None = None,
        output: OutputPlan | None = None,
        tools: Sequence[Tool] = (),
    ) -> Session:
        """Load a session that another process dumped, or the state of a stored run. `tools`: the present tools of a run of
        an agent; it sets them itself.

        Only a store makes sure that a run is continued once (`Agent.resume`); load a dumped text once.
        """
        session = cls.__new__(cls)
        state = dumped if isinstance(dumped, RunState) else decode_state(dumped)
        session._initialise(state, now, budget, untrusted, price, output)
        if tools:
            session.restore_tools(tools)
        return session

    def restore_tools(self, tools: Sequence[Tool]) -> None:
        """Replace the references of a loaded run by the present declarations of these tools.

        A tool that changed or disappeared meanwhile is not restored: the next turn offers its present definition, and
        a call that waits for it is refused.
        """
        if self._needs_tools:
            self._needs_tools = False
            self.state = restore_tools(self.state, tools)

    @property
    def budget(self) -> Budget:
        """The limits of the run. They are part of its state, and hold in every process that continues it."""
        return self.state.budget or _DEFAULT_BUDGET

    def adopt(self, untrusted: Iterable[str], budget: Budget | None, price: Callable[[Response], float] | None) -> None:
        """Add the settings of the agent that continues this run; the untrusted tools of both apply."""
        self._distrust(untrusted)
        if budget is not None:
            self.state = replace(self.state, budget=budget)
        self._price = price or self._price

    def continue_with(
        self,
        request: Request,
        system: str,
        *,
        untrusted: Iterable[str],
        price: Callable[[Response], float] | None,
    ) -> None:
        """Continue with another agent's model, tools and prompt; add its untrusted tools, and keep `price` if None."""
        state = self.state
        messages, first = request.messages, state.first_message
        earlier = replace_system(messages[:first], system)
        request = replace(
            request, messages=(*earlier, *messages[first:]), tools=tuple(map(strip_function, request.tools))
        )
        self._needs_tools = False
        self.state = replace(
            state,
            request=request,
            first_message=len(earlier),
            has_fixed_tools=False,
            has_toolbox_tools=True,
            offered=(),
        )
        self._distrust(untrusted)
        self._price = price or self._price

    def belong_to(self, call: StartingCall) -> None:
        """Run inside a tool call of another run: its tokens and cost count there too, and the limits of both apply.

        If the other run is tainted, this one is. If this one is tainted, the result of the call is untrusted.
        """
        self.parent, self._call = call.session, call
        if call.tainted or self.state.tainted:
            self._taint()

    def _distrust(self, tools: Iterable[str]) -> None:
        """Add untrusted tools. Their results in the conversation taint the run."""
        added = frozenset(tools) - self._untrusted
        self._untrusted |= added
        if added and has_untrusted_output(self.state.request.messages, added):
            self._taint()

    def _taint(self) -> None:
        self.state = replace(self.state, tainted=True)
        if self._call is not None:
            self._call.untrusted = True

    def add_usage(self, usage: Usage | None, cost: float = 0.0) -> None:
        """Count tokens and cost of other requests in this run: by a subagent or an auxiliary model."""
        if self.parent is not None:
            self.parent.add_usage(usage, cost)
        # Reports are merged: a subagent checks the budgets of all its parents, which must not cost more with every report.
        # `pop` and `append` are atomic, so no report is lost between threads, and there are at most as many as threads.
        with suppress(IndexError):
            merged_usage, merged_cost = self._used_by_others.pop()
            usage, cost = add_usage(merged_usage, usage), merged_cost + cost
        self._used_by_others.append((usage, cost))

    def _count_usage(self) -> None:
        """Move the usage that others reported into the state. Only the thread that drives the run changes the state."""
        while self._used_by_others:
            usage, cost = self._used_by_others.popleft()
            self.state = replace(self.state, usage=add_usage(self.state.usage, usage), cost=self.state.cost + cost)

    def begin_auxiliary_request(self, max_requests: int) -> bool:
        """Count a request to an auxiliary model; False if the run has made as many as it may, or has no budget left."""
        if self.state.auxiliary_requests >= max_requests or self._exhausted_limit():
            return False
        self.state = replace(self.state, auxiliary_requests=self.state.auxiliary_requests + 1)
        return True

    def add_auxiliary_response(self, response: Response) -> None:
        """Count the tokens and the cost of an auxiliary model's response."""
        self.add_usage(response.usage, 0.0 if self._price is None else self._price(response))
        self.state = replace(self.state, auxiliary_usage=add_usage(self.state.auxiliary_usage, response.usage))

    def set_agent(self, name: str | None) -> None:
        """Set the agent that continues the run, after a transfer; None for the agent that started it."""
        self.state = replace(self.state, agent=name)
        self.record_step("transfer")

    def set_revision(self, revision: int) -> None:
        """Set the version that the stored run gets with this state."""
        self.state = replace(self.state, revision=revision)

    def dump(self) -> str:
        """Return the whole state as JSON text.

        A copy of the text is a copy of the run: without a store, each copy of an approved run runs its calls.
        """
        return encode_state(self.stored_state())

    def stored_state(self, state: RunState | None = None) -> RunState:
        """Return a state, by default the present one, as it is dumped: with references to the tools of a toolbox."""
        self._count_usage()
        state = state or self.state
        return refer_to_tools(state, self._offer) if state.has_toolbox_tools else state

    def record_step(self, kind: EventKind) -> None:
        """Record the state after a step, if the run is stored."""
        if self.steps is not None:
            self.steps.append(RunStep(kind, self._now(), self.state))

    def take_steps(self) -> list[RunStep]:
        """Return the steps since the last time, in the form in which they are stored. The last one has the present state."""
        self._count_usage()
        if not self.steps or self.steps[-1].state is not self.state:
            self.record_step("change")
        steps, self.steps = self.steps or [], []
        return [replace(step, state=self.stored_state(step.state)) for step in steps]

    def next(self) -> NextStep:
        """Return the next step, the same if called twice; ConfigError for a stored run whose tools are not known."""
        self._count_usage()
        state = self.state
        if state.phase == "done":
            assert state.response is not None
            return Done(state.response)
        if state.phase == "run":
            return RunTools(state.turn.calls, tuple(self.earlier_calls()), state.tainted)
        if state.phase == "wait":
            return self._next_waiting_step()
        reason = state.reason if state.phase == "gave_up" else self._exhausted_limit()
        if reason:
            return GiveUp(reason, state.response)
        if self._needs_tools:
            raise ConfigError(
                f"the tools of run {state.run_id!r} are known by name only",
                hint="continue it with its agent, or pass tools=… to Session.load",
            )
        request = self.sent_request
        return AskModel(request if self.output is None else self.output.fit(request))

    def plan_compaction(self, settings: Compaction) -> CompactionPlan | None:
        """Plan the compaction of the next request; None if it is not needed. Pass the plan to `compact`."""
        request, response = self.sent_request, self.state.response
        usage = None if response is None else response.usage
        measured = None if usage is None else usage.total
        return plan_compaction(request.messages, settings, tools=request.tools, measured=measured, sizes=self._sizes)

    def compact(self, plan: CompactionPlan, summaries: Sequence[str] = ()) -> None:
        """Send the compacted conversation from the next request on. The state keeps the whole conversation."""
        self._expect("ask")
        prefix = CompactedPrefix(plan.apply(summaries), len(self.state.request.messages))
        self.state = replace(self.state, compacted=prefix)
        self.record_step("compaction")

    @property
    def sent_request(self) -> Request:
        """The next request: the conversation in its compacted form."""
        request, prefix = self.state.request, self.state.compacted
        return request if prefix is None else replace(request, messages=prefix.view(request.messages))

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds that the budget leaves; None if it has no time limit. The time of a waiting turn does not count."""
        seconds, state = self.budget.seconds, self.state
        now = state.waiting_since if state.phase == "wait" else self._now()
        own = None if seconds is None else max(0.0, seconds - (now - state.started))
        shared = None if self.parent is None else self.parent.remaining_seconds
        return min((limit for limit in (own, shared) if limit is not None), default=None)

    def give_up_on_time_limit(self) -> None:
        """Give up because the time limit passed during a model request, or while tools were running."""
        seconds = self.budget.seconds
        limit = "of the run that started this one" if seconds is None else f"{seconds:g} seconds"
        self._give_up(self.state, f"max time reached ({limit})")

    def add_response(self, response: Response) -> None:
        """Count the response to AskModel, make its call ids unique, add it, and then run its calls or end the run."""
        self._expect("ask")
        state = self.state
        parts = self.call_ids().rename_calls(response.parts)
        response = response if parts is response.parts else replace(response, parts=parts)
        cost = self.price(response) or 0.0
        if self.parent is not None:
            self.parent.add_usage(response.usage, cost)
        calls = response.calls if self.output is None else self.output.pending_calls(response)
        request = replace(state.request, messages=(*state.request.messages, Message("assistant", response.parts)))
        if request.choice is not None and request.choice.mode in ("required", "tool"):
            request = replace(request, choice=None)  # forced in every turn, the run would not end
        updated_state = replace(
            state,
            response=response,
            iterations=state.iterations + 1,
            usage=add_usage(state.usage, response.usage),
            cost=state.cost + cost,
            calls=state.calls + len(calls),
            request=request,
        )
        if response.fault is not None:
            self._give_up(updated_state, f"the model failed: {response.fault.message}")
        elif not calls:
            self._end_turn(updated_state, response)
        elif violation := self.call_limits().find_violation(calls):
            self._give_up(updated_state, violation)
        else:
            self.state = replace(updated_state, phase="run", turn=Turn(calls))
        self.record_step("model_turn")

    def call_limits(self) -> CallLimits:
        """Return the limits for the calls of the next response."""
        state, history = self.state, self._calls.read(self.state.request.messages)
        return CallLimits(self.budget, state.calls, history, history.before(state.first_message))

    def call_ids(self) -> CallIds:
        """Return the ids that calls of the conversation have."""
        return CallIds(self._calls.read(self.state.request.messages).ids)

    def earlier_calls(self, *, with_turn: bool = False) -> EarlierCalls:
        """Return the calls of all turns before the pending one; `with_turn`: and its calls."""
        messages = self.state.request.messages
        history = self._calls.read(messages)
        return EarlierCalls(history, len(history.calls) if with_turn else history.before(max(len(messages) - 1, 0)))

    def replace_call(self, call: ToolCall) -> None:
        """Replace a call of the turn by one with the same id, such as its repaired form. The conversation keeps it."""
        turn = self.state.turn
        calls = tuple(call if known.id == call.id else known for known in turn.calls)
        self.state = replace(self.state, turn=replace(turn, calls=calls))

    def price(self, response: Response) -> float | None:
        """Return the cost of a response; None if there is no price."""
        return None if self._price is None else self._price(response)

    def _end_turn(self, updated_state: RunState, response: Response) -> None:
        """End the run with a response without calls, unless its output is invalid and the model is asked again."""
        before = self.state
        if self.output is None:
            self.state = replace(updated_state, phase="done")
            return
        decision = self.output.decide(response, before.asked_again, before.resampled, before.request)
        history = updated_state.request.messages if response.parts else before.request.messages
        request = replace(updated_state.request, messages=(*history, *decision.messages))
        if decision.action == "give_up":
            self._give_up(updated_state, decision.reason)
        elif decision.action == "accept":
            self.state = replace(updated_state, phase="done", request=request)
        elif decision.action == "resample":
            self.state = replace(updated_state, request=before.request, resampled=before.resampled + 1)
        else:
            self.state = replace(updated_state, request=request, asked_again=before.asked_again + 1, resampled=0)

    def add_results(self, results: Sequence[ToolResult]) -> None:
        """Take the results of the last RunTools, in the order of its calls. ConfigError if they do not match the calls.

        If some of them are suspended, the run waits for decisions about these, and keeps the other results.
        """
        self._expect("run", "wait")
        state, now = self.state, self._now()
        turn = state.turn.add_results(results, now)
        if any(turn.waiting):
            since = state.waiting_since if state.phase == "wait" else now
            self.state = replace(state, phase="wait", turn=turn, waiting_since=since)
        else:
            started = state.started + (now - state.waiting_since if state.phase == "wait" else 0.0)
            self._answer_calls(replace(state, started=started, waiting_since=0.0), turn)
        self.record_step("results")

    @property
    def waiting(self) -> tuple[WaitingCall, ...]:
        """The calls that wait for a decision."""
        return self.state.turn.undecided(self._now()) if self.state.phase == "wait" else ()

    def approve(self, call_id: str, arguments: Object | None = None) -> None:
        """Approve a waiting call, with other arguments if they are given: these pass all gates again.

        The approval is valid for the tool, its definition and the arguments that were shown, until the question
        expires. Raises ApprovalExpired after that, and ConfigError for arguments that do not match the tool's schema.
        """
        self._expect("wait")
        state = self.state
        self.state = replace(state, turn=state.turn.approve(call_id, arguments, self._now(), state.request.tools))
        self.record_step("decision")

    def deny(self, call_id: str, reason: str = "") -> None:
        """Deny a waiting call. The model reads the reason."""
        self._expect("wait")
        self.state = replace(self.state, turn=self.state.turn.deny(call_id, reason, self._now()))
        self.record_step("decision")

    def supply(self, call_id: str, result: Any) -> None:
        """Set the result of a call whose tool returned `Suspended`: a value that a tool may return, or a ToolResult."""
        self._expect("wait")
        self.state = replace(self.state, turn=self.state.turn.supply(call_id, result, self._now()))
        self.record_step("decision")

    def update_waiting(self, call_id: str, calls: tuple[WaitingCall, ...]) -> None:
        """Set the calls of a nested run for which a call waits."""
        self._expect("wait")
        self.state = replace(self.state, turn=self.state.turn.update_waiting(call_id, calls, self._now()))

    def start_calls(self) -> None:
        """Mark the approved calls that run next: from now on they cannot be denied."""
        self.state = replace(self.state, turn=self.state.turn.start(self._now()))

    def add_prompt(self, message: Message) -> None:
        """Add a message of the user. The model receives it after the results of the calls that run or wait."""
        self._expect("ask", "run", "wait")
        state = self.state
        if state.phase == "ask":
            self.state = replace(state, request=replace(state.request, messages=(*state.request.messages, message)))
        else:
            self.state = replace(state, prompts=(*state.prompts, message))
        self.record_step("prompt")

    def offer_tools(self, tools: Sequence[Tool], *, untrusted: Iterable[str] = ()) -> None:
        """Offer these tools from the next turn. Tools that were offered before keep their position; new ones are last.

        A stable order keeps the prefix of the request stable, which providers cache. `untrusted`: tools whose output is
        untrusted, in addition to the known ones. Left out are tools with a stronger effect than the run may have, and
        one with the name of the final-answer tool.
        """
        self._distrust(untrusted)
        state = self.state
        if state.has_fixed_tools:
            return
        reserved = None if self.output is None or self.output.tool is None else self.output.tool.name
        offered = state.request.tools
        order = [reference.name for reference in state.offered] if state.offered else None
        merged = self._offer.merge(offered, tools, order=order, reserved=reserved, max_effect=state.max_effect)
        self._needs_tools = False
        if merged is not offered or state.offered:
            self.state = replace(state, request=replace(state.request, tools=merged), offered=())

    @property
    def offered_names(self) -> tuple[str, ...]:
        """The names of the offered tools, in their order."""
        state = self.state
        return tuple([offered.name for offered in state.offered or state.request.tools])

    @property
    def how_to_get_tools(self) -> str:
        """The instruction for a model that calls a tool that is not offered."""
        if self.tool_search is not None:
            return f"Find it with {SEARCH_TOOLS} first."
        return "" if self.state.has_fixed_tools else "The next turn offers it."

    def offer_state(self, tool: Tool) -> OfferState:
        """Return whether this run offers the tool with this definition. Tools that the user chose may be declared otherwise."""
        return compare_offer(self.state, self._offer, tool)

    def _next_waiting_step(self) -> RunTools | AwaitApproval:
        """Run approved calls, and calls whose question expired, which ask again.

        After the last decision the results are passed back, even if nothing is left to run: only then is the turn
        complete, in a process that knows the settings of the agent.
        """
        state, now = self.state, self._now()
        turn = state.turn.release(now)
        undecided = turn.undecided(now)
        if None in turn.results or not undecided:
            approvals = turn.approvals(now)
            return RunTools(turn.calls, tuple(self.earlier_calls()), state.tainted, turn.results, approvals)
        return AwaitApproval(undecided)

    def _answer_calls(self, state: RunState, turn: Turn) -> None:
        """Add a turn's results and the queued prompts, then go to phase "ask", or give up after too many failed turns.

        Untrusted results are marked, and taint the run.
        """
        results = tuple(text_of_edited(result) for result in turn.results if result is not None)  # all have run
        results = mark_untrusted(turn.calls, results, self._untrusted)
        failures = state.failures + 1 if all(result.is_error for result in results) else 0
        is_tainted = any(map(is_untrusted, results))
        if self.output is not None and state.response is not None:
            results = self.output.complete_results(state.response, results)
        messages = (*state.request.messages, Message("user", results), *state.prompts)
        answered = replace(
            state,
            phase="ask",
            turn=Turn(),
            prompts=(),
            request=replace(state.request, messages=messages),
            failures=failures,
        )
        if failures >= self.budget.failures:
            self._give_up(answered, f"{failures} consecutive turns returned only errors")
        else:
            self.state = answered
        if is_tainted:
            self._taint()  # it changes the new state

    def _expect(self, *phases: str) -> None:
        if self.state.phase not in phases:
            if self.state.phase in ("done", "gave_up"):
                raise ConfigError(f"the run has ended ({self.state.phase})", hint="start a new run with its history")
            expected = " or ".join(map(repr, phases))
            raise ConfigError(f"expected phase {expected}, the run is in {self.state.phase!r}", hint="call next()")

    def _give_up(self, state: RunState, reason: str) -> None:
        self.state = replace(state, phase="gave_up", reason=reason)

    def _exhausted_limit(self) -> str:
        """Return the reason why the budget is exhausted; an empty string if it is not."""
        if self.state.iterations >= self.budget.iterations:
            return f"max iterations reached ({self.budget.iterations})"
        return self._exhausted_amount()

    def _exhausted_amount(self) -> str:
        """Return the exhausted limit of time, tokens or cost, of this run or an outer one; empty if there is none."""
        state = self.state
        usage, cost = state.usage, state.cost
        for other_usage, other_cost in tuple(self._used_by_others):
            usage, cost = add_usage(usage, other_usage), cost + other_cost
        if own := self.budget.exhausted_amount(self._now() - state.started, usage, cost):
            return own
        shared = "" if self.parent is None else self.parent._exhausted_amount()
        return f"{shared} by the run that started this one" if shared else ""
