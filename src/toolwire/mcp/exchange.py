"""The request that a tool runs for: progress, logs, and questions to the client.

    async def book(city: str) -> str:
        exchange = current_exchange()
        exchange.report(1, 3, "looking for hotels")
        answer = await exchange.elicit("Which night?", {"type": "object", "properties": {"night": {"type": "string"}}})

A question works in both eras. In the handshake era it goes out at once and its answer is awaited. In the stateless era the
call ends there (`InputNeeded`), the client is told what is missing, and sends the call again with the answer: the function
runs anew, and this time the question is answered at once. So ask before you change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from ..ir.pointer import JSON, Object
from ..run.failures import ToolError, Transient
from ..schema.validate import validator
from ..wire.mcp.calls import InputRequired
from ..wire.mcp.errors import INVALID_PARAMS, RpcError, missing_capability
from ..wire.mcp.meta import Meta
from ..wire.mcp.notices import Log, Progress, loud_enough
from ..wire.mcp.rpc import Message
from ..wire.mcp.versions import STATELESS
from .listeners import Listeners

__all__ = ["Exchange", "InputNeeded", "current_exchange", "exchanging"]

Question: TypeAlias = tuple[str, Object]
"""(method, params)"""
Ask: TypeAlias = Callable[[str, Object], Awaitable[Object]]

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


_NOBODY = Listeners()


class InputNeeded(Transient):
    """The call cannot go on without its client. Nothing has happened yet, and trying again at once would not help."""

    def __init__(self) -> None:
        super().__init__("the client has to answer first", retry_after=float("inf"), before_effect=True)


class Exchange:
    """One request, seen from what serves it. `listeners` are told of changes, whoever asked for this."""

    def __init__(
        self,
        meta: Meta,
        version: str,
        emit: Callable[[Message], None],
        *,
        client: Object | None = None,
        capabilities: Object | None = None,
        log_level: str | None = None,
        answers: Object | None = None,
        ask: Ask | None = None,
        principal: str = "",
    ) -> None:
        self.meta = meta
        self.version = version
        self.client = client or {}
        self.capabilities = capabilities or {}
        self.principal = principal
        self.answers: Object = answers or {}
        self.unmet: InputRequired | RpcError | None = None
        self.listeners = _NOBODY
        self._emit = emit
        self._ask = ask
        self._log_level = log_level
        self._loop = asyncio.get_running_loop()
        self._progress: float | None = None
        self._count = 0

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """How far the work is. Goes nowhere where nobody asked for it; what does not grow is not sent."""
        token = self.meta.progress_token
        if token is None or (self._progress is not None and progress <= self._progress):
            return
        self._progress = progress
        self._send(Progress(token, progress, total, message).to_notification())

    def log(self, level: str, data: JSON, logger: str | None = None) -> None:
        """A line for the client's log, if it wants to hear of that level."""
        if loud_enough(level, self._log_level):
            self._send(Log(level, data, logger).to_notification())

    def _send(self, message: Message) -> None:
        """From a thread of a tool as well as from the loop."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._emit(message)
        else:
            self._loop.call_soon_threadsafe(self._emit, message)

    def can(self, capability: str) -> bool:
        """Whether the client said that it can: "elicitation", "sampling", "roots"."""
        return capability in self.capabilities

    async def elicit(self, message: str, schema: Object, *, key: str | None = None) -> Object:
        """Asks the user. → {"action": "accept" | "decline" | "cancel", "content": …}; content fits the schema."""
        params = {"message": message, "requestedSchema": schema}
        found = await self.ask_all({self._key(key): ("elicitation/create", params)})
        return next(iter(found.values()))

    async def sample(self, messages: list[Object], *, max_tokens: int, key: str | None = None, **more: Any) -> Object:
        """Asks the client's model."""
        params = {"messages": messages, "maxTokens": max_tokens, **more}
        found = await self.ask_all({self._key(key): ("sampling/createMessage", params)})
        return next(iter(found.values()))

    async def roots(self, *, key: str | None = None) -> list[Object]:
        """Asks which directories the client works in."""
        found = await self.ask_all({self._key(key): ("roots/list", {})})
        roots = next(iter(found.values())).get("roots")
        return roots if isinstance(roots, list) else []

    def _key(self, key: str | None) -> str:
        self._count += 1
        return key or f"question_{self._count}"

    async def ask_all(self, questions: Mapping[str, Question]) -> dict[str, Object]:
        """Several at once, by names of your own."""
        missing: Object = {name: {} for name in map(_capability, questions.values()) if not self.can(name)}
        if self.version in STATELESS:
            if missing:
                self.unmet = missing_capability(missing)
                raise InputNeeded
            return self._answered(questions)
        if missing or self._ask is None:
            raise ToolError(f"The client cannot be asked: it does not offer {', '.join(missing) or 'a way back'}.")
        return {key: await self._ask(method, params) for key, (method, params) in questions.items()}

    def _answered(self, questions: Mapping[str, Question]) -> dict[str, Object]:
        """The answers that came with the request; where one is missing or does not fit, the request ends here."""
        for key in questions:
            if key in self.answers and type(self.answers[key]) is not dict:
                words = f"the answer to {key!r} is not an object"
                self.unmet = RpcError(INVALID_PARAMS, words, pointer=f"/params/inputResponses/{key}")
                raise InputNeeded
        open_ones = {key: one for key, one in questions.items() if not _fits(one, self.answers.get(key))}
        if open_ones:
            requests = {key: {"method": method, "params": params} for key, (method, params) in open_ones.items()}
            self.answers = {key: value for key, value in self.answers.items() if key not in open_ones}
            self.unmet = InputRequired(requests)
            raise InputNeeded
        return {key: self.answers[key] for key in questions}


def _capability(question: Question) -> str:
    return _CAPABILITIES.get(question[0], question[0])


def _fits(question: Question, answer: Object | None) -> bool:
    """Whether it is an answer; a form that was filled in has to fit its schema."""
    if answer is None:
        return False
    method, params = question
    if method != "elicitation/create" or answer.get("action") != "accept" or "requestedSchema" not in params:
        return True
    return validator(params["requestedSchema"]).accepts(answer.get("content") or {})


exchanging: ContextVar[Exchange | None] = ContextVar("toolwire_mcp_exchange", default=None)


def current_exchange() -> Exchange | None:
    """The request that is being served, inside of a tool, a resource or a prompt; None elsewhere."""
    return exchanging.get()
