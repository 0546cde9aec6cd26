"""Answers of a model over the network: any provider, wire, gateway or text format that `ModelClient` supports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Literal

from ...ir.errors import ConfigError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ...ir.request import Params, Request
from ...ir.response import Response, UpstreamError
from ...ir.tools import ToolChoice
from ...net.model.client import ModelClient
from ...net.threads import iterate_blocking
from .entries import BFCLEntry
from .judgement import BFCLAnswer
from .offered_tools import offered_tools

__all__ = ["ClientAnswers"]

_FATAL = frozenset({"authentication", "billing", "permission", "not_found"})  # no other request would succeed
_LIMITED = frozenset({"length", "context_window"})
_MAX_CONCURRENCY = 1_000


class ClientAnswers:
    """Ask a `ModelClient` up to `concurrency` entries at a time.

    The client is used as it is: it maps names, retries transient failures, and with a text format asks once more if a
    call cannot be read. `temperature` None leaves it to the provider.
    """

    def __init__(
        self,
        client: ModelClient,
        *,
        choice: Literal["auto", "required"] = "auto",
        max_tokens: int = 1024,
        temperature: float | None = 0.0,
        seed: int = 0,
        concurrency: int = 8,
    ) -> None:
        if not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise ConfigError(f"concurrency must be from 1 to {_MAX_CONCURRENCY}, got {concurrency}")
        self._client = client
        self._choice: Literal["auto", "required"] = choice
        self._params = Params(max_tokens=max_tokens, temperature=temperature, seed=seed)
        self._concurrency = concurrency

    @property
    def settings(self) -> Object:
        endpoint = self._client.endpoint
        return {
            "model": f"{endpoint.vendor.name}/{endpoint.model}",
            "wire": endpoint.wire.name,
            "choice": self._choice,
            "max_tokens": self._params.max_tokens,
            "temperature": self._params.temperature,
            "seed": self._params.seed,
        }

    def answers(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Yield answers in the order of their arrival.

        A failure of one request is an answer with an error; one that every request would have is raised.
        """
        return iterate_blocking(self._ask_all(entries))

    async def _ask_all(self, entries: Sequence[BFCLEntry]) -> AsyncGenerator[tuple[BFCLEntry, BFCLAnswer], None]:
        waiting = iter(entries)
        running: set[asyncio.Task[tuple[BFCLEntry, BFCLAnswer]]] = set()
        try:
            while True:
                while len(running) < self._concurrency and (entry := next(waiting, None)) is not None:
                    running.add(asyncio.create_task(self._ask(entry)))
                if not running:
                    return
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _ask(self, entry: BFCLEntry) -> tuple[BFCLEntry, BFCLAnswer]:
        messages = tuple(message for turn in entry.turns for message in turn)
        request = Request(
            self._client.name, messages, offered_tools(entry), ToolChoice(self._choice), None, self._params
        )
        try:
            response = await self._client.ask(request, losses=Losses())
        except UpstreamError as error:
            if error.fault.kind in _FATAL:
                raise
            return entry, BFCLAnswer(error=str(error))
        except ProtocolError as error:
            return entry, BFCLAnswer(error=str(error))
        return entry, _read_response(response)


def _read_response(response: Response) -> BFCLAnswer:
    reason = None if response.stop is None else response.stop.reason
    calls = tuple(part for part in response.parts if isinstance(part, ToolCall))
    return BFCLAnswer(calls, response.text, finished=reason not in _LIMITED, unparsable=reason == "malformed_call")
