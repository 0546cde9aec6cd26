"""A model provider for tests: a local server that supports every wire and answers from a script.

    async with Upstream(Response(parts=(Text("Hello"),), stop=Stop("stop"))) as upstream:
        client = ModelClient("anthropic/any", base_url=upstream.url, key="k")
        await client.ask(request)
    upstream.requests[0].request          # the request in canonical terms

A script is a list of answers, one for each request: a Response or a Fault, encoded for the wire of the request, whole
or streaming in small pieces; `RawReply` for arbitrary bytes; `Recorded` for the bytes of a recording; `PartialReply` for a
truncated answer; or a function of the request that returns one of these. After the script, every answer is a fault, as
are the answers to an invalid request and to a request whose function raised an exception.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ssl import SSLContext
from typing import Literal, Self, TypeAlias

from msgspec.structs import replace

from ..ir.errors import ConfigError, ProtocolError
from ..ir.events import CallDelta, Event, ReasoningDelta, TextDelta
from ..ir.folding import unfold
from ..ir.request import Request
from ..ir.response import Fault, Response, fault_from
from ..ir.text import to_bytes
from ..ir.value import Value
from ..stream.strict import parse_object
from ..wire import get, names
from ..wire.models import vendors
from ..wire.models.chunks import ChunkFrames
from ..wire.protocol import Wire
from ..wire.streaming.encoder import framing_of

_log = logging.getLogger("toolwire.testing")
_HEAD_END = b"\r\n\r\n"
_MODEL = "any-model"
_STREAM = {"content-type": "text/event-stream"}
_INVOKE = re.compile(
    r"/invoke(?:-with-response-stream)?\Z"
).search  # paths of Anthropic's documents in Bedrock's envelope
_JSON = {"content-type": "application/json"}
_REPORTS = frozenset({"/api/show", "/api/ps"})  # of an Ollama server about its models; they are not part of a script
_MODEL_LISTS = ("/models", "/api/tags")


class RawReply(Value, frozen=True):
    """An arbitrary answer. A streamed one is sent in small pieces."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}
    streamed: bool = False


class PartialReply(Value, frozen=True):
    """An answer that stops after `size` bytes of its body; None stops before anything is sent.

    Then the connection is closed (`cut`), reset, or left open and idle (`stall`).
    """

    answer: Response = Response()
    size: int | None = None
    then: Literal["cut", "reset", "stall"] = "cut"


class Recorded(Value, frozen=True):
    """A recorded answer: for each piece, the seconds to wait and the bytes."""

    pieces: tuple[tuple[float, bytes], ...] = ()
    status: int = 200
    headers: dict[str, str] = {}


ScriptedReply: TypeAlias = Response | Fault | RawReply | Recorded | PartialReply | Callable[[Request], "ScriptedReply"]


class ReceivedRequest(Value, frozen=True):
    """One received request. `wire` and `request` are None if no wire has this path."""

    path: str
    headers: dict[str, str]
    body: bytes
    wire: str | None = None
    request: Request | None = None
    stream: bool = False


class _HttpReply(Value, frozen=True):
    """An encoded answer, ready to send."""

    status: int
    headers: dict[str, str]
    body: bytes
    streamed: bool = False


class Upstream:
    """A server on the loopback interface, for as long as its context lasts.

    `piece` is the size of a stream's pieces in bytes, `delta` the size of its deltas in characters, `pace` the seconds
    between two pieces, `delay` the seconds before an answer begins; `tls` makes it HTTPS. `disconnects` counts the
    clients that disconnected before the end of their answer. `answers_probes`: whether requests for a list of models
    are answered, with 404, or get no answer; without it, they are part of the script. `probes` counts them. `port`: 0 is
    any free one.
    """

    def __init__(
        self,
        *script: ScriptedReply,
        piece: int = 64,
        delta: int = 8,
        pace: float = 0.0,
        tls: SSLContext | None = None,
        delay: float = 0.0,
        answers_probes: bool | None = None,
        port: int = 0,
    ) -> None:
        _check_script(script)
        self.script = list(script)
        self.requests: list[ReceivedRequest] = []  # all requests, in order of arrival
        self._number = 0  # of the last request, also after `requests` was cleared
        self.connections = 0
        self.disconnects = 0
        self.probes = 0
        self.answers_probes = answers_probes
        self.delay = delay
        self._piece = piece
        self._delta = delta
        self._pace = pace
        self._tls = tls
        self._port = port
        self._changed_event = asyncio.Condition()
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._routes = [
            (name, stream, _path_pattern(get(name), stream)) for name in names() for stream in (True, False)
        ] + _surface_routes()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server, and cancel and close all open connections."""
        self._server.close()
        await asyncio.sleep(0)  # let connections accepted just now register, so that they are closed too
        writers = list(self._open.values())
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """A base URL for every wire."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def disconnected(self, times: int = 1, *, within: float = 30.0) -> None:
        """Wait until that many clients have disconnected; raise TimeoutError otherwise."""
        await self._wait_until(lambda: self.disconnects >= times, within)

    async def wait_for_requests(self, times: int = 1, *, within: float = 30.0) -> None:
        """Wait until that many requests have arrived; raise TimeoutError otherwise."""
        await self._wait_until(lambda: len(self.requests) >= times, within)

    async def _wait_until(self, condition: Callable[[], bool], within: float) -> None:
        async with asyncio.timeout(within), self._changed_event:
            await self._changed_event.wait_for(condition)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda _: self._open.pop(task).close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection one after the other, until the client or the script closes it."""
        head = asyncio.ensure_future(reader.readuntil(_HEAD_END))
        answering: asyncio.Future[bool] | None = None
        try:
            while True:
                path, headers = _read_head(await head)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                # This read detects a client that disconnects in the middle of an answer.
                head = asyncio.ensure_future(reader.readuntil(_HEAD_END))
                answering = asyncio.ensure_future(self._answer(path, headers, body, writer))
                await asyncio.wait({head, answering}, return_when=asyncio.FIRST_COMPLETED)
                if head.done() and head.exception() is None:  # the next request, and no disconnect
                    await asyncio.wait({answering})
                if not answering.done() or isinstance(answering.exception(), ConnectionError):
                    await self._count_disconnect()
                    return
                if not answering.result():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            await _cancelled(head, answering)

    async def _count_disconnect(self) -> None:
        async with self._changed_event:
            self.disconnects += 1
            self._changed_event.notify_all()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Record a request and answer it by the next line of the script; return whether the connection can be reused.

        Probes and reports of clients are not recorded.
        """
        is_probe = self.answers_probes is not None and path.endswith(_MODEL_LISTS)
        self.probes += is_probe
        if is_probe and not self.answers_probes:
            await asyncio.Event().wait()
        if is_probe or path in _REPORTS:
            await self._send(_HttpReply(404, _JSON, b'{"error":"not found"}'), None, writer)
            return True
        line: ScriptedReply | None = None
        try:
            received = self._parse_request(path, headers, body)
        except ProtocolError as error:
            received, line = ReceivedRequest(path, headers, body), fault_from(error)
        async with self._changed_event:
            self.requests.append(received)
            self._number += 1
            self._changed_event.notify_all()
        if line is None:
            exhausted = Fault("server", "the script has no more answers", 500, retryable=False)
            line = self.script.pop(0) if self.script else exhausted
        if self.delay:
            await asyncio.sleep(self.delay)
        line, answer = self._resolve_line(line, received)
        if isinstance(line, Recorded):
            await _send_recorded(line, writer)
            return True
        assert answer is not None
        if not isinstance(line, PartialReply):
            await self._send(answer, None, writer)
            return True
        if line.size is not None:
            await self._send(answer, line.size, writer)
        if line.then == "stall":
            await asyncio.Event().wait()
        if line.then == "reset":
            writer.transport.abort()
        return False

    def _resolve_line(
        self, line: ScriptedReply, received: ReceivedRequest
    ) -> tuple[Response | Fault | RawReply | Recorded | PartialReply, _HttpReply | None]:
        """Call the function of a line, and encode its answer, or a fault if either fails. A recording needs no encoding."""
        try:
            while callable(line):
                line = line(received.request or Request())
            return line, None if isinstance(line, Recorded) else self._make_answer(line, received)
        except Exception as error:  # noqa: BLE001  # a function may raise anything; the client reports it
            _log.warning("the script of the upstream failed", exc_info=error)
            fault = Fault("server", f"the script failed: {type(error).__name__}: {error}", 500, retryable=False)
            return fault, self._make_answer(fault, received)

    def _parse_request(self, path: str, headers: dict[str, str], body: bytes) -> ReceivedRequest:
        """Return the request, decoded on the wire of its path. A path without a wire is only recorded.

        Raise ProtocolError if it is invalid.
        """
        for name, stream, route in self._routes:
            found = route.search(path)
            if found is not None:
                request = get(name).decode_request(parse_object(body))
                model = found.groupdict().get("model") or request.model
                streaming = stream if "model" in route.groupindex else bool(request.stream)
                request = replace(request, model=model, stream=streaming or request.stream)
                return ReceivedRequest(path, headers, body, name, request, streaming)
        return ReceivedRequest(path, headers, body)

    def _make_answer(self, line: Response | Fault | RawReply | PartialReply, received: ReceivedRequest) -> _HttpReply:
        """Encode a scripted answer for the wire of the request, as a stream if the request asked for one."""
        if isinstance(line, PartialReply):
            return self._make_answer(line.answer, received)
        if isinstance(line, RawReply):
            headers = line.headers or (_STREAM if line.streamed else _JSON)
            return _HttpReply(line.status, headers, line.body, line.streamed)
        wire = get(received.wire or "openai_chat")
        if isinstance(line, Fault):
            envelope = get("bedrock") if _INVOKE(received.path) else wire
            status, body, headers = envelope.encode_error(line)
            return _HttpReply(status, {**_JSON, **headers}, to_bytes(body))
        model = received.request.model if received.request is not None else ""
        response = replace(line, id=line.id or f"answer-{self._number}", model=line.model or model)
        if not received.stream:
            return _HttpReply(200, _JSON, to_bytes(wire.encode_response(response).body))
        encoder = wire.stream_encoder(received.request)
        data = b"".join(encoder.feed(event) for event in self._split_deltas(response))
        if _INVOKE(received.path):
            data = ChunkFrames().feed(data)
        elif wire.name != "bedrock":
            return _HttpReply(200, _STREAM, data, streamed=True)
        return _HttpReply(200, {"content-type": framing_of("bedrock").media_type}, data, streamed=True)

    def _split_deltas(self, response: Response) -> Iterator[Event]:
        """Yield the events of a response, with its deltas split into pieces of `delta` characters."""
        for event in unfold(response):
            if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
                text = event.text
                for start in range(0, len(text), self._delta):
                    part = type(event).of(event.key, text[start : start + self._delta])
                    yield replace(event, escaped=part.escaped)
            else:
                yield event

    async def _send(self, answer: _HttpReply, size: int | None, writer: asyncio.StreamWriter) -> None:
        """Send the answer, or the first `size` bytes of its body."""
        length = {"transfer-encoding": "chunked"} if answer.streamed else {"content-length": str(len(answer.body))}
        writer.write(_write_head(answer.status, {**answer.headers, **length}))
        body = answer.body[:size]
        step = self._piece if answer.streamed else max(len(body), 1)
        for start in range(0, len(body), step):
            if start:
                await asyncio.sleep(self._pace)
            piece = body[start : start + step]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.streamed else piece)
            await writer.drain()
        if answer.streamed and size is None:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


def _check_script(script: Iterable[object]) -> None:
    for number, line in enumerate(script):
        if not isinstance(line, (Response, Fault, RawReply, Recorded, PartialReply)) and not callable(line):
            hint = "use a Response, a Fault, a RawReply, a Recorded, a PartialReply, or a function of the request"
            raise ConfigError(f"line {number} of the script is a {type(line).__name__}", hint=hint)


async def _send_recorded(line: Recorded, writer: asyncio.StreamWriter) -> None:
    """Send a recorded answer with its original chunks and pauses."""
    writer.write(_write_head(line.status, {**line.headers, "transfer-encoding": "chunked"}))
    for seconds, piece in line.pieces:
        await asyncio.sleep(seconds)
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _cancelled(*tasks: asyncio.Future[bytes] | asyncio.Future[bool] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _path_pattern(wire: Wire, stream: bool) -> re.Pattern[str]:
    """Return the path of a wire as a pattern: after any base URL, with any model, and any version of Gemini's API."""
    path = re.escape(wire.path(_MODEL, stream=stream)).replace(re.escape(_MODEL), "(?P<model>[^/]+)")
    path = path.replace("/v1beta/", "/v1(?:beta|alpha)?/")  # version 3 of Google's SDK uses /v1
    return re.compile(rf"{path}(?:[?&]|\Z)")


def _surface_routes() -> list[tuple[str, bool, re.Pattern[str]]]:
    """Return the wire, the stream mode and the pattern of the paths that vendors have for a model and its streams."""
    surfaces = {surface.path: surface for name in vendors.names() for surface in vendors.find(name).surfaces}
    return [
        (surface.wire, stream, _template_pattern(template))
        for surface in surfaces.values()
        if surface.stream_path is not None
        for template, stream in ((surface.stream_path, True), (surface.path, False))
    ]


def _template_pattern(template: str) -> re.Pattern[str]:
    pattern = re.sub(r"\\{(\w+)\\}", "(?:[^/]+)", re.escape(template).replace(r"\{model\}", "(?P<model>[^/]+)"))
    return re.compile(rf"{pattern}(?:[?&]|\Z)")


def _read_head(data: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = data.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines if line]
    return first.split(" ")[1], {name.lower(): value.strip() for name, _, value in pairs}


def _write_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + _HEAD_END
