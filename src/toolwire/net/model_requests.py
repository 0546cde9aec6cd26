"""The model requests of a run: within its time limit, and observed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from ..ir.events import Event
from ..ir.folding import Folder
from ..ir.request import Request
from ..ir.response import Response
from ..run.observe import Observation, Observer, OperationOutcome, active_observers
from ..run.session import Session
from .model_protocol import Model, check_request, model_operation
from .own_context import in_own_context

__all__ = ["ObservedModel", "ask_model", "stream_model"]


class ObservedModel(Protocol):
    """The parts of an `Agent` that its requests use."""

    observers: Sequence[Observer]

    @property
    def model(self) -> Model: ...


async def ask_model(agent: ObservedModel, session: Session, request: Request) -> Response:
    """Send a request and return the response."""
    model = agent.model
    check_request(model)
    if not active_observers(agent.observers):
        return await model.ask(request)
    with Observation(agent.observers, model_operation(model, request, session.state.run_id)) as observation:
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
    started_at, first_event_seconds = time.perf_counter(), None
    operation = model_operation(agent.model, request, session.state.run_id, stream=True)
    with Observation(agent.observers, operation) as observation:
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
