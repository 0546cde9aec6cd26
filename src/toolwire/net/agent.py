"""An agent: a model, tools, and the loop between them.

agent = Agent("openai/gpt-5.6", [get_weather])
answer = await agent.run("What is the weather in Paris?")       # or agent.run_sync(…)
async for event in agent.stream("…"): …
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.events import ArgumentEnd, CallEnd, CallStart, Event
from ..ir.folding import Folder
from ..ir.parts import Text, ToolCall, ToolResult
from ..ir.request import Message, Request
from ..ir.response import Response
from ..ir.value import Value
from ..run.context import current_call
from ..run.observe import AgentOperation, ModelOperation, Observation, Observer, OperationOutcome, Retriever
from ..run.session import AskModel, Budget, Done, GiveUp, RunTools, Session
from ..run.toolbox import Source
from ..stream.arguments import ArgumentWatch
from .dispatch import Dispatch
from .own_context import in_own_context
from .runner import Runner

__all__ = ["Agent", "Answer", "Model"]


class Model(Protocol):
    """Anything that answers a request, such as a `ModelClient`."""

    async def ask(self, request: Request) -> Response: ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]: ...


class Answer(Value, frozen=True):
    """The outcome of a run: its text, or the `reason` why there is no answer."""

    text: str
    response: Response | None
    messages: tuple[Message, ...]
    reason: str = ""

    @property
    def finished(self) -> bool:
        return not self.reason


class Agent:
    """A model with tools. Other options, such as store, policy and approve, are passed to the `Runner`."""

    def __init__(
        self,
        model: Model | str,
        tools: Source | Iterable[Source] = (),
        *,
        system: str = "",
        budget: Budget | None = None,
        price: Callable[[Response], float] | None = None,
        retriever: Retriever | None = None,
        observers: Sequence[Observer] = (),
        **options: Any,
    ) -> None:
        self.model = _make_client(model) if isinstance(model, str) else model
        sources = tools if isinstance(tools, (list, tuple)) else (tools,)
        self.runner = Runner(*sources, observers=observers, **options)
        self._name = model if isinstance(model, str) else getattr(model, "model", "")
        self._system = system
        self._budget = budget
        self._price = price
        self._retriever = retriever
        self._observers = tuple(observers)

    async def run(self, prompt: str | Request | Session) -> Answer:
        """Answer a prompt. A Session continues from its last step."""
        session = self.session(prompt)
        with self._observe_run(session) as observation:
            answer = await self._run_session(session)
            observation.outcome = _run_outcome(answer)
        return answer

    async def _run_session(self, session: Session) -> Answer:
        while True:
            step = session.next()
            if isinstance(step, AskModel):
                try:
                    async with asyncio.timeout(session.remaining_seconds) as limit:
                        response = await self._ask_model(step, session.state.run_id)
                except TimeoutError:
                    if not limit.expired():
                        raise  # a timeout of the model, not of the run
                    session.give_up_on_time_limit()
                else:
                    session.add_response(response)
            elif isinstance(step, RunTools):
                session.add_results(await self._run_tools(step, session))
            else:
                return _make_answer(step, session)

    def run_sync(self, prompt: str | Request | Session) -> Answer:
        """Answer a prompt in a program without an event loop."""
        return asyncio.run(self.run(prompt))

    def stream(self, prompt: str | Request | Session) -> AsyncGenerator[Event | ToolResult | Answer, None]:
        """Yield the events of the model as they arrive, then the tool results, and the answer at the end.

        A pure or read call starts as soon as it is complete, while the model is still generating.
        """
        session = self.session(prompt)
        return in_own_context(self._stream_observed(session)) if self._observers else self._stream_session(session)

    async def _stream_observed(self, session: Session) -> AsyncGenerator[Event | ToolResult | Answer, None]:
        with self._observe_run(session) as observation:
            async with aclosing(self._stream_session(session)) as items:
                async for item in items:
                    if isinstance(item, Answer):
                        observation.outcome = _run_outcome(item)
                    yield item

    async def _stream_session(self, session: Session) -> AsyncGenerator[Event | ToolResult | Answer, None]:
        while True:
            step = session.next()
            if isinstance(step, AskModel):
                dispatch = self._open_dispatch(session)
                try:
                    collector, request = _StreamCollector(dispatch), self._select_tools(step.request)
                    async with aclosing(self._stream_model(request, session, collector.folder)) as events:
                        async for event in events:
                            collector.feed(event)
                            yield event
                    if isinstance(session.next(), GiveUp):
                        continue
                    session.add_response(collector.folder.response())
                    if isinstance(session.next(), RunTools):
                        results = await dispatch.results()
                        for result in results:
                            yield result
                        session.add_results(results)
                finally:
                    await dispatch.abort()
            elif isinstance(step, RunTools):  # a session that another process started
                session.add_results(await self._run_tools(step, session))
            else:
                yield _make_answer(step, session)
                return

    def session(self, prompt: str | Request | Session) -> Session:
        """Start a run for a prompt, or continue a Session."""
        box = self.runner.box
        untrusted = [entry.name for entry in box if entry.options.untrusted]
        if isinstance(prompt, Session):
            prompt.adopt(untrusted, self._budget, self._price)
            return prompt
        request = prompt if isinstance(prompt, Request) else self._make_request(prompt)
        offered = replace(request, tools=request.tools or box.tools)
        run_id = secrets.token_hex(8)
        return Session(
            offered, now=time.time, run_id=run_id, budget=self._budget, untrusted=untrusted, price=self._price
        )

    def _make_request(self, prompt: str) -> Request:
        system = (Message("system", (Text(self._system),)),) if self._system else ()
        return Request(self._name, (*system, Message("user", (Text(prompt),))))

    def _select_tools(self, request: Request) -> Request:
        """Remove withdrawn tools, then let the retriever choose among the rest."""
        box = self.runner.box
        if any(entry.options.withdrawn is not None for entry in box):
            request = replace(request, tools=box.filter_available(request.tools))
        if self._retriever is None:
            return request
        return replace(request, tools=tuple(self._retriever.choose(request, request.tools)))

    async def _ask_model(self, step: AskModel, run_id: str) -> Response:
        request = self._select_tools(step.request)
        with Observation(self._observers, ModelOperation(request, run_id)) as observation:
            response = await self.model.ask(request)
            observation.outcome = OperationOutcome(response=response)
        return response

    def _stream_model(self, request: Request, session: Session, folder: Folder) -> AsyncGenerator[Event, None]:
        """Yield the events of a response; `folder` is fed by the consumer.

        With observers, the request has a context of its own: a tool that starts meanwhile is not a part of it.
        """
        events = _limit_events(self.model.stream(request), session)
        return in_own_context(self._observe_events(events, request, session, folder)) if self._observers else events

    async def _observe_events(
        self, events: AsyncGenerator[Event, None], request: Request, session: Session, folder: Folder
    ) -> AsyncGenerator[Event, None]:
        started_at, first_event_seconds = time.perf_counter(), None
        operation = ModelOperation(request, session.state.run_id, stream=True)
        with Observation(self._observers, operation) as observation:
            async with aclosing(events):
                async for event in events:
                    if first_event_seconds is None:
                        first_event_seconds = time.perf_counter() - started_at
                    yield event
            reason = session.state.reason  # the time limit of the run
            response = None if reason else folder.response()
            observation.outcome = OperationOutcome(response, reason=reason, first_event_seconds=first_event_seconds)

    def _observe_run(self, session: Session) -> Observation:
        state = session.state
        operation = AgentOperation(state.run_id, state.request, parent=current_call().call_id)
        return Observation(self._observers, operation)

    async def _run_tools(self, step: RunTools, session: Session) -> list[ToolResult]:
        return await self.runner.run(
            step.calls, run_id=session.state.run_id, earlier=step.earlier, tainted=step.tainted
        )

    def _open_dispatch(self, session: Session) -> Dispatch:
        state = session.state
        parts = [part for message in state.request.messages for part in message.parts]
        earlier = [part for part in parts if isinstance(part, ToolCall)]
        return self.runner.dispatch(run_id=state.run_id, earlier=earlier, tainted=state.tainted)


async def _limit_events(stream: AsyncGenerator[Event, None], session: Session) -> AsyncGenerator[Event, None]:
    """Yield the events that arrive while the run has time left."""
    async with aclosing(stream) as events:
        while True:
            try:
                async with asyncio.timeout(session.remaining_seconds) as limit:
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not limit.expired():
                    raise  # a timeout of the model, not of the run
                session.give_up_on_time_limit()
                return
            yield event
            if session.remaining_seconds == 0.0:
                session.give_up_on_time_limit()
                return


class _StreamCollector:
    """The stream received so far. Passes each call to `dispatch` as soon as it is complete."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.folder = Folder()
        self._open_dispatch = dispatch
        self._watch = ArgumentWatch() if dispatch.may_speculate else None
        self._first_choice: dict[int, CallStart] = {}  # calls of the first choice, by key

    def feed(self, event: Event) -> None:
        """Add an event. Only calls of the first choice are run; the other choices are alternatives to it."""
        self.folder.feed(event)
        if isinstance(event, CallStart) and event.choice == 0:
            self._first_choice[event.key] = event
        if self._watch is not None:
            for watched in self._watch.feed(event):
                if isinstance(watched, ArgumentEnd) and watched.key in self._first_choice:
                    start = self._first_choice[watched.key]
                    self._open_dispatch.speculate(ToolCall(start.id, start.name, {watched.name: watched.value}))
        if isinstance(event, CallEnd) and event.key in self._first_choice:
            call = self.folder.part(event.key)
            if isinstance(call, ToolCall):
                self._open_dispatch.add(call)


def _run_outcome(answer: Answer) -> OperationOutcome:
    return OperationOutcome(response=answer.response, reason=answer.reason)


def _make_answer(step: Done | GiveUp, session: Session) -> Answer:
    messages = session.state.request.messages
    response = step.response
    answer_text = "" if response is None else "".join(part.text for part in response.parts if isinstance(part, Text))
    return Answer(answer_text, response, messages, step.reason if isinstance(step, GiveUp) else "")


def _make_client(model: str) -> Model:
    """Make a client. It is imported late, because an agent with its own model does not need it."""
    try:
        from .client import ModelClient
    except ImportError as error:
        raise ConfigError(f"no client for {model!r}: {error}") from error
    client: Model = ModelClient(model)
    return client
