"""Models for tests, with scripted answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.events import Event
from ..ir.folding import unfold
from ..ir.parts import Part, Text, ToolCall
from ..ir.request import Request
from ..ir.response import Response, Stop

ScriptedAnswer: TypeAlias = Response | Callable[[Request], Response]


def says(*parts: Part | str) -> Response:
    """Build an answer from texts and calls."""
    said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    calls = any(isinstance(part, ToolCall) for part in said)
    return Response(id="scripted", model="scripted", parts=said, stop=Stop("tool_calls" if calls else "stop"))


class ScriptedModel:
    """A model that returns its lines in order; a line may be a function of the request. `requests` lists the requests that it received."""

    def __init__(self, lines: Iterable[ScriptedAnswer | str]) -> None:
        """Take the answers in order; a line that is text is an answer with this text.

        Raises `ConfigError` for a single text, and for lines of another type.
        """
        if isinstance(lines, str):
            raise ConfigError("a script is a list of lines, got a string", hint=f"use ScriptedModel([{lines!r}])")
        self.model = "scripted"
        self.requests: list[Request] = []
        self._lines = [says(line) if isinstance(line, str) else line for line in lines]
        for line in self._lines:
            if not isinstance(line, Response) and not callable(line):
                raise ConfigError(f"a line of a script is text, a Response or a function, got {line!r}")

    async def ask(self, request: Request) -> Response:
        return self._next(request)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        for event in unfold(self._next(request)):
            yield event

    def assert_complete(self) -> None:
        """Raise AssertionError if lines of the script have not been used."""
        if self._lines:
            raise AssertionError(f"unused lines in the script: {len(self._lines)}")

    def _next(self, request: Request) -> Response:
        """Record a request, and return the next line of the script for it. Raise ConfigError if none is left."""
        self.requests.append(request)
        if not self._lines:
            raise ConfigError("the script has no more lines", hint="add another line to the script")
        line = self._lines.pop(0)
        return replace(line(request) if callable(line) else line, id=f"scripted-{len(self.requests)}")
