"""Record the traffic with a model to a file next to a test, and replay it.

A recording has one line per request: the request and its response as canonical JSON, without secrets. It is independent
of the wire, so it stays valid if the wire of the model changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from ..ir.errors import ConfigError
from ..ir.events import Event
from ..ir.folding import fold, unfold
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.response import Response
from ..ir.text import to_bytes
from ..net.model.interface import Model
from ..run.traces.redact import Redactor, environment_secrets
from ..run.traces.replay import Difference, ReplayDifference, RequestComparer
from ..run.traces.sanitise import Sanitiser

_VERSION = 1  # of the file format; a reader refuses other ones
_AGAIN = "if the change is intended, record again with --toolwire-record"


class ModelRecorder:
    """A model that forwards requests to another one, and collects requests and responses."""

    def __init__(self, model: Model, path: Path) -> None:
        self._model = model
        self._path = path
        self._exchanges: list[tuple[Request, Response]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def ask(self, request: Request) -> Response:
        response = await self._model.ask(request)
        self._exchanges.append((request, response))
        return response

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        events: list[Event] = []
        async for event in self._model.stream(request):
            events.append(event)
            yield event
        self._exchanges.append((request, fold(events)))

    def save(self) -> None:
        """Write the file in one step. Secrets of the environment and texts that look like keys are removed."""
        sanitiser = Sanitiser(Redactor(environment_secrets(os.environ)))
        rows: list[JSON] = [{"toolwire_recording": _VERSION}]
        for request, response in self._exchanges:
            sent = sanitiser.sanitise_request(msgspec.to_builtins(request))
            rows.append({"request": sent, "response": sanitiser.sanitise_body(msgspec.to_builtins(response))})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".partial")
        temporary.write_bytes(b"".join(to_bytes(row) + b"\n" for row in rows))
        temporary.replace(self._path)


class ModelReplay:
    """A model that answers with the recorded responses, if the requests are the recorded ones.

    `facts`: a model with the same properties, such as its capabilities. It is never asked.
    """

    def __init__(self, path: Path, facts: Model | None = None) -> None:
        self._path = path
        self._facts = facts
        self._exchanges = _load(path)
        self._count = 0
        self._comparer = RequestComparer(compares_all=True)
        self.differed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_facts"], name)

    async def ask(self, request: Request) -> Response:
        return self._next(request)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        for event in unfold(self._next(request)):
            yield event

    def assert_complete(self) -> None:
        """Raise AssertionError if recorded requests have not been sent."""
        left = len(self._exchanges) - self._count
        if left and not self.differed:
            raise AssertionError(
                f"{left} of {len(self._exchanges)} recorded requests were not sent: {self._path}; {_AGAIN}"
            )

    def _next(self, request: Request) -> Response:
        """Return the recorded response to the next request.

        Raises `ReplayDifference` and sets `differed` if the request differs or is one too many.
        """
        step = f"request {self._count + 1} of {self._path.name}"
        if self._count == len(self._exchanges):
            self.differed = True
            got = json.dumps(msgspec.to_builtins(request.messages[-1:]), ensure_ascii=False)[:300]
            raise ReplayDifference(Difference(step, "", "no more requests", got), _AGAIN)
        recorded, response = self._exchanges[self._count]
        difference = self._comparer.first_difference(step, recorded, request)
        if difference is not None:
            self.differed = True
            raise ReplayDifference(difference, _AGAIN)
        self._count += 1
        return response


def _load(path: Path) -> list[tuple[Object, Response]]:
    """Return the recorded requests and responses. Raises `ConfigError` if the file is missing or is no recording."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError as error:
        hint = "run pytest with --toolwire-record and the key of the model in the environment"
        raise ConfigError(f"no recording for this test: {path}", hint=hint) from error
    try:
        header, *rows = [msgspec.json.decode(line) for line in lines if line]
        if header.get("toolwire_recording") != _VERSION:
            raise ValueError(f"version {header.get('toolwire_recording')!r}")
        return [(row["request"], msgspec.convert(row["response"], Response)) for row in rows]
    except (ValueError, KeyError, AttributeError, TypeError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} is not a recording of model traffic: {error}", hint=_AGAIN) from error
