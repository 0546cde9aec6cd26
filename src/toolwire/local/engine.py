"""Run llama.cpp in this process through xllamacpp, which only this module imports.

`Engine` loads the weights; its functions block. `ChatEngine` runs a model without tool support: requests and responses
are bytes of OpenAI's chat protocol. `Generations` runs any generator of text in threads.

async for piece in chat.stream(body): …     # the bytes of a stream, `data: [DONE]` at the end
await chat.complete(body)                   # a complete response

Leaving the loop, or cancelling the task, stops the generation. Requests wait for a free slot in order of arrival.
A request that fails raises UpstreamError, as with a remote server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from threading import Event as Flag
from threading import Lock
from typing import Any

from ..ir.errors import ProtocolError, ToolwireError
from ..ir.folding import Folder
from ..ir.pointer import JSON, Object
from ..ir.response import Fault, UpstreamError
from ..ir.text import to_bytes
from ..stream.strict import parse_object
from ..wire import get

# Run llama.cpp in this process through xllamacpp, which only this module imports. All functions block.
#
# llama.cpp always starts its HTTP server. It listens on a socket in a temporary folder that is deleted once the
# engine is ready, and requires a random key that is not stored. The only access is `chat`.


_log = logging.getLogger("toolwire.local")
_PROMPT_BATCH = 64  # prompt tokens between two checks for cancellation


class Engine:
    """A loaded model. Each of the `slots` handles one request at a time, with `context` tokens."""

    def __init__(
        self, weights: Path, name: str, *, threads: int, slots: int, context: int, adapter: Path | None = None
    ) -> None:
        """Load the weights into llama.cpp's server in this process, with `slots` parallel answers of `context` tokens.

        A request applies the adapter with the field `lora`.

        On POSIX its socket is in a folder that is removed at once, so that no other process can connect.
        """
        from xllamacpp import CommonAdapterLoraInfo, CommonParams, Server

        params = CommonParams()
        params.model.path = str(weights)
        params.model_alias = {name}
        params.n_parallel = slots
        params.kv_unified = False
        params.n_ctx = slots * context
        params.n_batch = params.n_ubatch = _PROMPT_BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0  # otherwise finished conversations stay in memory, up to gigabytes
        params.n_threads_http = 1
        params.verbosity = -1
        params.warmup = False
        params.ui = False
        params.api_keys = [token_hex(16)]
        if adapter is not None:
            params.lora_adapters = [CommonAdapterLoraInfo(str(adapter), 0.0)]  # off, unless a request sets its scale
        with TemporaryDirectory() as folder:
            if os.name == "posix":
                params.hostnames = [f"{folder}/engine.sock"]
            self._server: Server | None = Server(params)

    def chat(self, body: bytes, on_chunk: Callable[[bytes], Any]) -> None:
        """Generate a response. `on_chunk` gets each chunk as JSON and stops the generation by returning True.

        Raises ValueError or RuntimeError for a request that llama.cpp cannot parse.
        """
        assert self._server is not None, "closed"
        self._server.handle_chat_completions(body, on_chunk)

    def close(self) -> None:
        """Free the memory. No call of `chat` may be running."""
        self._server = None


def default_threads() -> int:
    """Return the number of cores, or 1 on a busy machine, because threads of llama.cpp spin while they wait."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > cores / 2
    return 1 if busy or os.environ.get("CI") else cores


MAX_TOKENS = 192
"""Limit of a text for requests that set none, because a small model may generate forever."""
MAX_JSON_TOKENS = 512
"""Limit of a call or structured output, whose grammar bounds them; truncated, they would be useless."""

_PROGRESS = b'"prompt_progress":{'  # cannot occur in generated text, where quotes are escaped
_FAULT = b'{"error":'


class Generations:
    """Run generations in `slots` threads, and pass their chunks to the event loops that wait for them.

    Requests beyond the slots wait in order of arrival.
    """

    def __init__(self, slots: int) -> None:
        self._pool = ThreadPoolExecutor(slots, "toolwire-local")
        self._running: set[_Generation] = set()  # generations in flight, which `close` stops

    async def chunks(self, generate: Callable[[Callable[[bytes], bool]], None]) -> AsyncGenerator[bytes, None]:
        """Yield the chunks that `generate` passes to its argument, which returns True once the generation should stop.

        Leaving the loop stops the generation. A ToolwireError of `generate` is raised here. Raises UpstreamError for its
        other errors, which are logged, and after `close`.
        """
        turn = _Generation(asyncio.get_running_loop())
        self._running.add(turn)  # before it is submitted, so that `close` finds it
        job: Future[None] | None = None
        try:
            try:
                job = self._pool.submit(turn.run, generate)
            except RuntimeError:  # the threads are stopped
                raise _closed_error() from None
            while (chunk := await turn.chunk_queue.get()) is not None:
                if isinstance(chunk, ToolwireError):
                    raise chunk
                yield chunk
        finally:
            turn.abandoned.set()
            if job is not None:
                job.cancel()
            self._running.discard(turn)

    def close(self) -> None:
        """Stop all generations with an error, and wait for their threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)  # first, so that no generation is added after the loop
        for turn in tuple(self._running):
            turn.stop(_closed_error())
        self._pool.shutdown()


def _closed_error() -> UpstreamError:
    return UpstreamError(Fault("server", "the model was closed", 503))


class _Generation:
    """One response, passed from the generating thread to the waiting event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.chunk_queue: asyncio.Queue[bytes | ToolwireError | None] = asyncio.Queue()
        self.abandoned = Flag()  # the reader is gone: the generation should stop
        self._loop = loop

    def run(self, generate: Callable[[Callable[[bytes], bool]], None]) -> None:
        """Generate in this thread. None is always sent last, so that the reader stops waiting."""
        try:
            generate(self._put_chunk)
        except ToolwireError as error:
            self._send(error)
        except Exception:  # noqa: BLE001 - its text is for the log only: it may contain paths of this machine
            _log.exception("cannot generate an answer")
            self._send(UpstreamError(Fault("server", "the model cannot generate an answer", 500)))
        finally:
            self._send(None)

    def stop(self, error: ToolwireError) -> None:
        """Raise an error in the reader, and stop the generation. One that still waits for a thread sends no None."""
        self.abandoned.set()
        self._send(error)
        self._send(None)

    def _put_chunk(self, chunk: bytes) -> bool:
        """Pass on a chunk; return True if the reader is gone, to stop the generation."""
        self._send(chunk)
        return self.abandoned.is_set()

    def _send(self, item: bytes | ToolwireError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self.chunk_queue.put_nowait, item)
        except RuntimeError:  # the loop is closed, and so is the reader
            self.abandoned.set()


class ChatEngine:
    """A model. `start` creates the engine at the first request."""

    def __init__(self, start: Callable[[], Engine], slots: int) -> None:
        self._start = start
        self._engine: Engine | None = None
        self._loading = Lock()
        self._generations = Generations(slots)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.chunks(read_body(body))) as chunks:
            async for chunk in chunks:
                yield b"data: " + chunk + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def complete(self, body: bytes) -> bytes:
        return await fold_stream(self.stream(to_bytes(request_usage(read_body(body)))))

    async def chunks(self, body: Object) -> AsyncGenerator[bytes, None]:
        """Yield the JSON of each chunk; leaving the loop stops the generation.

        Raises `UpstreamError` for a fault of the engine, and other errors of its thread.
        """
        data = to_bytes(_engine_request(body))
        async with aclosing(self._generations.chunks(lambda put_chunk: self._generate(data, put_chunk))) as chunks:
            async for chunk in chunks:
                if chunk.startswith(_FAULT):
                    raise UpstreamError(_make_fault(chunk))
                if _PROGRESS not in chunk:
                    yield chunk

    def close(self) -> None:
        """Stop all generations and free the memory."""
        self._generations.close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _generate(self, body: bytes, put_chunk: Callable[[bytes], bool]) -> None:
        """Generate a response in a thread. Raises `UpstreamError` for a request that llama.cpp cannot parse."""
        try:
            self._load_engine().chat(body, put_chunk)
        except (ValueError, RuntimeError) as error:
            message = f"llama.cpp rejected the request: {error}"
            raise UpstreamError(Fault("invalid_request", message, 400)) from None

    def _load_engine(self) -> Engine:
        with self._loading:
            if self._engine is None:
                self._engine = self._start()
            return self._engine


async def fold_stream(stream: AsyncGenerator[bytes, None]) -> bytes:
    """Collect a stream of OpenAI's chat protocol into a complete response document."""
    codec = get("openai_chat")
    decoder, folder = codec.stream_decoder(), Folder()
    async with aclosing(stream):
        async for piece in stream:
            for event in decoder.feed(piece):
                folder.feed(event)
    for event in decoder.close():
        folder.feed(event)
    return to_bytes(codec.encode_response(folder.response())[0])


def read_body(body: bytes) -> Object:
    """Parse a request body; raise UpstreamError with status 400 if it is not a JSON object."""
    try:
        return parse_object(body)
    except ProtocolError as error:
        raise UpstreamError(Fault("invalid_request", str(error), 400)) from None


def request_usage(body: Object) -> Object:
    """Request the token usage, which a complete response always contains."""
    return {**body, "stream_options": {"include_usage": True}}


def _engine_request(body: Object) -> Object:
    """Adapt the request for llama.cpp: always a stream, which can be stopped, with progress while reading the prompt."""
    asked = {name: value for name, value in body.items() if name not in ("model", "max_completion_tokens")}
    return {**asked, "max_tokens": limit_tokens(body), "stream": True, "return_progress": True}


def limit_tokens(body: Object) -> JSON:
    """Return the limit of a request, or the default limit of its kind."""
    default = MAX_JSON_TOKENS if body.get("grammar") or body.get("response_format") else MAX_TOKENS
    return body.get("max_tokens") or body.get("max_completion_tokens") or default


def _make_fault(chunk: bytes) -> Fault:
    """Convert an error of llama.cpp; an exceeded context gets the error code that clients know."""
    told = get("openai_chat").decode_error(None, parse_object(chunk))
    if b"exceed_context_size_error" not in chunk:
        return Fault(told.kind, told.message, told.status, told.code, retryable=False)
    message = f"the conversation is too long for this model: {told.message.partition(', try')[0]}"
    return Fault("invalid_request", message, told.status, "context_length_exceeded", retryable=False)
