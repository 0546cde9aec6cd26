"""The interface of models. Separate because the loop of an agent and its auxiliary model both use it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from ..ir.events import Event
from ..ir.request import Request
from ..ir.response import Response

__all__ = ["Model"]


class Model(Protocol):
    """Anything that answers a request, such as a `ModelClient`."""

    async def ask(self, request: Request) -> Response: ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]: ...
