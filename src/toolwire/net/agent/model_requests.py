"""The model requests of a run: within its time limit, observed, and with its output mode.

Structured output is obtained by the model's structured outputs or by a final-answer tool. A stream of events runs in its
own `contextvars` context, because its steps are taken by different tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from ...bridge.fitting.schemas import OutputSupport
from ...ir.events import Event
from ...ir.folding import Folder
from ...ir.losses import Losses
from ...ir.request import OutputFormat, Request
from ...ir.response import Response
from ...run.calls.observe import Observation, Observer, OperationOutcome, active_observers, run_losses
from ...run.session.loop import Session
from ...run.session.output import OutputPlan, PlanMode, StructuredOutput
from ..model.interface import Model, check_request, model_operation

# Run an async generator in a context (`contextvars`) of its own. The body of an async generator runs in the context
# of its consumer, and the consumer may change between two items. A context variable that the generator sets would be
# visible to the consumer, and could not be reset.


T = TypeVar("T")


async def in_own_context(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of `source`, which runs in a copy of the current context, also while it is closed."""
    context = copy_context()
    try:
        while True:
            try:
                item = await _ContextAwaitable(context, source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        await _ContextAwaitable(context, source.aclose())


class _ContextAwaitable:
    """Await `work` in the current task, each step of it in `context`."""

    __slots__ = ("_context", "_work")

    def __init__(self, context: Context, work: Awaitable[Any]) -> None:
        self._context = context
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        """Forward each step to `work` in the context: values out, results and exceptions such as cancellations in."""
        steps: Any = self._work.__await__()
        raised: BaseException | None = None
        while True:
            try:
                pending = (
                    self._context.run(steps.send, None) if raised is None else self._context.run(steps.throw, raised)
                )
            except StopIteration as done:
                return done.value
            try:
                yield pending
                raised = None
            except BaseException as error:  # noqa: BLE001  # thrown into the generator, such as a cancellation
                raised = error


# Choose how a run obtains its structured output: by the model's structured outputs or by a final-answer tool.


# An unmasked model often succeeds at the second attempt, which costs less than a turn with the error; not measured.
_RESAMPLES = 2


def plan_output(spec: StructuredOutput[Any], model: object, request: Request) -> OutputPlan:
    """Return the plan by which a run obtains its structured output: the mode, retries and resamples.

    A model without a method `output_support`, as `ModelClient` has it, gets a final-answer tool.
    """
    output = spec.resolve()
    ask: Callable[[Request], OutputSupport] | None = getattr(model, "output_support", None)
    form = OutputFormat("json_schema", output.schema, output.name, strict=True)
    support = None if ask is None else ask(replace(request, output=form))
    best: PlanMode = "native" if support in ("enforced", "accepted") else "tool"
    mode = best if spec.mode == "auto" else spec.mode
    resamples = spec.resamples
    if resamples is None:
        resamples = _RESAMPLES if _is_unmasked(support, mode) or getattr(model, "emulates_calls", False) else 0
    return OutputPlan(
        output,
        mode,
        request.tools,
        retries=spec.retries,
        resamples=resamples,
        requires_call=getattr(model, "can_require_calls", True),
    )


def _is_unmasked(support: OutputSupport | None, mode: PlanMode) -> bool:
    """Return True if the model is not held to the schema while it generates a text."""
    return mode == "prompt" or (mode == "native" and support in ("accepted", "stated"))


class ObservedModel(Protocol):
    """The parts of an `Agent` that its requests use."""

    observers: Sequence[Observer]

    @property
    def model(self) -> Model: ...


@contextmanager
def collect_losses(session: Session) -> Iterator[None]:
    """Collect the losses of a model request in the session, for the answer of its run."""
    losses, outer_losses = Losses(), run_losses.get()
    run_losses.set(losses)
    try:
        yield
    finally:
        run_losses.set(outer_losses)
        _add_losses(session, losses)


def _add_losses(session: Session, losses: Losses) -> None:
    """Add the losses of a request to its run, and to the runs around it."""
    run: Session | None = session
    while run is not None:
        run.losses.extend(losses)
        run = run.parent


async def ask_model(agent: ObservedModel, session: Session, request: Request) -> Response:
    """Send a request and return the response; observers get both and the cost. The caller limits the time.

    Raise the errors of the model, and of a replay in which this model must not be asked.
    """
    model = agent.model
    check_request(model)
    with collect_losses(session):
        if not active_observers(agent.observers):
            return await model.ask(request)
        operation = model_operation(model, request, session.state.run_id)
        with Observation(agent.observers, operation) as observation:
            response = await model.ask(request)
            observation.outcome = OperationOutcome(response, cost=session.price(response))
        return response


def stream_model(
    agent: ObservedModel, session: Session, request: Request, folder: Folder
) -> AsyncGenerator[Event, None]:
    """Return the events of a response. `folder` is fed by the consumer.

    An observed request has a context of its own: a tool that starts meanwhile is not a part of the request.
    """
    check_request(agent.model)
    events = _limit_events(agent.model.stream(request), session)
    if not active_observers(agent.observers):
        return events
    return in_own_context(_observe_events(agent, session, request, events, folder))


async def _observe_events(
    agent: ObservedModel, session: Session, request: Request, events: AsyncGenerator[Event, None], folder: Folder
) -> AsyncGenerator[Event, None]:
    """Yield the events in an observation of the request. Its outcome has the response in `folder`, and its cost."""
    started_at, first_event_seconds = time.perf_counter(), None
    operation = model_operation(agent.model, request, session.state.run_id, stream=True)
    with collect_losses(session), Observation(agent.observers, operation) as observation:
        async with aclosing(events):
            async for event in events:
                if first_event_seconds is None:
                    first_event_seconds = time.perf_counter() - started_at
                yield event
        reason = session.state.reason  # the time limit of the run
        response = None if reason else folder.response()
        cost = None if response is None else session.price(response)
        observation.outcome = OperationOutcome(
            response, reason=reason, cost=cost, first_event_seconds=first_event_seconds
        )


async def _limit_events(stream: AsyncGenerator[Event, None], session: Session) -> AsyncGenerator[Event, None]:
    """Yield the events that arrive while the run has time left. Then the session gives up, and the stream ends.

    Losses are collected in the session.
    """
    losses, is_begun = Losses(), False
    try:
        async with aclosing(stream) as events:
            while True:
                try:
                    async with asyncio.timeout(session.remaining_seconds) as limit:
                        event = await (anext(events) if is_begun else _first_event(events, losses))
                    is_begun = True
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
    finally:
        _add_losses(session, losses)


async def _first_event(events: AsyncGenerator[Event, None], losses: Losses) -> Event:
    """Return the first event. A model client collects the losses of the whole stream in `losses`.

    It reads the context variable before the first event. The variable is not set for longer, because a generator runs in the
    context of its consumer.
    """
    outer_losses = run_losses.get()
    run_losses.set(losses)
    try:
        return await anext(events)
    finally:
        run_losses.set(outer_losses)
