"""Perform the steps of one run of an agent: ask the model, run its calls, until the run is done.

`Session` decides which step is next; this module performs it. The order within a turn:

    offer, compact   Before a model request only, because both change it. Then the session is asked again: a summary may
                     have exhausted the budget.
    ask              Within the remaining time of the run. A timeout of the model itself is an error of the request.
    save             In a stream before the results are awaited: a process that is killed while tools run leaves the
                     calls in the stored run, and their records show which of them ran.
    run              In a stream, pure and read calls have begun already (`Dispatch`). When the time is over, no call
                     starts and only writes are awaited: an interrupted write would have an unknown outcome.
    improve          The auxiliary model repairs and shortens results before the conversation gets them, because a
                     message that was sent must not change: it is part of a cached prefix.
    add, transfer    An agent that a tool returned takes over after the results were added, with the whole conversation.
    save             A run is reported as waiting or ended only if that was saved.

Around all steps are the observation of the run, then the lease of the stored run: a lost lease is an outcome that
observers see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from typing import Any, Literal, Protocol, TypeAlias

from msgspec.structs import replace

from ...bridge.fitting.cache_marks import mark_stable_prefix
from ...ir.errors import ConfigError
from ...ir.events import Event
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.request import Request
from ...ir.response import Response, Usage
from ...run.calls.context import current_call
from ...run.calls.observe import AgentOperation, Observation, Observer, OperationOutcome, Retriever, active_observers
from ...run.calls.runtime_tools import defer_found_tools, select_tools
from ...run.session.compaction import Compaction
from ...run.session.loop import Session
from ...run.session.output import OutputPlan
from ...run.session.partial_output import ArgumentsReader, PartialOutput, PartialReader, UnfinishedCall
from ...run.session.state import AskModel, AwaitApproval, Done, GiveUp, NextStep, RunTools
from ...run.values.results import result_note
from ..model.interface import Model
from ..tools.dispatch import Dispatch, StreamCollector, is_large
from ..tools.runner import Runner
from .answers import Answer
from .auxiliary import AuxiliaryModel, AuxiliaryWork
from .checkpoints import Checkpoints
from .delegation import active_agent, take_successor
from .discovery import make_tool_search, run_in_retriever_thread
from .model_requests import ask_model, in_own_context, stream_model

StreamItem: TypeAlias = Event | ToolCall | ToolResult | UnfinishedCall | PartialOutput


_MAX_CHARACTERS = 32 * 1024  # of a structured output that is read on the event loop; a larger one is read in a thread


class LoopAgent(Protocol):
    """The parts of an `Agent` that its runs use."""

    name: str
    runner: Runner
    transfers: Sequence[Any]
    retriever: Retriever | None
    compaction: Compaction | None
    cache: Literal["auto"] | None
    auxiliary: AuxiliaryModel | None
    observers: Sequence[Observer]
    always_offered: Sequence[str]

    @property
    def model(self) -> Model: ...

    async def take_over(self, session: Session, deps: Any) -> None:
        """Continue the run of another agent with this one."""
        ...

    def select_deps(self, deps: Any) -> Any:
        """Return the dependencies of a run if this agent declares dependencies; else None."""
        ...

    def plan_output(self, request: Request, model: Model) -> OutputPlan | None:
        """Return the plan for the structured output of a run, or None if its output is text."""
        ...


class AgentLoop:
    """One run. `deps` are passed to tools that take a `CallContext`. A transfer changes `agent` during the run.

    The output has the type of the first agent, to which the caller's `Answer` belongs. `checkpoints` save the run after each step.
    """

    def __init__(
        self, agent: LoopAgent, session: Session, *, deps: Any = None, checkpoints: Checkpoints | None = None
    ) -> None:
        self.agent = active_agent(agent, session)
        self._is_started_here = session.state.agent is None
        self.session = session
        self._checkpoints = checkpoints
        self._deps = deps
        self._origin = agent
        self._partial = PartialReader()
        self._has_asked = False
        self._is_out_of_time = False
        session.tool_search = make_tool_search(self.agent, session)
        if session.state.phase == "wait":
            self._check_waiting_tools()

    def _check_waiting_tools(self) -> None:
        """Raise ConfigError if a decided call could not run because the agent does not have its tool."""
        step, box = self.session.next(), self.agent.runner.box
        if not isinstance(step, RunTools):
            return
        calls = zip(step.calls, step.results, strict=True)
        missing = {call.name: None for call, result in calls if result is None and box.find(call.name) is None}
        if missing:
            raise ConfigError(
                f"the run waits for {', '.join(missing)}, which this agent does not have",
                hint="continue it with the tools with which it was started",
            )

    async def run(self) -> Answer[Any]:
        """Perform all steps, observed and with the lease of the stored run, and return the answer."""
        try:
            with self._observe_run() as observation:
                async with self._checkpoints or nullcontext():
                    answer = await self._perform_steps()
                observation.outcome = _run_outcome(answer)
            return answer
        finally:
            await self._flush_observers()

    async def _flush_observers(self) -> None:
        """Await the observers that record in the background, such as `TraceObserver`, after an outermost run."""
        if not current_call().call_id:
            for observer in self._run_observers():
                if (flush := getattr(observer, "flush", None)) is not None:
                    await flush()

    async def _perform_steps(self) -> Answer[Any]:
        """Ask the model and run its calls until the run is done, gives up or waits. Save the run after each step."""
        session = self.session
        while True:
            step = await self._next_step()
            if isinstance(step, AskModel):
                try:
                    async with asyncio.timeout(session.remaining_seconds) as limit:
                        response = await ask_model(self.agent, session, self._prepare_request(step.request))
                except TimeoutError:
                    if not limit.expired():
                        raise  # a timeout of the model, not of the run
                    session.give_up_on_time_limit()
                else:
                    await self._add_response(response)
            elif isinstance(step, RunTools):
                await self._add_results(await self._improve_results(step, await self._run_tools(step)))
            else:
                return self._make_answer(step)
            await self._save()

    def stream(self) -> AsyncGenerator[StreamItem | Answer[Any], None]:
        """Yield the events of the model and each complete call as they arrive, then the results, then the answer.

        A pure or read call starts as soon as it is complete, while the model is still generating. A structured output
        and the arguments of calls are yielded while they grow. Observers may set context variables, so an observed stream has a context of its own.
        """
        is_observed = bool(active_observers(self._run_observers()))
        return in_own_context(self._stream_observed()) if is_observed else self._stream_saved()

    async def _stream_observed(self) -> AsyncGenerator[StreamItem | Answer[Any], None]:
        """Yield the items of `_stream_saved` in an observation of the run, then flush the observers."""
        try:
            with self._observe_run() as observation:
                async with aclosing(self._stream_saved()) as items:
                    async for item in items:
                        if isinstance(item, Answer):
                            observation.outcome = _run_outcome(item)
                        yield item
        finally:
            await self._flush_observers()

    def _observe_run(self) -> Observation:
        state, agent = self.session.state, self.agent
        operation = AgentOperation(state.run_id, state.request, agent.name, current_call().call_id)
        return Observation(self._run_observers(), operation)

    def _run_observers(self) -> Sequence[Observer]:
        """Return the run's observers: the first agent's, and those that the agent after a transfer adds."""
        first, own = self._origin.observers, self.agent.observers
        return own if first is own else (*first, *(observer for observer in own if observer not in first))

    async def _stream_saved(self) -> AsyncGenerator[StreamItem | Answer[Any], None]:
        """Yield the items of all steps, and hold the lease of the stored run meanwhile."""
        async with self._checkpoints or nullcontext(), aclosing(self._stream_steps()) as items:
            async for item in items:
                yield item

    async def _stream_steps(self) -> AsyncGenerator[StreamItem | Answer[Any], None]:
        """Yield the events, calls and results of all steps, then the answer. Save the run before and after its calls.

        Calls that have begun are aborted if the stream is closed.
        """
        session = self.session
        while True:
            step = await self._next_step()
            if isinstance(step, AskModel):
                dispatch = self._open_dispatch()
                try:
                    async with aclosing(self._stream_model(step, dispatch)) as events:
                        async for event in events:
                            yield event
                    await self._save()
                    if isinstance(tools := session.next(), RunTools):
                        results = await self._improve_results(tools, await self._results_in_time(dispatch))
                        for result in results:
                            yield result
                        await self._add_results(results)
                        await self._save()
                finally:
                    await dispatch.abort()
            elif isinstance(step, RunTools):  # a session that another process started
                decided = [n for n in range(len(step.calls)) if not step.results or _is_decided(step.results[n])]
                for number in decided:
                    yield step.calls[number]
                results = await self._improve_results(step, await self._run_tools(step))
                for number in decided:
                    yield results[number]
                await self._add_results(results)
                await self._save()
            else:
                yield self._make_answer(step)
                return

    async def _add_results(self, results: list[ToolResult]) -> None:
        """Add the results of a turn to the session. If a tool returned an agent, the first such agent takes over.

        A run that is out of time gives up instead of asking the model again.
        """
        session = self.session
        session.add_results(results)
        if session.state.phase == "wait":
            self._has_asked = True
            return  # the turn is not complete
        if self._is_out_of_time and session.state.phase == "ask":
            session.give_up_on_time_limit()
            return
        successor = take_successor(results, self.agent, self._origin)
        if successor is not None:
            await successor.take_over(session, self._deps)
            self.agent = successor
            session.tool_search = make_tool_search(successor, session)
            session.set_agent(None if successor is self._origin and self._is_started_here else successor.name)
            request = replace(session.state.request, tools=successor.runner.box.tools)
            session.output = self._origin.plan_output(request, successor.model)

    async def _save(self) -> None:
        if self._checkpoints is not None:
            await self._checkpoints.save(self.session)

    async def _next_step(self) -> NextStep:
        """Return the next step. Before a model request, offer the tools that exist now, and compact the conversation.

        A question that expires at once is asked again when the run is continued, not in a loop.
        """
        if self._has_asked:
            return AwaitApproval(self.session.state.turn.questions)
        step = self.session.next()
        if not isinstance(step, AskModel):
            return step
        await self._offer_tools()
        compaction = self.agent.compaction
        plan = None if compaction is None else self.session.plan_compaction(compaction)
        if plan is not None and compaction is not None:
            work = self._auxiliary_work() if compaction.summarise else None
            self.session.compact(plan, () if work is None else await work.summarise_spans(plan, compaction))
        return self.session.next()

    async def _offer_tools(self) -> None:
        """Offer the tools of the next turn. The retriever works in a thread: its index may have to encode new tools."""
        runner, session = self.agent.runner, self.session
        tools = runner.tools_for_run(session.state.run_id, can_search=session.tool_search is not None)
        retriever = self.agent.retriever
        if retriever is not None and not session.state.has_fixed_tools:
            always = self.agent.always_offered
            tools = await run_in_retriever_thread(lambda: select_tools(retriever, session, tools, always))
        session.offer_tools(tools, untrusted=runner.untrusted)

    def _auxiliary_work(self) -> AuxiliaryWork | None:
        agent = self.agent
        if agent.auxiliary is None:
            return None
        is_compacted = agent.compaction is not None
        return AuxiliaryWork(agent.auxiliary, self.session, agent.runner, agent.observers, is_compacted=is_compacted)

    async def _improve_results(self, step: RunTools, results: list[ToolResult]) -> list[ToolResult]:
        """Let the auxiliary model, if there is one, repair calls and shorten results."""
        work = self._auxiliary_work()
        if work is None:
            return results
        return await work.improve_results(step, results, self._run_again)

    async def _run_again(self, call: ToolCall) -> ToolResult:
        """Run a repaired call; the call that it replaces was refused before anything was run."""
        step = self.session.next()
        assert isinstance(step, RunTools)
        (result,) = await self._run_tools(RunTools((call,), step.earlier, step.tainted))
        return result

    async def _stream_model(self, step: AskModel, dispatch: Dispatch) -> AsyncGenerator[StreamItem, None]:
        """Yield the events and calls of one response, and add it to the session once it is complete.

        Values of a structured output and of arguments are yielded while they grow. Calls are given to `dispatch`.
        """
        request, session = self._prepare_request(step.request), self.session
        collector, reader = StreamCollector(dispatch, session), ArgumentsReader()
        async with aclosing(stream_model(self.agent, session, request, collector.folder)) as events:
            async for event in events:
                calls = collector.feed(event)
                yield event
                if session.output is not None and (partial := self._partial.feed(event, session.output)) is not None:
                    yield partial
                if (arguments := reader.feed(event, session.output)) is not None:
                    yield replace(arguments, id=collector.call_id(arguments.key))
                for call in calls:
                    yield call
        if not isinstance(session.next(), GiveUp):
            await self._add_response(collector.folder.response())

    async def _add_response(self, response: Response) -> None:
        """Add a response. A large structured output is read in a thread, so that it does not delay the event loop."""
        plan = self.session.output
        if plan is not None and not plan.pending_calls(response):
            if len(response.text) > _MAX_CHARACTERS or any(is_large(call) for call in response.calls):
                await asyncio.to_thread(plan.read, response)
        self.session.add_response(response)

    def _prepare_request(self, request: Request) -> Request:
        """Remove withdrawn tools, defer the loading of those that a search found, and mark the stable prefix."""
        available = self.agent.runner.box.filter_available(request.tools)
        if len(available) != len(request.tools):
            request = replace(request, tools=available)
        if self.session.tool_search is not None:
            request = defer_found_tools(request)
        endpoint = getattr(self.agent.model, "endpoint", None) if self.agent.cache == "auto" else None
        if endpoint is None or endpoint.has_body_mark:
            return request
        return mark_stable_prefix(request, endpoint.wire, endpoint.capabilities)

    async def _run_tools(self, step: RunTools) -> list[ToolResult]:
        """Run the calls of a turn, and return all results. Calls with a result from an earlier attempt do not run again."""
        if not step.results and self.session.remaining_seconds is None:
            return await self.agent.runner.run(
                step.calls,
                run_id=self.session.state.run_id,
                earlier=self.session.earlier_calls(),
                tainted=step.tainted,
                deps=self.agent.select_deps(self._deps),
                session=self.session,
            )
        dispatch = self._open_dispatch(self.session.earlier_calls())
        nothing = (None,) * len(step.calls)
        for call, result, approval in zip(step.calls, step.results or nothing, step.approvals or nothing, strict=True):
            dispatch.add(call, result=result, approval=approval)
        return await self._results_in_time(dispatch)

    async def _results_in_time(self, dispatch: Dispatch) -> list[ToolResult]:
        """Return the results of a turn. When the time of the run is over, no call starts and only writes are awaited.

        Then `_is_out_of_time` is set.
        """
        remaining = self.session.remaining_seconds
        if remaining != 0:
            try:
                async with asyncio.timeout(remaining) as limit:
                    return await dispatch.results()
            except TimeoutError:
                if not limit.expired():
                    raise
        self._is_out_of_time = True
        return await dispatch.abort()

    def _open_dispatch(self, earlier: Sequence[ToolCall] | None = None) -> Dispatch:
        """Return a dispatch for the calls of a turn. `earlier`: the calls before it; all calls of the run by default."""
        state = self.session.state
        if earlier is None:
            earlier = self.session.earlier_calls(with_turn=True)
        return self.agent.runner.dispatch(
            run_id=state.run_id,
            earlier=earlier,
            tainted=state.tainted,
            deps=self.agent.select_deps(self._deps),
            session=self.session,
        )

    def _make_answer(self, step: Done | GiveUp | AwaitApproval) -> Answer[Any]:
        """Return the outcome of the run. A structured value needs a run that is done, and a state one that waits."""
        state = self.session.state
        response = state.response
        pending = step.calls if isinstance(step, AwaitApproval) else ()
        parts = () if response is None else response.parts
        text = "".join(part.text for part in parts if isinstance(part, Text))
        plan = self.session.output
        return Answer(
            text,
            text if plan is None else plan.read(step.response).value if isinstance(step, Done) else None,
            response,
            state.request.messages,
            first_message=state.first_message,
            usage=state.usage or Usage(),
            cost=state.cost,
            reason=_reason(step),
            run_id=state.run_id,
            output_tool=None if plan is None or plan.tool is None else plan.tool.name,
            compacted=state.compacted,
            auxiliary_usage=state.auxiliary_usage or Usage(),
            pending=pending,
            run_state=self.session.stored_state() if pending else None,
            tainted=state.tainted,
            offered=self.session.offered_names if self.agent is self._origin else (),
            losses=tuple(self.session.losses),
        )


def _is_decided(result: ToolResult | None) -> bool:
    """Return True for a call that runs now, and for one that a person has denied: the stream has not shown it yet."""
    return result is None or result_note(result, "reason") is not None


def _reason(step: Done | GiveUp | AwaitApproval) -> str:
    """Return the reason why there is no answer, or an empty string if there is an answer."""
    if isinstance(step, AwaitApproval):
        return f"waiting for {', '.join(call.tool for call in step.calls)}"
    return step.reason if isinstance(step, GiveUp) else ""


def _run_outcome(answer: Answer[Any]) -> OperationOutcome:
    return OperationOutcome(
        answer.response,
        reason=answer.reason,
        decision="suspended" if answer.suspended else "",
        usage=answer.usage,
        cost=answer.cost or None,
    )
