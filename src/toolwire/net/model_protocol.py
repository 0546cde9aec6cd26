"""The interface of models, and their requests for observers.

Separate because the loop of an agent, its auxiliary model and model clients use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Literal, Protocol

from ..ir.events import Event
from ..ir.request import Request
from ..ir.response import Response
from ..run.observe import ModelOperation

__all__ = ["Model", "check_request", "model_operation", "request_check"]


class Model(Protocol):
    """Anything that answers a request, such as a `ModelClient`."""

    async def ask(self, request: Request) -> Response: ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]: ...


request_check: ContextVar[Callable[[Model], None] | None] = ContextVar("toolwire_request_check", default=None)
"""Raises an exception for a model that must not be asked; None if all may be. A replay sets it."""


def check_request(model: Model) -> None:
    """Raise an exception if the model must not be asked here."""
    check = request_check.get()
    if check is not None:
        check(model)


def model_operation(
    model: Model, request: Request, run_id: str, *, stream: bool = False, purpose: Literal["", "auxiliary"] = ""
) -> ModelOperation:
    """Describe a request for observers, with the provider's name for the model if the model is a `ModelClient`."""
    endpoint = getattr(model, "endpoint", None)
    if endpoint is None:
        name, provider = request.model or str(getattr(model, "name", "")), ""
    else:
        name, provider = endpoint.model, endpoint.vendor.name
    return ModelOperation(request, run_id, stream, purpose, name, provider)
