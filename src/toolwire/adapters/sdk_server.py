"""SdkAnswer the HTTP requests of an SDK with a model of any wire, in the process: bytes in, bytes out.

The wire of the SDK is recognised by the path. A request on the model's own wire that needs no change is forwarded as it
is; every other one is translated. Errors are answers in the SDK's wire, so that the SDK raises its own classes.
TimeoutError and ConnectionError are raised for a model that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from logging import getLogger
from secrets import token_hex
from time import time
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from ..bridge.restoration.provider_fields import AnswerReporter
from ..ir.errors import ConfigError, ProtocolError, ToolwireError
from ..ir.events import ResponseEnd, StreamFault
from ..ir.losses import Loss, Losses
from ..ir.request import Request
from ..ir.response import Fault, UpstreamError, fault_from
from ..ir.text import finite_to_bytes, to_bytes
from ..ir.value import Value
from ..net.model.client import ModelClient
from ..net.model.forwarding import forward, forward_stream
from ..net.model.pass_through import replace_model, stream_fault
from ..net.model.replies import LossLog
from ..net.model.upstream_exchange import NetworkError
from ..wire import get
from ..wire.models.lists import ListedModel, model_entry, model_list
from ..wire.protocol import Wire
from .sdk_call import (
    AnswerEncoding,
    ConversationMemory,
    ResponseChains,
    SdkCall,
    SdkRequest,
    SdkRoute,
    find_route,
    guess_wire,
)

T = TypeVar("T")
_log = getLogger("toolwire.adapters")
# headers of a reply that describe its connection or its encoding, which our answer does not share
_CONNECTION_HEADERS = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "set-cookie", "transfer-encoding"}
)
_JSON_TYPE = {"content-type": "application/json"}


class SdkAnswerHead(Value, frozen=True):
    """The status and the headers of an answer; its body follows."""

    status: int
    headers: dict[str, str]


SdkAnswer: TypeAlias = AsyncGenerator[SdkAnswerHead | bytes, None]


class SdkServer:
    """The answers of one transport.

    `find_client` returns the client of the model that a request names. `on_loss` gets the losses of every request and
    answer; by default they are logged to `toolwire.adapters`.
    """

    def __init__(
        self, find_client: Callable[[str], ModelClient], model: str | None, on_loss: Callable[[Loss], None] | None
    ) -> None:
        self._find_client = find_client
        self._model = model
        self._on_loss = on_loss
        self._loss_log = LossLog(_log)
        self._memory = ConversationMemory()
        self._chains = ResponseChains()
        self._created = int(time())  # of the listed model

    async def answer(self, request: SdkRequest) -> SdkAnswer:
        """Yield the head of the answer, then the pieces of its body as the model sends them.

        An error before the head becomes an answer with its status. Raises `TimeoutError` and `ConnectionError` for
        network errors, and `ToolwireError` after the head.
        """
        route = find_route(request.method, request.path, request.headers)
        wire = get(guess_wire(request.path, request.headers) if route is None else route.wire)
        has_started = False
        try:
            pieces = self._answer_route(request, route)
            async with aclosing(_limit_waits(pieces, request.read_timeout)) as limited:
                async for piece in limited:
                    has_started = True
                    yield piece
        except NetworkError as error:
            raise (
                TimeoutError(error.message) if error.fault.code == "timeout" else ConnectionError(error.message)
            ) from None
        except ToolwireError as error:
            if has_started:
                raise
            for piece in _encode_fault(wire, fault_from(error)):
                yield piece

    def _answer_route(self, request: SdkRequest, route: SdkRoute | None) -> SdkAnswer:
        if route is None:
            raise _UnknownEndpoint(request)
        return self._generate(request, route) if route.action == "generate" else self._describe_models(request, route)

    async def _describe_models(self, request: SdkRequest, route: SdkRoute) -> SdkAnswer:
        """Yield a list with the transport's model, or the description of a model, in the form of the wire."""
        name = self._model or route.model
        model = ListedModel(name or "", self._created)
        if route.action == "model":
            document = model_entry(route.wire, model)
        else:
            document = model_list(route.wire, [] if name is None else [model], request.query)
        yield SdkAnswerHead(200, dict(_JSON_TYPE))
        yield to_bytes(document)

    async def _generate(self, request: SdkRequest, route: SdkRoute) -> SdkAnswer:
        if route.stream and request.query.get("alt") != "sse":
            raise ProtocolError("a stream as a JSON array is not supported", hint="add ?alt=sse to the URL")
        call = SdkCall(request, route, self._chains, self._find_client)
        async with aclosing(self._forward(call) if call.is_forwarded else self._translate(call)) as pieces:
            async for piece in pieces:
                yield piece

    async def _forward(self, call: SdkCall) -> SdkAnswer:
        """Forward the bytes of the SDK, with the model's name replaced, and return the bytes of the answer."""
        body = replace_model(call.body, call.document, call.client.endpoint.model)
        if not call.stream:
            answer = await forward(call.client, call.request, body, call.headers)
            yield SdkAnswerHead(200, _forwarded_headers(answer.headers))
            yield answer.body
            return
        async with aclosing(forward_stream(call.client, call.request, body, call.headers)) as pieces:
            async for piece in pieces:
                yield piece if isinstance(piece, bytes) else SdkAnswerHead(200, _forwarded_headers(piece))

    async def _translate(self, call: SdkCall) -> SdkAnswer:
        """Yield the translated answer to the translated request, and report the losses at the end.

        The conversation memory first restores parts that the SDK's wire does not carry.
        """
        endpoint = call.client.endpoint
        request = await self._memory.restore(call.request, endpoint)
        request = replace(request, model=endpoint.model, stream=None)
        translation = AnswerEncoding(call, AnswerReporter(call.wire.name, call.losses))
        try:
            pieces = self._translate_stream(translation, request) if call.stream else self._ask(translation, request)
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self._report(call.losses)

    async def _ask(self, translation: AnswerEncoding, request: Request) -> SdkAnswer:
        call = translation.call
        response = await call.client.ask(request, losses=call.losses, reader=call.wire.capabilities)
        await self._memory.save(response.parts, call.client.endpoint)
        document = translation.encode_response(response)
        self._chains.save(call.answer_id, call.original, document)
        yield SdkAnswerHead(200, {**_JSON_TYPE, **translation.headers()})
        yield finite_to_bytes(document)

    async def _translate_stream(self, translation: AnswerEncoding, request: Request) -> SdkAnswer:
        """Encode each event as it arrives, and store the answer at its end.

        The head follows the first event, so that an early failure has a status; a later failure is an event.
        """
        call, has_started = translation.call, False
        events = call.client.stream(request, losses=call.losses, reader=call.wire.capabilities)
        async with aclosing(events):
            try:
                async for event in events:
                    if isinstance(event, ResponseEnd):
                        await self._save_stream(translation, event)
                    data = translation.encode_event(event)
                    if not has_started:
                        has_started = True
                        yield SdkAnswerHead(200, translation.stream_headers())
                    if data:
                        yield data
            except ToolwireError as error:
                if not has_started:
                    raise
                fault = error.fault if isinstance(error, UpstreamError) else stream_fault(error)
                yield translation.encode_event(StreamFault(fault))

    async def _save_stream(self, translation: AnswerEncoding, end: ResponseEnd) -> None:
        """Save the turn before its last event: the next request may arrive at once."""
        call, parts = translation.call, translation.recorder.parts(end)
        await self._memory.save(parts, call.client.endpoint)
        if call.answer_id:
            self._chains.save(call.answer_id, call.original, translation.encode_turn(parts))

    def _report(self, losses: Losses) -> None:
        """Report the losses. An error of `on_loss` is logged: the answer of the model is complete, and was paid for."""
        if self._on_loss is None:
            self._loss_log.report(losses)
            return
        for loss in losses:
            try:
                self._on_loss(loss)
            except Exception:  # noqa: BLE001
                _log.exception("on_loss failed for the loss: %s", loss)


class _UnknownEndpoint(ConfigError):
    """The path of a request that no model can answer."""

    def __init__(self, request: SdkRequest) -> None:
        super().__init__(
            f"{request.method} {request.path} is not available through toolwire's transport",
            hint="it supports conversations and the list of models; use the provider's own client for this endpoint",
            status=404,
        )


def _forwarded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in _CONNECTION_HEADERS}


def _encode_fault(wire: Wire, fault: Fault) -> tuple[SdkAnswerHead, bytes]:
    """Encode a fault. `x-should-retry` prevents retries that cannot help; the SDKs of OpenAI and Anthropic read it."""
    request_id = fault.request_id or f"req_{token_hex(12)}"
    status, body, headers = wire.encode_error(replace(fault, request_id=request_id))
    head = {**_JSON_TYPE, "x-request-id": request_id, "request-id": request_id, **headers}
    if fault.retryable is not None:
        head["x-should-retry"] = "true" if fault.retryable else "false"
    return SdkAnswerHead(status, head), to_bytes(body)


async def _limit_waits(items: AsyncGenerator[T, None], seconds: float | None) -> AsyncGenerator[T, None]:
    """Yield items; raise TimeoutError if the wait for one is too long."""
    async with aclosing(items):
        while True:
            try:
                async with asyncio.timeout(seconds):
                    item = await anext(items)
            except StopAsyncIteration:
                return
            yield item
