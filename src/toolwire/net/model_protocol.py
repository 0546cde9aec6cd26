"""The interface of models, and their requests for observers.

Separate because the loop of an agent and its auxiliary model both use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

from ..ir.events import Event
from ..ir.request import Request
from ..ir.response import Response
from ..run.observe import ModelOperation

__all__ = ["Model", "model_operation"]


class Model(Protocol):
    """Anything that answers a request, such as a `ModelClient`."""

    async def ask(self, request: Request) -> Response: ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]: ...


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
