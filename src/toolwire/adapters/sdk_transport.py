"""Any SDK in front of any model, without a server.

    openai.OpenAI(http_client=transport("anthropic/claude-sonnet-5"), api_key="unused")
    anthropic.AsyncAnthropic(http_client=async_transport("openai/gpt-5.6"), api_key="unused")
    google.genai.Client(
        api_key="unused",
        http_options=HttpOptions(httpx_client=transport("ollama/qwen3"), httpx_async_client=async_transport("ollama/qwen3")),
    )

The SDK's own key is never sent. httpx2 or httpx, which the SDKs install, is imported on use.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

from ..ir.errors import ConfigError, MissingExtra
from ..ir.losses import Loss
from ..net.model.client import ModelClient
from ..net.model.endpoint_credentials import EndpointOptions
from ..net.threads import iterate_blocking, run_blocking
from .sdk_call import SdkRequest
from .sdk_server import SdkAnswerHead, SdkServer

if TYPE_CHECKING:
    from ..bridge.emulation.settings import EmulationSettings
    from ..net.model.upstream_exchange import RetryPolicy
    from ..text.engine.format import Format
    from ..wire.models.capabilities import ModelCapabilities

T = TypeVar("T")
_MAX_CLIENTS = 64  # models of a transport without a fixed model; each client has a pool of connections
_PACKAGES = ("httpx2", "httpx")


class TransportOptions(EndpointOptions, total=False):
    """Options of the `ModelClient` that a transport opens. `retries` is 0 by default, because SDKs retry themselves."""

    text: Format | str | EmulationSettings | None
    timeout: float
    retries: int | RetryPolicy
    limit: int
    strict: bool
    capabilities: ModelCapabilities | None
    cache: Literal["auto"] | None
    repair: ModelClient | None


def transport(
    model: str | None = None,
    *,
    client: ModelClient | None = None,
    on_loss: Callable[[Loss], None] | None = None,
    package: Literal["httpx2", "httpx"] | None = None,
    **options: Unpack[TransportOptions],
) -> Any:
    """Return an `httpx.Client` that answers the requests of an SDK with a model.

    `model` is `provider/model`; without it, every request names its model in this form. `client`: use this client, which
    the caller closes, instead of opening one with the `options` of `ModelClient`. `on_loss` gets each loss of a
    translation; by default, losses are logged to `toolwire.adapters`. `strict=True` refuses requests with losses.
    `package` selects the HTTP library of the SDK if both are installed; the newest SDKs use httpx2.
    """
    http = _import_http(package)
    models = _Models(model, client, options)
    server = SdkServer(models.find, models.name, on_loss)
    sync_transport = _sync_class(http)(server, models)
    return http.Client(transport=sync_transport, trust_env=False)


def async_transport(
    model: str | None = None,
    *,
    client: ModelClient | None = None,
    on_loss: Callable[[Loss], None] | None = None,
    package: Literal["httpx2", "httpx"] | None = None,
    **options: Unpack[TransportOptions],
) -> Any:
    """Like `transport`, for the asynchronous clients of the SDKs: return an `httpx.AsyncClient`. It needs asyncio."""
    http = _import_http(package)
    models = _Models(model, client, options)
    server = SdkServer(models.find, models.name, on_loss)
    return http.AsyncClient(transport=_async_class(http)(server, models), trust_env=False)


def _import_http(package: str | None) -> Any:
    for name in _PACKAGES if package is None else (package,):
        try:
            return import_module(name)
        except ImportError:
            continue
    wanted = package or "httpx2"
    raise MissingExtra(f"transports for SDKs need the package {wanted}", hint=f"pip install {wanted}")


class _Models:
    """The clients of a transport: one, or one for each model that a request names."""

    def __init__(self, model: str | None, client: ModelClient | None, options: TransportOptions) -> None:
        """Raise `ConfigError` for a client together with a model or options, and for `base_url` without a model.

        No retries by default, because the SDK retries by itself.
        """
        if client is not None and (model is not None or options):
            raise ConfigError(
                "a client has its own model and options", hint="pass either client or a model with options"
            )
        self._fixed = client
        self._owns_fixed = client is None
        self._options: TransportOptions = {"retries": 0, **options}
        self._opened: OrderedDict[str, ModelClient] = OrderedDict()
        if model is not None:
            self._fixed = ModelClient(model, **self._options)
        elif client is None and options.get("base_url"):
            raise ConfigError("base_url is the address of one model's server", hint="pass the model, too")

    @property
    def name(self) -> str | None:
        """The name of the only model."""
        return None if self._fixed is None else self._fixed.name

    def find(self, name: str) -> ModelClient:
        """Return the client for a request that names `name`.

        It is the fixed client, or a client that is opened and kept for the name.
        """
        if self._fixed is not None:
            return self._fixed
        client = self._opened.get(name)
        if client is None:
            client = self._opened[name] = ModelClient(name, **self._options)
            if len(self._opened) > _MAX_CLIENTS:
                self._opened.popitem(last=False)  # closed by the garbage collector, after its last answer
        self._opened.move_to_end(name)
        return client

    async def aclose(self) -> None:
        """Close the clients that were opened here."""
        while self._opened:
            await self._opened.popitem()[1].aclose()
        if self._fixed is not None and self._owns_fixed:
            await self._fixed.aclose()


class _StreamClosed(ConnectionError):
    """The program closed the stream that it reads: a closed connection never ends in the end of the answer."""

    def __init__(self) -> None:
        super().__init__("the stream was closed while it was read")


class _SyncPieces:
    """The pieces of an answer, read by one thread, and closed by any thread.

    A generator runs in one thread at a time: `next` and `close` raise ValueError while another thread is in one of them.
    So the lock is held in the generator, and is never waited for. If it is taken, a closing thread cancels the answer's
    task on the background event loop, and a reading thread knows that another one closes the stream.
    """

    def __init__(self, answer: AsyncGenerator[Any, None]) -> None:
        self._generator = iterate_blocking(self._relay(answer))
        self._in_generator = threading.Lock()
        self._is_closed = False

    def __next__(self) -> Any:
        if self._is_closed or not self._in_generator.acquire(blocking=False):
            raise _StreamClosed
        try:
            return next(self._generator)
        except asyncio.CancelledError:
            raise _StreamClosed from None
        finally:
            self._in_generator.release()

    def __iter__(self) -> Iterator[Any]:
        return self

    def close(self) -> None:
        """Cancel the request. Wait for its end, unless another thread waits for a piece."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._in_generator.acquire(blocking=False):
            try:
                self._generator.close()
            finally:
                self._in_generator.release()
        elif self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def _relay(self, answer: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with aclosing(answer):
            async for piece in answer:
                yield piece


class _AsyncPieces:
    """The pieces of an answer, read by one task, and closed by any task.

    An async generator cannot be closed while a task waits for its next piece. That task is cancelled instead, and the
    cancellation ends here, as in `asyncio.timeout`.
    """

    def __init__(self, answer: AsyncGenerator[Any, None]) -> None:
        self._generator = answer
        self._reader: asyncio.Task[Any] | None = None
        self._closed = asyncio.Event()

    async def __anext__(self) -> Any:
        if self._closed.is_set():
            raise _StreamClosed
        reader = self._reader = cast("asyncio.Task[Any]", asyncio.current_task())
        cancellations = reader.cancelling()
        try:
            return await anext(self._generator)
        except asyncio.CancelledError:
            if not self._closed.is_set() or reader.uncancel() > cancellations:
                raise
            raise _StreamClosed from None
        finally:
            self._reader = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def aclose(self) -> None:
        """Cancel the request. Wait for its end, unless another task waits for a piece."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._reader is None:
            await self._generator.aclose()
        else:
            self._reader.cancel()


def _sync_class(http: Any) -> Any:
    """Build the transport class of an HTTP library, whose base classes must be subclassed."""

    class AnswerBytes(http.SyncByteStream):  # type: ignore[misc]
        """The body of an answer. Closing it, from any thread, cancels the request."""

        def __init__(self, pieces: _SyncPieces, request: Any) -> None:
            self._pieces = pieces
            self._request = request

        def __iter__(self) -> Iterator[bytes]:
            with _http_errors(http, self._request):
                yield from self._pieces

        def close(self) -> None:
            self._pieces.close()

    class ModelTransport(http.BaseTransport):  # type: ignore[misc]
        """Answers requests with a model; toolwire's background event loop does the work."""

        def __init__(self, server: SdkServer, models: _Models) -> None:
            self._server = server
            self._models = models

        def handle_request(self, request: Any) -> Any:
            """Return the model's answer as a streamed response.

            Raises the HTTP library's own timeout or connection error.
            """
            pieces = _SyncPieces(self._server.answer(_read_request(request, request.read())))
            with _http_errors(http, request):
                head = next(pieces)
            return _make_response(http, head, AnswerBytes(pieces, request))

        def close(self) -> None:
            run_blocking(self._models.aclose())

    return ModelTransport


def _async_class(http: Any) -> Any:
    """Like `_sync_class`, for asyncio."""

    class AsyncAnswerBytes(http.AsyncByteStream):  # type: ignore[misc]
        """The body of an answer. Closing it, from any task, cancels the request."""

        def __init__(self, pieces: _AsyncPieces, request: Any) -> None:
            self._pieces = pieces
            self._request = request

        async def __aiter__(self) -> AsyncIterator[bytes]:
            with _http_errors(http, self._request):
                async for piece in self._pieces:
                    yield piece

        async def aclose(self) -> None:
            await self._pieces.aclose()

    class AsyncModelTransport(http.AsyncBaseTransport):  # type: ignore[misc]
        """Answers requests with a model, on the event loop of the caller."""

        def __init__(self, server: SdkServer, models: _Models) -> None:
            self._server = server
            self._models = models

        async def handle_async_request(self, request: Any) -> Any:
            pieces = _AsyncPieces(self._server.answer(_read_request(request, await request.aread())))
            with _http_errors(http, request):
                head = await anext(pieces)
            return _make_response(http, head, AsyncAnswerBytes(pieces, request))

        async def aclose(self) -> None:
            await self._models.aclose()

    return AsyncModelTransport


def _read_request(request: Any, body: bytes) -> SdkRequest:
    """Return an HTTP library's request in our form, with header names in lower case."""
    timeouts: Mapping[str, float | None] = request.extensions.get("timeout", {})
    return SdkRequest(
        request.method,
        request.url.path,
        dict(request.url.params),
        {name.lower(): value for name, value in request.headers.items()},
        body,
        timeouts.get("read"),
    )


def _make_response(http: Any, head: SdkAnswerHead | bytes, body: Any) -> Any:
    assert isinstance(head, SdkAnswerHead)
    return http.Response(head.status, headers=head.headers, stream=body)


@contextmanager
def _http_errors(http: Any, request: Any) -> Iterator[None]:
    """Convert network errors to the HTTP library's errors, from which an SDK makes its own."""
    try:
        yield
    except TimeoutError as error:
        raise http.ReadTimeout(str(error) or "the model did not answer in time", request=request) from error
    except ConnectionError as error:
        kind = http.ReadError if isinstance(error, _StreamClosed) else http.ConnectError
        raise kind(str(error), request=request) from error
