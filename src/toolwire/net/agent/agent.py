"""An agent: a model, tools, and the loop between them.

agent = Agent("openai/gpt-5.6", [get_weather], system="Be brief.")
answer = await agent.run("What is the weather in Paris?")       # or agent.run_sync(…)
print(answer.output, answer.usage.total, answer.cost)
async for event in agent.stream("…"): …
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType, NoneType, TracebackType
from typing import Any, Generic, Literal, Never, Self, TypeAlias, Unpack, cast

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.events import TextDelta
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.request import Message, Request
from ...ir.response import Response
from ...ir.tools import Effect
from ...run.calls.context import CallContext, current_call
from ...run.calls.observe import Observer, Retriever
from ...run.calls.policy import Policy
from ...run.calls.signature import check_context_types, check_deps
from ...run.session.compaction import Compaction
from ...run.session.history import answer_open_calls, replace_system
from ...run.session.loop import Session
from ...run.session.model_settings import ModelSettings, apply_settings, check_choice, merge_settings
from ...run.session.output import OutputPlan, StructuredOutput
from ...run.session.state import AskModel, Budget, RunTools
from ...run.tools.function_tool import FunctionTool, OptionValues
from ...run.tools.toolbox import Source
from ...run.values.keys import definition_hash
from ...run.values.records import RunConflict, Store
from ..model.interface import Model, UserPrompt, prompt_message
from ..threads import iterate_blocking, run_blocking
from ..tools.arguments import check_agent_arguments, refuse_unknown, takes_no_argument
from ..tools.runner import Runner
from ..tools.steps import Approver
from .answers import Answer, Deps, Output, history_messages, reusable_prefix
from .auxiliary import Auxiliary, AuxiliaryModel
from .checkpoints import Checkpoints
from .conversation import AgentConversation
from .delegation import (
    active_agent,
    check_transfers,
    continue_subagents,
    subagent_run_id,
    subagent_tool,
    transfer_result,
)
from .discovery import SKILL_TOOL, first_tools, load_skills, prepare_retriever, skill_tool
from .loop import AgentLoop, StreamItem
from .model_requests import plan_output

SystemPrompt: TypeAlias = str | Callable[[Any], "str | Awaitable[str]"] | Callable[[], "str | Awaitable[str]"]

_overrides: ContextVar[Mapping[int, Model]] = ContextVar("toolwire_agent_models", default=MappingProxyType({}))


class Agent(Generic[Deps, Output]):
    """A model with tools.

    - `tools`: functions, toolboxes and modules, or a `Runner` with options of its own.
    - `system`: the system prompt, or a function that makes it from the dependencies of the run.
    - `output_type`: the type of `Answer.output`, text by default; a `StructuredOutput` for a union, a JSON Schema or
      options.
    - `deps_type`: the type of the dependencies that `run(deps=…)` passes to tools and to `system`.
    - `settings`: settings of the model requests.
    - `budget`: the limits of a run.
    - `policy`, `store` and `approve` as for `Runner`. Without a policy, writes run without a question.
    - `retriever` selects the tools that a conversation offers, among the agent's own; the model finds others with
      the tool `search_tools`. A `Request` with tools of its own offers exactly these.
    - `auxiliary`: another, cheaper model that summarises long results and repairs malformed calls.
    - `compaction` limits the conversation that is sent to the model.
    - `skills`: a folder of instructions that the model loads on demand.
    - `transfers`: the agents to which tools transfer a run; they continue a run that was stored after its transfer.
    - `cache="auto"` marks the stable prefix of every request for the provider's prompt cache.
    - `price`: the cost of a response, for `Answer.cost` and `Budget.cost`.
    """

    def __init__(
        self,
        model: Model | str,
        tools: Source | Runner | Iterable[Source] = (),
        *,
        name: str = "",
        system: SystemPrompt = "",
        output_type: type[Output] | StructuredOutput[Output] = str,  # type: ignore[assignment]  # the default of Output
        deps_type: type[Deps] = NoneType,  # type: ignore[assignment]  # the default of Deps
        settings: ModelSettings | None = None,
        budget: Budget | None = None,
        policy: Policy | None = None,
        store: Store | None = None,
        approve: Approver | Literal["suspend"] | None = None,
        retriever: Retriever | None = None,
        auxiliary: Auxiliary | Model | str | None = None,
        compaction: Compaction | None = None,
        skills: str | Path | None = None,
        transfers: Sequence[Agent[Any, Any]] = (),
        cache: Literal["auto"] | None = None,
        max_parallel: int = 16,  # as in `Runner`
        price: Callable[[Response], float] | None = None,
        observers: Sequence[Observer] = (),
        **unknown: Never,
    ) -> None:
        """Raise ConfigError for options that contradict each other, such as a Runner and a policy, and unknown ones."""
        refuse_unknown(Agent, unknown)
        check_agent_arguments(
            model=model,
            budget=budget,
            policy=policy,
            store=store,
            approve=approve,
            retriever=retriever,
            compaction=compaction,
            cache=cache,
            price=price,
            observers=observers,
        )
        self.name = name
        self.output_type = output_type
        self._output = output_type if isinstance(output_type, StructuredOutput) else StructuredOutput(output_type)
        if not self._output.is_text:
            self._output.resolve()  # an unusable type is an error of the program, not of a run
        self.deps_type = deps_type
        self._model = model
        self._client: Model | None = None  # made on first use from a model's name
        self._system = system
        self._settings = merge_settings(settings, None)
        self._budget = budget
        self._price = price
        self.retriever = retriever
        self.always_offered: Sequence[str] = () if skills is None else (SKILL_TOOL,)
        self.compaction = compaction
        self.auxiliary = None if auxiliary is None else AuxiliaryModel(auxiliary, make_client)
        if compaction is not None and compaction.summarise and auxiliary is None:
            raise ConfigError("summaries need an auxiliary model", hint="set auxiliary=…, or summarise=False")
        self.cache = cache
        check_transfers(transfers)
        self.transfers: Sequence[Any] = tuple(transfers)
        self.observers: Sequence[Observer] = tuple(observers)
        if isinstance(tools, Runner):
            if policy is not None or store is not None or approve is not None or skills is not None:
                hint = "pass policy, store and approve to the Runner, and skills to an Agent with tools"
                raise ConfigError(
                    "an agent with a Runner takes its tools, policy, store and approver from it", hint=hint
                )
            self.runner = tools
        else:
            self.runner = Runner(
                *(tools if isinstance(tools, (list, tuple)) else (tools,)),
                *(() if skills is None else (skill_tool(load_skills(skills)),)),
                observers=observers,
                policy=policy,
                store=store,
                approve=approve,
                max_parallel=max_parallel,
            )
        check_context_types(deps_type, self.runner.box)
        if retriever is not None:
            prepare_retriever(retriever, self.runner)

    @property
    def model(self) -> Model:
        """The model of `override`, else the agent's own. A client for a model's name is made on first use."""
        override = _overrides.get().get(id(self))
        if override is not None:
            return override
        if not isinstance(self._model, str):
            return self._model
        if self._client is None:
            self._client = make_client(self._model)
        return self._client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the threads of the tools, and the client that was made from a model's name."""
        await self.runner.aclose()
        close = getattr(self._client, "aclose", None)
        if close is not None:
            await close()
        if self.auxiliary is not None:
            await self.auxiliary.aclose()

    @contextmanager
    def override(self, *, model: Model | str) -> Iterator[None]:
        """Use another model inside a `with` block, such as a scripted one in a test."""
        other = make_client(model) if isinstance(model, str) else model
        token = _overrides.set(MappingProxyType({**_overrides.get(), id(self): other}))
        try:
            yield
        finally:
            _overrides.reset(token)

    async def run(
        self,
        prompt: UserPrompt | Request | Session,
        *,
        history: Sequence[Message] | Answer[Any] = (),
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
        settings: ModelSettings | None = None,
    ) -> Answer[Output]:
        """Answer a prompt: text, a list of texts, files and media, or a whole Request.

        `history`: the messages of earlier runs; a call without a result in it gets an error result. A Session continues
        from its last step.
        """
        return await (await self._start(prompt, history, deps, settings)).run()

    async def stream(
        self,
        prompt: UserPrompt | Request | Session,
        *,
        history: Sequence[Message] | Answer[Any] = (),
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
        settings: ModelSettings | None = None,
    ) -> AsyncGenerator[StreamItem | Answer[Output], None]:
        """Yield the events of the model and each complete call as they arrive, then the results, then the answer.

        A pure or read call starts as soon as it is complete, while the model is still generating. Arguments and a
        structured output are also yielded while they grow (`UnfinishedCall`, `PartialOutput`).
        """
        loop = await self._start(prompt, history, deps, settings)
        async with aclosing(loop.stream()) as items:
            async for item in items:
                yield item

    async def stream_text(
        self,
        prompt: UserPrompt | Request | Session,
        *,
        history: Sequence[Message] | Answer[Any] = (),
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
        settings: ModelSettings | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yield the text of the model as it arrives."""
        async with aclosing(self.stream(prompt, history=history, deps=deps, settings=settings)) as items:
            async for item in items:
                if isinstance(item, TextDelta) and item.text:
                    yield item.text

    def run_sync(
        self,
        prompt: UserPrompt | Request | Session,
        *,
        history: Sequence[Message] | Answer[Any] = (),
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
        settings: ModelSettings | None = None,
    ) -> Answer[Output]:
        """Like `run`, for synchronous code; also in a notebook."""
        return run_blocking(self.run(prompt, history=history, deps=deps, settings=settings))

    def stream_sync(
        self,
        prompt: UserPrompt | Request | Session,
        *,
        history: Sequence[Message] | Answer[Any] = (),
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
        settings: ModelSettings | None = None,
    ) -> Iterator[StreamItem | Answer[Output]]:
        """Like `stream`, for synchronous code; also in a notebook."""
        return iterate_blocking(self.stream(prompt, history=history, deps=deps, settings=settings))

    async def resume(
        self,
        run_id: str,
        prompt: UserPrompt | None = None,
        *,
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
    ) -> Answer[Output]:
        """Continue a run from the store: one that waited for approval, or whose process ended.

        The model receives `prompt` after the results of the calls that waited. Calls that ran do not run again.
        Subagents that wait are continued too. Raises RunConflict while another process continues the run.
        """
        async with self._open_stored(run_id, prompt, deps) as loop:
            return await loop.run()

    async def resume_stream(
        self,
        run_id: str,
        prompt: UserPrompt | None = None,
        *,
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
    ) -> AsyncGenerator[StreamItem | Answer[Output], None]:
        """Like `resume`, as a stream: the calls that run now, all results of their turn, then the items of `stream`."""
        async with self._open_stored(run_id, prompt, deps) as loop, aclosing(loop.stream()) as items:
            async for item in items:
                yield item

    @asynccontextmanager
    async def _open_stored(self, run_id: str, prompt: UserPrompt | None, deps: Deps) -> AsyncGenerator[AgentLoop, None]:
        """Load a run, add the prompt, save it, and hold its lease inside the block.

        Subagents that wait are continued first. Raise ConfigError without a store, or if this agent cannot continue the
        run, which is then not changed.
        """
        check_deps(self.deps_type, deps)
        checkpoints = self._make_checkpoints()
        if checkpoints is None:
            raise ConfigError("an agent without a store has no runs to continue", hint="pass store=open_store(…)")
        async with checkpoints:
            session = self._adopt(Session.load(await checkpoints.load(run_id), now=time.time), deps)
            checkpoints.follow(session)
            loop = AgentLoop(self, session, deps=deps, checkpoints=checkpoints)
            is_changed = await self._continue_subagents(session, deps)
            if prompt is not None:
                session.add_prompt(await prompt_message(prompt))
            session.start_calls()
            if is_changed or prompt is not None or isinstance(session.next(), (AskModel, RunTools)):
                await checkpoints.save(session)
            yield loop

    def resume_sync(
        self,
        run_id: str,
        prompt: UserPrompt | None = None,
        *,
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
    ) -> Answer[Output]:
        """Like `resume`, for synchronous code; also in a notebook."""
        return run_blocking(self.resume(run_id, prompt, deps=deps))

    def conversation(
        self,
        history: Sequence[Message] | Answer[Any] = (),
        *,
        deps: Deps = None,  # type: ignore[assignment]
    ) -> AgentConversation[Deps, Output]:
        """Start a conversation: `run` and `stream` of the result remember the earlier messages."""
        return AgentConversation(self, history, deps=deps)

    async def session(
        self,
        prompt: UserPrompt | Request | Session,
        *,
        history: Sequence[Message] | Answer[Any] = (),
        deps: Deps = None,  # type: ignore[assignment]  # optional if Deps is None
        settings: ModelSettings | None = None,
        max_effect: Effect | None = None,
        run_id: str = "",
    ) -> Session:
        """Return the session of a new run for a prompt, or continue a Session with this agent.

        `max_effect`: refuse calls of tools with a stronger effect. `run_id`: the id of the new run, by default a random one.
        """
        untrusted = self.runner.untrusted
        if isinstance(prompt, Session):
            return self._adopt(prompt, deps)
        request = await self._make_request(prompt, history, deps)
        request = replace(request, messages=answer_open_calls(request.messages))
        has_fixed_tools = bool(request.tools)
        request = apply_settings(request, merge_settings(self._settings, settings))
        if not has_fixed_tools:
            request = replace(request, tools=self.runner.tools_for_run(""))
        check_choice(request.choice, request.tools)
        output = self._plan(request)
        if not has_fixed_tools:
            offered = history.offered if isinstance(history, Answer) else ()
            request = replace(request, tools=first_tools(self, request.tools, offered))
        session = Session(
            request,
            now=time.time,
            run_id=run_id or secrets.token_hex(8),
            budget=self._budget,
            untrusted=untrusted,
            price=self._price,
            first_message=max(0, len(request.messages) - 1),
            has_fixed_tools=has_fixed_tools,
            has_toolbox_tools=not has_fixed_tools,
            output=output,
            tenant=self.runner.tenant,
            compacted=reusable_prefix(history, request.messages),
            tainted=isinstance(history, Answer) and history.tainted,
            max_effect=max_effect,
        )
        session.belong_to(current_call())
        return session

    def _adopt(self, session: Session, deps: Any) -> Session:
        """Give a session the tools, price and output of this agent, or of the agent to which it was transferred.

        Raise ConfigError if the run belongs to another tenant, or the dependencies have the wrong type.
        """
        if session.state.tenant != self.runner.tenant:
            hint = "continue it with a runner of its tenant"
            raise ConfigError(f"run {session.state.run_id!r} belongs to another tenant", hint=hint)
        agent = active_agent(self, session)
        if agent is not self:
            check_deps(agent.deps_type, agent.select_deps(deps))
        session.adopt({*self.runner.untrusted, *agent.runner.untrusted}, self._budget, agent._price)
        session.restore_tools(agent.runner.tools_for_run(session.state.run_id))
        if session.output is None and not self._output.is_text:
            request = session.state.request
            if not session.state.has_fixed_tools:
                request = replace(request, tools=agent.runner.box.tools)
            session.output = self.plan_output(request, agent.model)
        session.belong_to(current_call())
        return session

    def definition(self) -> Object:
        """Return the parts that decide how a run of this agent continues, as JSON: two versions of an agent differ in it.

        A prompt that is a function is named; the code of functions is not part of the definition.
        """
        system = self._system if isinstance(self._system, str) else getattr(self._system, "__qualname__", "")
        output = None if self._output.is_text else self._output.resolve().schema
        tools = {entry.name: [definition_hash(entry.tool), entry.origin_id] for entry in self.runner.box}
        transfers = [agent.name for agent in self.transfers]
        return {"model": self._model_name, "system": system, "output": output, "tools": tools, "transfers": transfers}

    def as_tool(
        self,
        name: str = "",
        description: str = "",
        *,
        effect: Effect | None = None,
        **options: Unpack[OptionValues],
    ) -> FunctionTool[..., Any]:
        """Make this agent a tool of another agent. The call has one argument, the prompt; its result is the answer.

        The subagent has its own budget and policy; its tokens and cost also count in the run that calls it, and the
        observers of that run observe it, too. It receives the dependencies of the calling run. `effect`: by default, the
        strongest effect of its tools now. Its calls of tools with a stronger effect are refused, also after a transfer
        to another agent.
        """
        about = description or f"Ask the agent {name or self.name}."
        is_stored = self.runner.store is not None
        if is_stored:
            # A calling run that is interrupted expires before its subagent's run does. Otherwise it could be continued
            # when the subagent's run has expired, and begin that again.
            kept = self.runner.record_ttl
            options["ttl"] = min(kept, options.get("ttl") or kept)
        return subagent_tool(
            self._run_as_tool,
            self._resume_as_tool,
            self.runner.box,
            name or self.name,
            about,
            options,
            effect=effect,
            is_stored=is_stored,
        )

    async def _run_as_tool(self, prompt: str, context: CallContext[Any], effect: Effect) -> Answer[Output]:
        """Run a call of this agent's tool, or continue the run that an interrupted attempt of the call has stored."""
        deps, store = self.select_deps(context.deps), self.runner.store
        run_id = "" if store is None else subagent_run_id(prompt, context)
        if run_id and store is not None and await self.runner.use_store(store.runs.get, run_id) is not None:
            return await self._resume_interrupted(run_id, deps)
        return await (await self._start(prompt, (), deps, None, effect, run_id)).run()

    async def _resume_interrupted(self, run_id: str, deps: Any) -> Answer[Output]:
        """Continue a run after the lease of the process that was interrupted."""
        end = time.monotonic() + 2 * self.runner.lease
        while True:
            try:
                return await self.resume(run_id, deps=deps)
            except RunConflict:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(self.runner.lease / 20)

    def select_deps(self, deps: Any) -> Any:
        """Return the dependencies of a run if this agent declares dependencies; else None."""
        return None if self.deps_type is NoneType else deps

    async def _resume_as_tool(self, run_id: str, context: CallContext[Any]) -> Answer[Output]:
        return await self.resume(run_id, deps=self.select_deps(context.deps))

    async def _continue_subagents(self, session: Session, deps: Any) -> bool:
        return await continue_subagents(session, active_agent(self, session).runner.box, deps)

    def __toolwire_result__(self, call: ToolCall) -> ToolResult:
        """Build the result of a tool that returned this agent: the conversation is transferred to it."""
        return transfer_result(call, self, self.name)

    async def take_over(self, session: Session, deps: Any) -> None:
        """Continue another agent's run with this agent's model, system prompt, tools and settings.

        Raise ConfigError if the dependencies have the wrong type.
        """
        own_deps = self.select_deps(deps)
        check_deps(self.deps_type, own_deps)
        system = await self._system_text(own_deps)
        messages = session.state.request.messages
        tools = first_tools(self, self.runner.tools_for_run(session.state.run_id))
        request = Request(self._model_name, messages, tools)
        session.continue_with(
            apply_settings(request, self._settings),
            system,
            untrusted=self.runner.untrusted,
            price=self._price,
        )

    def plan_output(self, request: Request, model: Model) -> OutputPlan | None:
        """Return the plan for the structured output of a run, or None if its output is text."""
        return None if self._output.is_text else plan_output(self._output, model, request)

    def _plan(self, request: Request) -> OutputPlan | None:
        return None if self._output.is_text else self.plan_output(request, self.model)

    async def _start(
        self,
        prompt: UserPrompt | Request | Session,
        history: Sequence[Message] | Answer[Any],
        deps: Deps,
        settings: ModelSettings | None,
        max_effect: Effect | None = None,
        run_id: str = "",
    ) -> AgentLoop:
        """Return the loop of a new run, or of a Session, whose lease is taken and whose subagents are continued.

        Raise ConfigError for wrong dependencies, and for a stored run if this agent has no store.
        """
        check_deps(self.deps_type, deps)
        session = await self.session(
            prompt, history=history, deps=deps, settings=settings, max_effect=max_effect, run_id=run_id
        )
        checkpoints = self._make_checkpoints() if session.state.run_id else None
        if checkpoints is None and session.state.revision:
            hint = "continue it with an agent that has this store: calls could run twice without it"
            raise ConfigError(f"run {session.state.run_id} is in a store, and this agent has none", hint=hint)
        loop = AgentLoop(self, session, deps=deps, checkpoints=checkpoints)
        if checkpoints is not None and not isinstance(prompt, Session):
            checkpoints.begin(session)
        if isinstance(prompt, Session):
            try:
                if checkpoints is not None:
                    await checkpoints.take_over(session)
                await self._continue_subagents(session, deps)
            except BaseException:
                if checkpoints is not None:
                    await checkpoints.close()
                raise
        return loop

    def _make_checkpoints(self) -> Checkpoints | None:
        store = self.runner.store
        if store is None:
            return None
        runner = self.runner
        return Checkpoints(store.runs, runner, record_ttl=runner.record_ttl, lease=runner.lease, tenant=runner.tenant)

    async def _make_request(
        self, prompt: UserPrompt | Request, history: Sequence[Message] | Answer[Any], deps: Deps
    ) -> Request:
        """Combine the system prompt, the history and the prompt. The agent's system prompt replaces an older one.

        A whole Request keeps its own system prompt.
        """
        earlier = history_messages(history)
        if isinstance(prompt, Request):
            return replace(prompt, messages=(*earlier, *prompt.messages))
        system = await self._system_text(deps)
        if system:
            earlier = replace_system(earlier, system)
        return Request(self._model_name, (*earlier, await prompt_message(prompt)))

    @property
    def _model_name(self) -> str:
        return self._model if isinstance(self._model, str) else getattr(self._model, "model", "")

    async def _system_text(self, deps: Deps) -> str:
        if isinstance(self._system, str):
            return self._system
        make = cast("Callable[..., str | Awaitable[str]]", self._system)
        text = make() if takes_no_argument(make) else make(deps)
        return await text if inspect.isawaitable(text) else text


def make_client(model: str) -> Model:
    """Return a client for a model's name. Raise ConfigError if the packages that it needs are missing.

    It is imported late, because an agent with its own model does not need it.
    """
    try:
        from ..model.client import ModelClient
    except ImportError as error:
        raise ConfigError(f"no client for {model!r}: {error}") from error
    client: Model = ModelClient(model)
    return client
