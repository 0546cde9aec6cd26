"""Bodies of relayed requests: held if they are small, else sent on while they arrive.

    JSON         held up to `limits.stream_body`; a larger one is sent on if it begins with the model
    multipart    held up to `limits.stream_body`, or until the model is known: then the files are sent on
    any other    sent on to a path of `[relay] paths`, else refused: its model and its fields cannot be read

A held body can be sent again, to another target. One that is sent on is sent once, and at most one piece of it is in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol

from ...asgi.http_exchange import BodyTooLarge, HttpExchange
from ...ir.errors import ProtocolError
from ...ir.pointer import Object
from ...net.http.transport import RequestBody, StreamedBody
from ...net.model.pass_through import replace_model
from ...stream.strict import parse_object
from ..config.settings import LimitsRow
from ..keys import Caller
from ..memory import MemoryReservation
from ..request.body import FORBIDDEN_FIELDS, ClientBody, RoutingRefused, forbidden_field_error, may_route
from ..request.reader import RequestReader
from ..request.transformed import change_body
from .multipart import MultipartScan, find_boundary, has_other_charset
from .paths import find_route

# Bytes for which a client gets a further second: below the slowest mobile network, and a client that holds a connection
# has to pay for it with traffic.
_BYTES_PER_SECOND = 16 * 1024


class RelayBody(Protocol):
    """The body of one request."""

    @property
    def model(self) -> str | None:
        """The model that the body names, if it was read."""
        ...

    @property
    def document(self) -> Object:
        """The fields of a held JSON object; empty for any other body."""
        ...

    @property
    def is_sent(self) -> bool:
        """True if it was sent, and cannot be sent again."""
        ...

    def for_model(self, model: str | None) -> RequestBody:
        """Return the body for an upstream, with another name of the model if it names one."""
        ...


class HeldJson:
    """A JSON object, or an empty body."""

    is_sent = False

    def __init__(self, data: bytes, document: Object, *, may_choose: bool) -> None:
        """Check the fields. Raise ConfigError or RoutingRefused for one that the client must not set."""
        for name in document:
            if name in FORBIDDEN_FIELDS:
                raise forbidden_field_error(name)
            if not may_choose and may_route(name):
                raise RoutingRefused(name)
        self.document = document
        self._data = data
        model = document.get("model")
        self.model = model if isinstance(model, str) else None

    def for_model(self, model: str | None) -> RequestBody:
        return self._data if model is None or self.model is None else replace_model(self._data, self.document, model)


class StreamedJson:
    """A large JSON object whose model comes first. Its other fields are checked while it is sent."""

    def __init__(self, upload: ClientBody) -> None:
        self._upload = upload
        self.document: Object = {}

    @property
    def model(self) -> str | None:
        return self._upload.model

    @property
    def is_sent(self) -> bool:
        return self._upload.is_sent

    def for_model(self, model: str | None) -> RequestBody:
        return self._upload.for_model(model or self._upload.model or "")


class UnreadableMediaType(ProtocolError):
    """The model and the fields of the body cannot be checked, or some servers read them in another charset."""

    default_status = 415

    def __init__(self, content_type: str) -> None:
        message = f"this endpoint has no bodies of the content-type {content_type[:100]!r}"
        super().__init__(message, hint="send application/json in UTF-8, or multipart/form-data")


class _Upload(NamedTuple):
    """The source of a body: its pieces, b"" at the end."""

    http_exchange: HttpExchange
    seconds: float
    max_bytes: int

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the pieces. Raise BodyTooLarge, BodyTimeout and ClientGone.

        The client has `seconds`, and more time for a larger body. After the last piece, its disconnect interrupts the task.
        """
        clock, received, has_more = asyncio.get_running_loop().time, 0, True
        waited = 0.0  # for the client: the time that an upstream needs does not count
        while has_more:
            began = clock()
            remaining = self.seconds + received / _BYTES_PER_SECOND - waited
            piece, has_more = await self.http_exchange.read_piece(remaining)
            waited += clock() - began
            received += len(piece)
            if received > self.max_bytes:
                raise BodyTooLarge(f"the body has more than {self.max_bytes} bytes", hint=_SIZE_HINT)
            if piece:
                yield piece
        self.http_exchange.watch()


_SIZE_HINT = "send less data; the gateway's operator can raise max_bytes in [relay]"


class UploadedBody:
    """A body that is sent on: `start` was read, and has the model at `span`, if it has one."""

    def __init__(
        self,
        start: bytes,
        rest: AsyncIterator[bytes] | None,
        length: int | None,
        model: str | None = None,
        span: tuple[int, int] | None = None,
    ) -> None:
        """Create the body; without `rest`, it is held. `length` is the number of bytes, if it is known."""
        self.document: Object = {}
        self.model = model
        self.is_sent = False
        self._start = start
        self._rest = rest
        self._length = length
        self._span = span
        self.on_piece: Callable[[], object] | None = None

    def for_model(self, model: str | None) -> RequestBody:
        start = self._start
        if self._span is not None and model is not None and model != self.model:
            start = start[: self._span[0]] + model.encode() + start[self._span[1] :]
        if self._rest is None:
            return start
        added = len(start) - len(self._start)
        return StreamedBody(self._send(start, self._rest), None if self._length is None else self._length + added)

    async def _send(self, start: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.is_sent, self._start = True, b""
        if start:
            yield start
        del start
        async for piece in rest:
            if self.on_piece is not None:
                self.on_piece()
            yield piece


class BodyReader:
    """Reads the bodies of relayed requests. `max_bytes` limits a body that is sent on."""

    def __init__(self, limits: LimitsRow, max_bytes: int, reader: RequestReader) -> None:
        self._limits = limits
        self._max_bytes = max_bytes
        self._reader = reader

    async def open(
        self,
        http_exchange: HttpExchange,
        memory: MemoryReservation,
        caller: Caller,
        path_model: str,
        *,
        needs_model: bool,
        may_stream: bool,
    ) -> RelayBody:
        """Read a body, or as much of it as is needed to choose its target.

        Raise the errors of its size, time and memory, and ProtocolError if it is invalid.
        """
        headers = http_exchange.headers
        if "content-encoding" in headers or path_model:
            change_body(http_exchange, path_model, self._limits.body)
        if http_exchange.declared_length > self._max_bytes:
            message = f"the body has {http_exchange.declared_length} bytes; the limit is {self._max_bytes}"
            raise BodyTooLarge(message, hint=_SIZE_HINT)
        content_type = headers.get("content-type", "")
        boundary = find_boundary(content_type)
        if boundary is None and _may_be_json(content_type):
            if has_other_charset(content_type):
                raise UnreadableMediaType(content_type)
            return await self._open_json(http_exchange, memory, caller, needs_model=needs_model, may_stream=may_stream)
        http_exchange.interruption.attach()
        is_chunked = "transfer-encoding" in headers
        length = None if is_chunked else http_exchange.declared_length
        pieces = _Upload(http_exchange, self._limits.slow_client, self._max_bytes).read()
        if boundary is None:
            if find_route(http_exchange.method, http_exchange.path, headers, ()) is None:  # of `[relay] paths`
                return UploadedBody(b"", pieces, length)
            async for _ in pieces:
                raise UnreadableMediaType(content_type)
            return HeldJson(b"", {}, may_choose=True)
        scan = MultipartScan(boundary, may_route=caller.has_all_models)
        return await self._open_form(pieces, length, memory, scan, needs_model=needs_model)

    async def _open_json(
        self,
        http_exchange: HttpExchange,
        memory: MemoryReservation,
        caller: Caller,
        *,
        needs_model: bool,
        may_stream: bool,
    ) -> RelayBody:
        limits = self._limits
        if needs_model and may_stream and limits.stream_body < http_exchange.declared_length <= limits.body:
            upload = ClientBody(http_exchange, limits, memory, caller)
            await upload.read_start(needs_model=True)
            if upload.model and upload.may_stream({}, may_have_envelopes=False, counted=None):
                return StreamedJson(upload)
            data, work = await self._reader.admit(await upload.read_whole(), memory, limits)
        else:
            data, work = await self._reader.read_document(http_exchange, memory, limits)
        http_exchange.watch()
        if not data:
            return HeldJson(b"", {}, may_choose=True)
        document = await self._reader.open_offload(caller.name).run(work, parse_object, data)
        return HeldJson(data, document, may_choose=caller.has_all_models)

    async def _open_form(
        self,
        pieces: AsyncIterator[bytes],
        length: int | None,
        memory: MemoryReservation,
        scan: MultipartScan,
        *,
        needs_model: bool,
    ) -> UploadedBody:
        """Read a form until its model is known, or whole if it is small."""
        held: list[bytes] = []
        size, is_small = 0, length is not None and length <= self._limits.stream_body
        async for piece in pieces:
            size += len(piece)
            memory.add(len(piece))
            held.append(piece)
            scan.feed(piece)
            if not is_small and (scan.span is not None or not needs_model):
                return UploadedBody(b"".join(held), _checked(pieces, scan), length, scan.model, scan.span)
            if size > self._limits.body:
                message = f"the first {self._limits.body} bytes have no field model"
                raise BodyTooLarge(message, hint="send the field model before the files")
        scan.close()
        return UploadedBody(b"".join(held), None, length, scan.model, scan.span)


async def _checked(pieces: AsyncIterator[bytes], scan: MultipartScan) -> AsyncIterator[bytes]:
    """Yield pieces after each is checked, the last one only if the form is complete."""
    previous = b""
    async for piece in pieces:
        scan.feed(piece)
        if previous:
            yield previous
        previous = piece
    scan.close()
    yield previous


def _may_be_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type in ("", "application/json", "text/plain") or media_type.endswith("+json")
