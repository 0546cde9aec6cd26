"""Repeat a recorded run offline: the recorded responses are the model, the recorded results are the tools.

    trace = load_run("run.jsonl")
    await replay_run(trace, agent)         # raises ReplayDifference at the first difference

Every request is compared with the recorded one. The run is deterministic: nothing is sent, and no tool with side
effects runs. A request to another model, such as an agent in a tool makes, is refused and reported as a difference.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError, ToolwireError
from ...ir.events import Event
from ...ir.folding import unfold
from ...ir.parts import ToolResult
from ...ir.request import Request
from ...ir.response import Response
from ...ir.tools import Tool
from ...run.calls.context import current_call
from ...run.calls.steps import ApprovalReply, Approve, Approved, Denied
from ...run.session.state import Budget
from ...run.tools.function_tool import Options
from ...run.tools.toolbox import Entry, Toolbox
from ...run.traces.format import ApprovalDecided, RunEnded
from ...run.traces.recordings import RecordedTurn, RunTrace, run_of
from ...run.traces.replay import Difference, ReplayDifference, RequestComparer, first_difference
from ...run.values.keys import canonical_json
from ...run.values.outputs import READ_OUTPUT, SEARCH_OUTPUT
from ...run.values.results import NOTES_KEY, result_note
from ...run.values.waiting import Suspend
from ..agent.agent import Agent, make_client
from ..agent.answers import Answer, Deps, Output
from ..agent.auxiliary import AuxiliaryModel
from ..agent.delegation import runs_subagent
from ..model.interface import Model, request_check
from ..tools.runner import Runner
from .file import read_trace

ReplayTools: TypeAlias = Literal["recorded", "read"]
_NO_LIMITS = Budget(iterations=1_000_000, calls=None, same_call=1_000_000, failures=1_000_000)
_ANY_LENGTH = 1 << 40  # a recorded result has been shortened already
# codes that the gates produce again
_NOT_INVOKED = frozenset({"invalid_arguments", "truncated", "unknown_tool", "not_offered"})
_MODEL_FACTS = ("can_require_calls", "emulates_calls", "endpoint", "output_support")
_NEEDS_AGENT = "pass the agent: compaction, output types and transfers are not a part of the recording"


def load_run(path: str | Path) -> RunTrace:
    """Load a file of `toolwire run --trace` or of a `TraceObserver`; raise ConfigError for any other file."""
    return run_of(*read_trace(Path(path)), Path(path).name)


async def replay_run(
    trace: RunTrace,
    agent: Agent[Deps, Output] | None = None,
    *,
    tools: ReplayTools = "recorded",
    deps: Deps | None = None,
    box: Toolbox | None = None,
) -> Answer[Output] | None:
    """Repeat a run and return its answer, or None if it had none. Raise ReplayDifference at the first difference.

    Raise ConfigError for a trace that cannot be replayed. With an `agent`, its system prompt, tools, policy and budget are under test. Without one, the recorded request and
    tools are used. `tools="read"` really runs pure and read tools, of the agent or of `box`; results of all other tools
    are the recorded ones.
    """
    if trace.request().messages and trace.request().messages[-1].role == "assistant":
        hint = "replay the trace of the run before it was suspended"
        raise ConfigError("the trace continues a run in the middle of a turn and cannot be replayed", hint=hint)
    replay = _Replay(trace, agent)
    recorded = replay.toolbox(agent.runner.box if agent is not None else box, tools)
    if agent is None:
        twin: Agent[Any, Any] = Agent(replay, recorded, budget=_NO_LIMITS)
        replay.attach(twin.runner)
        answer = await replay.perform(twin, trace.request(), {})
    else:
        twin = copy(agent)
        twin.runner = agent.runner.with_tools(recorded, approve=replay.approve)
        twin.observers = ()
        replay.attach(twin.runner)
        if agent.auxiliary is not None:
            recorded_model = _RecordedAuxiliary(agent.auxiliary.name, replay)
            twin.auxiliary = AuxiliaryModel(replace(agent.auxiliary.settings, model=recorded_model), make_client)
        messages = [message for message in trace.request().messages if message.role not in ("system", "developer")]
        if not messages:
            raise ConfigError("the recorded run has no prompt", hint="record a run that starts with a prompt")
        with twin.override(model=replay):
            answer = await replay.perform(twin, messages[-1], {"history": messages[:-1], "deps": deps})
    replay.check_end(answer)
    return answer


class _RecordedFailure(ToolwireError):
    """The recorded request failed, and so the run ends here."""


class _Replay:
    """A recording as a model and as tools."""

    def __init__(self, trace: RunTrace, agent: Agent[Any, Any] | None) -> None:
        """Collect the turns, results and decisions of the run. Raise ConfigError if it was transferred."""
        self._agent = agent
        self.model = trace.request().model
        self.turns = deque(trace.turns())
        self._number = 0  # of the next request
        self.auxiliary_turns = deque(trace.turns("auxiliary"))
        self._compares_tools = agent is not None
        self._end = trace.root.end
        self._comparer = RequestComparer(compares_all=agent is not None)
        self._tools = trace.request().tools
        self._runs_tools = False  # some tools really run, and may return something else
        self._results: defaultdict[str, deque[ToolResult]] = defaultdict(deque)
        self._subagents: set[str] = set()  # tools that run agents: these would use a real model
        subagent_calls = trace.subagent_calls()
        for call in trace.calls():
            if call.span in subagent_calls:
                self._subagents.add(call.call.name)
            if call.result is not None and call.code not in _NOT_INVOKED:
                _refuse_transfer(call.result)
                self._results[call.call.id].append(call.result)
        self._decisions: defaultdict[tuple[str, bytes], deque[ApprovalDecided]] = defaultdict(deque)
        for question, decision in trace.decisions():
            self._decisions[question.tool, canonical_json(question.arguments)].append(decision)
        self._runner: Runner | None = None
        self._problem: Difference | None = None  # a call without a recorded result

    def __getattr__(self, name: str) -> Any:
        """Return a property of the agent's own model: its capabilities decide the form of structured outputs.

        Raise AttributeError for other names.
        """
        if name in _MODEL_FACTS and self._agent is not None:
            return getattr(self._describe_model(self._agent), name)
        raise AttributeError(name)

    def _describe_model(self, agent: Agent[Any, Any]) -> object:
        """Return the agent's own model, for its capabilities only: nothing is sent, so no key is needed."""
        try:
            return agent.model
        except ConfigError:
            from ..model.client import ModelClient

            return ModelClient(self.model, key="unused")  # a replay sends nothing

    async def perform(self, agent: Agent[Any, Any], prompt: Any, options: Mapping[str, Any]) -> Answer[Any] | None:
        unchecked = request_check.set(self._check_request)
        try:
            return await agent.run(prompt, **options)
        except _RecordedFailure:
            return None
        finally:
            request_check.reset(unchecked)

    def _check_request(self, model: Model) -> None:
        """Raise ReplayDifference for a request to a real model, by a tool or by an agent that it runs or returns.

        The difference is kept, too, because a tool may catch the error.
        """
        if model is self or isinstance(model, _RecordedAuxiliary):
            return
        call = current_call()
        step = f"call {call.call_id}" if call.call_id else f"request {self._number + 1}"
        name = getattr(model, "name", "") or getattr(model, "model", "") or type(model).__name__
        found = Difference(step, "", "no request to another model", f"a request to {name}")
        self._problem = self._problem or found
        raise self._difference(found)

    async def ask(self, request: Request) -> Response:
        """Return the recorded response if the request is the recorded one, else raise ReplayDifference.

        Raise _RecordedFailure if the recorded run failed here.
        """
        self._number += 1
        step = f"request {self._number}"
        if self._problem is not None:
            raise self._difference(self._problem)
        if not self.turns and not (isinstance(self._end, RunEnded) and not self._end.reason):
            raise _RecordedFailure("the recorded run ended here")
        return self._answer(step, request, self.turns)

    def ask_auxiliary(self, request: Request) -> Response:
        """Return the recorded response of the auxiliary model. The agent ignores its errors, so they are kept."""
        try:
            return self._answer("a request to the auxiliary model", request, self.auxiliary_turns)
        except ReplayDifference as error:
            self._problem = self._problem or error.difference
            raise

    def _answer(self, step: str, request: Request, turns: deque[RecordedTurn]) -> Response:
        """Take the next turn, and return its response. Raise as `ask` does; `step` is for the message."""
        if not turns:
            raise self._difference(Difference(step, "", "no such request", "another request"))
        turn = turns.popleft()
        found = self._comparer.first_difference(step, turn.request, request)
        if found is not None:
            raise self._difference(found)
        if turn.response is None:
            raise _RecordedFailure(turn.error)
        return turn.response

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        for event in unfold(await self.ask(request)):
            yield event

    def _difference(self, difference: Difference) -> ReplayDifference:
        return ReplayDifference(difference, "" if self._compares_tools or self._runs_tools else _NEEDS_AGENT)

    def toolbox(self, box: Toolbox | None, tools: ReplayTools) -> Toolbox:
        """Return the tools of `box`, else the recorded ones, with functions that return recorded results."""
        own = {entry.name: entry for entry in box} if box is not None else {}
        self._runs_tools = tools == "read" and bool(own)
        recorded = [] if self._compares_tools else [tool for tool in self._tools if tool.name not in own]
        entries = [self._recorded_entry(entry, tools) for entry in own.values()]
        options = Options(output_limit=_ANY_LENGTH)
        return Toolbox(*entries, *(Entry(tool, self._recorded_function(tool), options) for tool in recorded))

    def attach(self, runner: Runner) -> None:
        """Replace the functions of the tools that read stored outputs: only the beginnings of outputs are recorded."""
        self._runner = runner
        for name in (READ_OUTPUT, SEARCH_OUTPUT):
            entry = runner.box.find(name)
            if entry is not None:
                runner.box.add_unlisted(self._recorded_entry(entry, "recorded"))

    def _recorded_entry(self, entry: Entry, tools: ReplayTools) -> Entry:
        is_subagent = entry.name in self._subagents or runs_subagent(entry.function)
        if tools == "read" and entry.tool.effect in ("pure", "read") and not is_subagent:
            return entry
        options = replace(entry.options, rate=None, cache=None, isolation="thread", output_limit=_ANY_LENGTH)
        return replace(entry, function=self._recorded_function(entry.tool), options=options)

    def _recorded_function(self, tool: Tool) -> Callable[..., Any]:
        """Return a function that returns the recorded results of a tool, by call id."""

        async def return_recorded(**arguments: Any) -> Any:
            """Return the next recorded result of the current call, or note a difference if there is none."""
            call_id = current_call().call_id
            results = self._results.get(call_id)
            if not results:
                got = f"{tool.name}({msgspec.json.encode(arguments, enc_hook=str).decode()})"
                self._problem = self._problem or Difference(f"call {call_id}", "", "no result of this call", got)
                return "no recorded result"
            result = results.popleft()
            if self._runner is not None and result_note(result, "output") is not None:
                self._runner.store_output(current_call().run_id, result.text)  # offers the tools to read it
            if result_note(result, "edited") is not None:
                result = _without_edit_note(result)  # the runtime adds it again
            return result

        return return_recorded

    def approve(self, step: Approve) -> ApprovalReply:
        """Return the recorded decision, and use it up. A question that was not asked then is denied."""
        decisions = self._decisions[step.tool, canonical_json(step.arguments)]
        if not decisions:
            return False
        recorded = decisions.popleft()
        if recorded.decision == "suspended":
            return Suspend()
        if recorded.decision == "approved":
            return Approved(recorded.arguments if isinstance(recorded.arguments, dict) else None)
        return Denied(recorded.reason) if recorded.reason else False

    def check_end(self, answer: Answer[Any] | None) -> None:
        """Raise ReplayDifference if one was noted, a recorded request was not made, or the reason of the end differs."""
        if self._problem is not None:
            raise self._difference(self._problem)
        if self.turns:
            step = f"request {self._number + 1}"
            got = (
                "the end of the run" if answer is None or not answer.reason else f"the end of the run: {answer.reason}"
            )
            raise self._difference(Difference(step, "", "a request", got))
        if answer is not None and isinstance(self._end, RunEnded):
            found = first_difference("end of the run", {"reason": self._end.reason}, {"reason": answer.reason})
            if found is not None:
                raise self._difference(found)


class _RecordedAuxiliary:
    """The auxiliary model of a recorded run."""

    def __init__(self, name: str, replay: _Replay) -> None:
        self.name = name
        self._replay = replay

    async def ask(self, request: Request) -> Response:
        return self._replay.ask_auxiliary(request)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        for event in unfold(self._replay.ask_auxiliary(request)):
            yield event


def _refuse_transfer(result: ToolResult) -> None:
    """Raise ConfigError for a result that transferred the run to another agent."""
    if result_note(result, "transfer") is not None:
        raise ConfigError(
            f"call {result.call_id} transferred the run to another agent; such a run cannot be replayed",
            hint="replay a run without a transfer",
        )


def _without_edit_note(result: ToolResult) -> ToolResult:
    """Remove the note about edited arguments, and the text of it, which is the first part."""
    notes = {name: value for name, value in result.extra[NOTES_KEY].items() if name != "edited"}
    return replace(result, parts=result.parts[1:], extra={**result.extra, NOTES_KEY: notes})
