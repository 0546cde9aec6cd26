"""Ask a model of any provider or server.

    async with ModelClient("anthropic/claude-sonnet-5") as client:
        response = await client.ask(request)
        async for event in client.stream(request):
            …

One client serves every wire: the request is adapted to the provider, and the response is restored to the terms of the
request. Failures are raised: UpstreamError for errors of the provider and the network, ProtocolError for a response
that its wire does not allow, TruncatedStream for a truncated response. Transient failures are retried until the first
byte of the response.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from logging import getLogger
from types import TracebackType
from typing import Literal, Self, Unpack
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...bridge.emulation.retries import AnswerContinuation, RejectedAnswer, reject_answer
from ...bridge.emulation.settings import EmulationSettings
from ...bridge.fitting.cache_marks import mark_stable_prefix
from ...bridge.fitting.schemas import OutputSupport, output_support
from ...ir.errors import ProtocolError, TruncatedStream
from ...ir.events import Event, ResponseEnd, StreamFault
from ...ir.losses import Losses, check_losses, require_lossless
from ...ir.request import Request
from ...ir.response import Fault, Response, UpstreamError, add_usage
from ...ir.terminal import neutralise_line
from ...run.calls.observe import observed_losses, run_losses
from ...run.session.auxiliary import mark_repaired, mark_repaired_event
from ...stream.strict import LIMIT
from ...text.engine.format import Format
from ...wire.codec import WireCodec
from ...wire.embeddings import EmbeddingRequest, Embeddings, Task
from ...wire.models.capabilities import ModelCapabilities
from ...wire.models.profiles import fit_codec, overlay
from ...wire.protocol import Capabilities
from ..http.client import HttpTransport
from ..http.transport import Reply, Transport, load_transport
from ..threads import iterate_blocking, run_blocking
from .endpoint import Endpoint, resolve
from .endpoint_credentials import EndpointOptions
from .endpoint_request import AnswerStream, EndpointRequest
from .health import TargetHealth
from .interface import as_request, check_request
from .replies import LossLog, describe_refusal, drain, read_reply_body, refuse_web_page, transport_losses
from .saved_rows import use_saved_rows
from .server_facts import ContextSize, ContextSizes
from .upstream_exchange import (
    ERROR_LIMIT,
    NetworkError,
    ReplyMeaning,
    RetryPolicy,
    UpstreamExchange,
    is_transient,
    network_fault,
)

_log = getLogger("toolwire.net")


class ModelClient:
    """A client for one model.

    `model` is `provider/model`, with `base_url` the server's own name for the model, or an endpoint. `text` is a format of
    `toolwire.text`, for a model without native tool calls, or `EmulationSettings`, which can also use the raw completion
    endpoint of the server. `timeout` limits a whole response, retries included; `limit`
    is its maximum size in bytes. `strict` refuses a request that would lose something; otherwise losses are added to
    the `losses` of each call, or logged to `toolwire.net`. `capabilities` describe a model without built-in rows; their
    known fields replace the rows' fields. `cache="auto"` marks stable prefixes for the provider's prompt cache.
    `repair`: the client of another model, with native calls, that repairs calls in a text format; by default, this
    model is asked again. A repaired call of a tool that changes something is not run, see `toolwire.run.session.auxiliary`.

    Options of the endpoint: `base_url`; `key`, or `key_command`, an argument vector that prints the key; `auth`, "key",
    "bearer" or "sigv4"; `wire`, instead of the provider's default; `insecure`, which allows plain HTTP to other machines;
    `api_version`, `project`, `location`, `workspace` and `profile`, where a provider needs them; `headers` to add; `extra_body`, fields to
    merge into the encoded body; `defaults`, parameters for requests that do not set them; `context_max`, the largest
    context to load, for Ollama.
    """

    def __init__(
        self,
        model: str | Endpoint,
        *,
        text: Format | str | EmulationSettings | None = None,
        # Seconds; the default of the SDKs of OpenAI and Anthropic: whole answers with reasoning take minutes.
        timeout: float = 600.0,
        retries: int | RetryPolicy = 2,  # as in the SDKs of OpenAI and Anthropic
        limit: int = LIMIT,
        strict: bool = False,
        transport: Transport | None = None,
        capabilities: ModelCapabilities | None = None,
        cache: Literal["auto"] | None = None,
        repair: ModelClient | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        use_saved_rows(os.environ)
        self._endpoint = model if isinstance(model, Endpoint) else resolve(model, os.environ, **options)
        if isinstance(text, EmulationSettings) and text.prompt_options(self._endpoint.model) is not None:
            self._endpoint = self._endpoint.at_completions(text.kept_tokens)
        self._capabilities = None if capabilities is None else overlay(capabilities, self._endpoint.capabilities)
        self._text = text
        self._marks_prefix = cache == "auto" and not self._endpoint.has_body_mark
        self._repair = repair
        self._timeout = timeout
        self._retries = retries if isinstance(retries, RetryPolicy) else RetryPolicy(retries)
        self._health = TargetHealth()
        self._limit = limit
        self._strict = strict
        self._loss_log = LossLog(_log)
        self._context_sizes = ContextSizes() if self._endpoint.wire.name == "ollama" else None
        self._shared = transport is not None  # then the caller closes it
        self._transport = transport or self._open_transport(options.get("base_url"))

    def _open_transport(self, base_url: str | None) -> Transport:
        vendor_transport = None if base_url else self._endpoint.vendor.transport
        return HttpTransport() if vendor_transport is None else load_transport(vendor_transport)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def name(self) -> str:
        """The provider's name for the model."""
        return self._endpoint.model

    def __repr__(self) -> str:
        return f"ModelClient({self._endpoint!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless the transport is shared."""
        if not self._shared:
            await self._transport.aclose()

    async def ask(
        self, request: Request | str, *, losses: Losses | None = None, reader: Capabilities | None = None
    ) -> Response:
        """Return the whole response. If a call in a text format cannot be parsed, ask once more, with the error.

        Losses are added to `losses`, or logged. Failures are raised, see the module. A text is the request of one user message.
        `reader`: the capabilities of the wire on which the response will be written, if it is passed on.
        """
        request = as_request(request)
        deadline = self.new_deadline()
        await self._refresh_context()
        endpoint_request = self._make_request(request, stream=False, losses=losses, reader=reader)
        response = await self._fetch_response(endpoint_request, deadline)
        emulation = endpoint_request.emulation
        rejected = None if emulation is None else reject_answer(emulation, response)
        if rejected is None:
            return self._restore(response, endpoint_request)
        if self._repair is not None:
            repaired = await self._repair.ask(rejected.make_repair_request(), losses=endpoint_request.losses)
            accepted = mark_repaired(repaired, self._repair.name)
        else:
            endpoint_request = self._make_retry(endpoint_request, request, rejected)
            accepted = self._restore(await self._fetch_response(endpoint_request, deadline), endpoint_request)
        return replace(accepted, usage=add_usage(rejected.usage, accepted.usage))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        task: Task | None = None,
        dimensions: int | None = None,
        losses: Losses | None = None,
    ) -> Embeddings:
        """Return a vector for each text. `task` is the purpose, for models that distinguish them.

        Losses are added to `losses`, or logged. Raise ConfigError if the wire has no embeddings, and otherwise as `ask`.
        """
        from .embedding import make_embedding_request, read_embeddings

        check_request(self)
        check_losses(losses)
        own_losses = Losses()
        request = EmbeddingRequest(self._endpoint.model, tuple(texts), task, dimensions)
        endpoint_request = make_embedding_request(self._endpoint, request, own_losses)
        if self._strict:
            require_lossless(own_losses)
        if losses is None:
            self._loss_log.report(own_losses)
        else:
            losses.extend(own_losses)
        async with self.open_reply(endpoint_request, self.new_deadline()) as (reply, _):
            data = await self.read_body(reply)
        return read_embeddings(self._endpoint, request, data)

    async def stream(
        self, request: Request | str, *, losses: Losses | None = None, reader: Capabilities | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the response as they arrive.

        If a call in a text format cannot be parsed, ask once more, with the error; the events continue in the same
        response. Leaving the loop or cancelling the task closes the connection. `request` and `reader` as in `ask`.
        """
        request = as_request(request)
        deadline = self.new_deadline()
        await self._refresh_context()
        endpoint_request = self._make_request(request, stream=True, losses=losses, reader=reader)
        answer_stream = endpoint_request.open_stream()
        async with aclosing(self._stream_answer(endpoint_request, answer_stream, deadline)) as events:
            async for event in events:
                yield event
        rejected = answer_stream.rejected
        if rejected is not None:
            async with aclosing(self._continue_stream(endpoint_request, rejected, request, deadline)) as events:
                async for event in events:
                    yield event

    async def _stream_answer(
        self, endpoint_request: EndpointRequest, answer_stream: AnswerStream, deadline: float
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer, until its end or its rejection. Raise UpstreamError at a fault."""
        async with self.open_reply(endpoint_request, deadline) as (reply, meaning):
            if meaning == "whole":
                # a server that does not stream, or that sends an error with status 200
                document = endpoint_request.decode_answer(await self.read_body(reply))
                for event in answer_stream.feed_response(self._check_response(document, endpoint_request)):
                    yield _raise_fault(event, endpoint_request)
                return
            async for data in self.read_chunks(reply):
                for event in answer_stream.feed(data):
                    yield _raise_fault(event, endpoint_request)
                    if isinstance(event, ResponseEnd):
                        await drain(reply)
                        return
                if answer_stream.rejected is not None:
                    await drain(reply)
                    return
                if answer_stream.should_stop:
                    break
        for event in answer_stream.close():
            yield _raise_fault(event, endpoint_request)

    @property
    def emulates_calls(self) -> bool:
        """True if tool calls are parsed out of the text, which no server holds to a schema."""
        return self._text is not None

    @property
    def can_require_calls(self) -> bool:
        """True if a request can force the model to call a tool."""
        if self._text is not None:
            return True
        wire = self._endpoint.wire
        if isinstance(wire, WireCodec):
            wire = fit_codec(wire, self._model_capabilities)
        return bool(wire.capabilities.choice_by_schema) or "required" in wire.capabilities.choices

    @property
    def _model_capabilities(self) -> ModelCapabilities:
        return self._endpoint.capabilities if self._capabilities is None else self._capabilities

    def output_support(self, request: Request) -> OutputSupport:
        """Return how the endpoint treats the schema in `request.output`, beside the tools of the request.

        Servers of open models apply a schema to the whole text, so that a model can make no calls (ollama/ollama#11185,
        vllm-project/vllm#39929), and some servers with OpenAI's API ignore it.
        """
        endpoint = self._endpoint
        is_compatible = endpoint.wire.provider == "openai" and endpoint.vendor.name not in ("openai", "azure")
        if self._text is not None or (request.tools and (is_compatible or endpoint.wire.provider == "ollama")):
            return "stated"
        support = output_support(request, endpoint.wire, self._model_capabilities)
        return "accepted" if support == "enforced" and is_compatible else support

    async def _continue_stream(
        self, endpoint_request: EndpointRequest, rejected: RejectedAnswer, request: Request, deadline: float
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the retry that follows a rejected answer."""
        continuation = AnswerContinuation(rejected.usage)
        repair = self._repair
        if repair is not None:
            async with aclosing(
                repair.stream(rejected.make_repair_request(), losses=endpoint_request.losses)
            ) as events:
                async for event in events:
                    for continued in continuation.feed([mark_repaired_event(event, repair.name)]):
                        yield continued
            return
        retry_request = self._make_retry(endpoint_request, request, rejected)
        retry_stream = retry_request.open_stream(continuation)
        async with aclosing(self._stream_answer(retry_request, retry_stream, deadline)) as events:
            async for event in events:
                yield event

    def _make_retry(self, first: EndpointRequest, request: Request, rejected: RejectedAnswer) -> EndpointRequest:
        """Prepare the request that describes the problem of the first answer."""
        return EndpointRequest(
            request,
            self._endpoint,
            stream=first.stream,
            text=None,
            losses=first.losses,
            emulation=rejected.make_retry(),
            client=first.client,
            capabilities=self._capabilities,
            context_size=self._context_size,
        )

    async def _refresh_context(self) -> None:
        if self._context_sizes is not None:
            await self._context_sizes.refresh(self._endpoint, self._transport)

    @property
    def _context_size(self) -> ContextSize | None:
        return None if self._context_sizes is None else self._context_sizes.of(self._endpoint)

    def ask_sync(self, request: Request | str, *, losses: Losses | None = None) -> Response:
        """Like `ask`, for synchronous code; also in a notebook."""
        return run_blocking(self.ask(request, losses=losses))

    def stream_sync(self, request: Request | str, *, losses: Losses | None = None) -> Iterator[Event]:
        """Like `stream`, for synchronous code; also in a notebook."""
        return iterate_blocking(self.stream(request, losses=losses))

    def close(self) -> None:
        """Like `aclose`, for synchronous code."""
        run_blocking(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    async def _fetch_response(self, endpoint_request: EndpointRequest, deadline: float) -> Response:
        async with self.open_reply(endpoint_request, deadline) as (reply, _):
            data = await self.read_body(reply)
        return self._check_response(endpoint_request.decode_answer(data), endpoint_request)

    def _make_request(
        self, request: Request, *, stream: bool, losses: Losses | None, reader: Capabilities | None
    ) -> EndpointRequest:
        """Return the request for the endpoint. Losses are logged if neither the caller nor an observer collects them.

        Raise LossError if the client is `strict` and there are losses, and ConfigError if `losses` has the wrong type.
        """
        check_request(self)
        check_losses(losses)
        losses = observed_losses.get() if losses is None else losses
        collected_losses = run_losses.get() if losses is None else losses
        if self._marks_prefix:
            request = mark_stable_prefix(request, self._endpoint.wire, self._model_capabilities)
        own_losses = Losses()  # a collector may have losses of other clients, such as the first model of a fallback
        endpoint_request = EndpointRequest(
            request,
            self._endpoint,
            stream=stream,
            text=self._text,
            losses=own_losses,
            client=reader,
            capabilities=self._capabilities,
            context_size=self._context_size,
        )
        if collected_losses is not None:
            collected_losses.extend(own_losses)
            endpoint_request.losses = collected_losses  # of the answer
        if self._strict:
            require_lossless(own_losses)
        if losses is None:
            self._loss_log.report(own_losses)
        return endpoint_request

    def new_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout

    @asynccontextmanager
    async def open_reply(
        self, endpoint_request: EndpointRequest, deadline: float
    ) -> AsyncIterator[tuple[Reply, ReplyMeaning]]:
        """Open a successful reply, "whole" or "stream", after as many attempts as needed and allowed.

        Each outcome is noted in the health of the model. Raise UpstreamError if no attempt succeeds, and at once during a
        cooldown that is too long to wait for.
        """
        endpoint, clock, health = self._endpoint, asyncio.get_running_loop().time, self._health
        exchange = UpstreamExchange(endpoint_request, endpoint_request.stream)
        attempts = sent = 0  # an attempt that the health of the model does not admit is not sent
        if not health.admit(clock(), is_last_resort=True):
            refusal = _cooldown_fault(endpoint, health.retry_after(clock()))
            waited = await self._wait_for_retry(refusal, 0, deadline, is_sent=False)
            if waited is None:
                raise UpstreamError(refusal)
            attempts = waited
        health.budget.requests += 1
        while True:
            sent_at = clock()
            sent += 1
            # In each attempt: a key from a command may have expired, or was dropped after a status 401 ("resend").
            secrets = await endpoint.authorise("POST", exchange.url, endpoint_request.headers, endpoint_request.body)
            post = self._transport.post(
                exchange.url, endpoint_request.headers, secrets, endpoint_request.body, deadline - clock()
            )
            try:
                reply = await post.__aenter__()
            except (TimeoutError, ConnectionError) as error:
                failure: type[UpstreamError] = NetworkError
                fault = endpoint_request.sanitise_fault(network_fault(error, endpoint.origin))
            else:
                failure = UpstreamError
                try:
                    meaning = exchange.receive_head(reply.status, reply.headers, secrets)
                    if meaning in ("whole", "stream"):
                        # The head counts as a success, although the stream may still break: a retry is impossible from
                        # here on, because the caller has got the first events.
                        health.succeed(clock(), sent_at)
                        refuse_web_page(reply, endpoint, exchange.url)
                        self._add_transport_losses(reply, endpoint_request)
                        yield reply, meaning
                        return
                    if meaning == "resend":
                        continue
                    fault = await self._read_fault(reply, exchange, meaning)
                    if endpoint_request.resize_context(fault):
                        continue
                finally:
                    await post.__aexit__(None, None, None)
            if is_transient(fault):
                is_timeout = fault.code == "timeout"
                health.fail(clock(), sent_at, retry_after=fault.retry_after, is_timeout=is_timeout)
            else:
                health.succeed(clock(), sent_at)  # it works, and refuses this request
            next_attempt = await self._wait_for_retry(fault, attempts, deadline)
            if next_attempt is None:
                raise describe_refusal(failure(fault), endpoint, exchange.url, sent)
            attempts = next_attempt

    async def _wait_for_retry(
        self, fault: Fault, attempts: int, deadline: float, *, is_sent: bool = True
    ) -> int | None:
        """Wait for the next attempt. Return the number of attempts before it, or None if there is no retry.

        An attempt that the health of the model does not admit counts as well, but nothing is sent. `is_sent`: the
        request was sent before, so the next attempt costs budget.
        """
        clock, health = asyncio.get_running_loop().time, self._health
        wait = self._retries.next_delay(fault, attempts, deadline - clock())
        if wait is None or (is_sent and not health.budget.take(clock())):
            return None
        while wait is not None:
            _log.info("%s failed: %s %s; retry in %.2f s", self._endpoint, fault.status, fault.kind, wait)
            await asyncio.sleep(wait)
            attempts += 1
            if health.admit(clock(), is_last_resort=True):
                return attempts
            wait = self._retries.next_delay(fault, attempts, deadline - clock())
        return None

    def _add_transport_losses(self, reply: Reply, endpoint_request: EndpointRequest) -> None:
        if self._endpoint.vendor.transport is not None:
            reported = transport_losses(reply)
            endpoint_request.losses.extend(reported)
            if self._strict:
                require_lossless(reported)

    async def _read_fault(self, reply: Reply, exchange: UpstreamExchange, meaning: ReplyMeaning) -> Fault:
        """Return the fault of an error response. A redirect is not followed, and an unreadable body is ignored."""
        if meaning == "redirect":
            return _redirect_fault(reply)
        try:
            data = await self.read_body(reply, ERROR_LIMIT)
        except (ProtocolError, UpstreamError):
            data = b""  # the status is sufficient
        return exchange.receive_fault(data)

    async def read_body(self, reply: Reply, limit: int | None = None) -> bytes:
        """Read a whole body. Raise NetworkError at a timeout, and TruncatedStream if the connection is lost."""
        try:
            return await read_reply_body(reply, self._limit if limit is None else limit)
        except TimeoutError as error:
            raise NetworkError(network_fault(error, self._endpoint.origin)) from None
        except ConnectionError as error:
            raise TruncatedStream(f"the connection was lost before the end of the response: {error}") from None

    async def read_chunks(self, reply: Reply) -> AsyncIterator[bytes]:
        """Yield chunks until the stream ends or the connection is lost. The decoder detects a truncated stream.

        Raise NetworkError at a timeout, and ProtocolError if the stream is too large.
        """
        size = 0
        try:
            while data := await reply.read():
                size += len(data)
                if size > self._limit:
                    raise ProtocolError(f"the stream exceeds {self._limit} bytes", hint="raise limit=…", status=502)
                yield data
        except TimeoutError as error:
            raise NetworkError(network_fault(error, self._endpoint.origin)) from None
        except ConnectionError as error:
            _log.info("lost the connection to %s: %s", self._endpoint.origin, error)

    def _restore(self, response: Response, endpoint_request: EndpointRequest) -> Response:
        return self._check_response(endpoint_request.restore(response), endpoint_request)

    def _check_response(self, response: Response, endpoint_request: EndpointRequest) -> Response:
        if response.fault is not None:
            raise UpstreamError(endpoint_request.sanitise_fault(response.fault))
        return response


def _raise_fault(event: Event, endpoint_request: EndpointRequest) -> Event:
    if isinstance(event, StreamFault):
        raise UpstreamError(endpoint_request.sanitise_fault(event.fault))
    return event


def _cooldown_fault(endpoint: Endpoint, seconds: float) -> Fault:
    message = f"{endpoint.origin} has failed several times in a row, and is in cooldown"
    return Fault("overloaded", message, 503, "cooldown", retryable=True, retry_after=seconds)


def _redirect_fault(reply: Reply) -> Fault:
    target = urlsplit(reply.headers.get("location", ""))
    destination = neutralise_line(f"{target.scheme}://{target.hostname}") if target.hostname else "another URL"
    message = f"the server redirects to {destination}; redirects are not followed, to protect the key: set the base URL"
    return Fault("invalid_request", message, 502, "redirect", retryable=False)
