"""An agent: a model, tools, and the loop between them.

agent = Agent("openai/gpt-5.6", [get_weather])
answer = await agent.run("What is the weather in Paris?")       # or agent.run_sync(…)
async for event in agent.stream("…"): …
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
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
from ..run.observe import Observer, Retriever, notify_response
from ..run.session import AskModel, Budget, Done, GiveUp, RunTools, Session
from ..run.toolbox import Source
from ..stream.arguments import ArgumentWatch
from .dispatch import Dispatch
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
        while True:
            step = session.next()
            if isinstance(step, AskModel):
                try:
                    async with asyncio.timeout(session.remaining_seconds) as limit:
                        response = await self._ask_model(step)
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

    async def stream(self, prompt: str | Request | Session) -> AsyncIterator[Event | ToolResult | Answer]:
        """Yield the events of the model as they arrive, then the tool results, and the answer at the end.

        A pure or read call starts as soon as it is complete, while the model is still generating.
        """
        session = self.session(prompt)
        while True:
            step = session.next()
            if isinstance(step, AskModel):
                dispatch = self._open_dispatch(session)
                try:
                    collector, request, started_at = (
                        _StreamCollector(dispatch),
                        self._select_tools(step.request),
                        time.perf_counter(),
                    )
                    async with aclosing(_limit_events(self.model.stream(request), session)) as events:
                        async for event in events:
                            collector.feed(event)
                            yield event
                    if isinstance(session.next(), GiveUp):
                        continue
                    response = collector.folder.response()
                    self._observe(request, response, time.perf_counter() - started_at)
                    session.add_response(response)
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

    async def _ask_model(self, step: AskModel) -> Response:
        request, started_at = self._select_tools(step.request), time.perf_counter()
        response = await self.model.ask(request)
        self._observe(request, response, time.perf_counter() - started_at)
        return response

    def _observe(self, request: Request, response: Response, seconds: float) -> None:
        notify_response(self._observers, request, response, seconds)

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
