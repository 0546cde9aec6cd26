"""HTTP requests to a fine-tuning service: JSON, uploads from a file and downloads to a file, with typed errors.

An error is an `UpstreamError` with the service's own message. Requests that may be repeated are retried after
transient errors, after the wait that the service demands, if it is not too long. A request that creates a job is never
repeated here, unless the service has certainly not processed it (429, or no connection): see `submission`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

from msgspec.structs import replace

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.response import UpstreamError
from ...ir.text import to_bytes
from ...net.http.head import origin_of, parse_base_url
from ...net.http.transport import Reply, RequestBody, StreamedBody
from ...net.model.key_command import KeyCommand
from ...net.model.replies import read_reply_body
from ...net.model.upstream_exchange import RetryPolicy, network_fault
from ...run.traces.redact import Redactor
from ..run_folder import replacing
from .service_answers import MAX_ANSWER, NOTE, parse_answer, read_fault

_CHUNK = 256 * 1024  # bytes that are read from a file at a time
REQUEST_SECONDS = 60.0  # for an answer in JSON
_TRANSFER_SECONDS = 3600.0  # for a file: 512 MB, at 1.2 Mbit/s
_RETRIES = 5  # with the waits of `RetryPolicy`, about 15 s
_MAX_WAIT = 300.0  # seconds that a service may demand before a retry; a longer wait is left to the user
_MAX_PAGES = 1_000  # of a list: 100,000 rows, at 100 for a page
_MAX_DOWNLOAD = 256 * 1024 * 1024  # bytes: 2 million lines of metrics, one for each step


class RefusedTrainingFile(ToolwireError):
    """The service refused the training file, at the upload or when it validated the job. The message has its reason."""

    default_status = 422


class RequestTransport(Protocol):
    """A way to send requests with any method, such as `HttpTransport`."""

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        secrets: Mapping[str, str],
        body: RequestBody,
        seconds: float,
    ) -> AbstractAsyncContextManager[Reply]: ...


class ServiceKey(NamedTuple):
    """A key, or a command that prints one, and the header that carries it."""

    key: str | None
    command: KeyCommand | None
    header: str = "authorization"
    prefix: str = "Bearer "

    async def headers(self) -> dict[str, str]:
        key = self.key if self.command is None else await self.command.key()
        return {self.header: f"{self.prefix}{key}"}

    def hide(self, text: str) -> str:
        """Remove the key and anything that looks like one from a text."""
        known = [self.key, None if self.command is None else self.command.latest]
        return Redactor([secret for secret in known if secret])(text)


class FormReply(NamedTuple):
    """The status and the headers of an answer without a body that is needed."""

    status: int
    headers: Mapping[str, str]


class ServiceApi:
    """Requests to one service. `base_url` ends where its paths begin."""

    def __init__(
        self,
        base_url: str,
        credentials: ServiceKey,
        transport: RequestTransport,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.sleep = sleep
        self._credentials = credentials
        self._transport = transport
        self._policy = RetryPolicy(_RETRIES, max_delay=_MAX_WAIT)

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Object:
        """Return the answer of a GET, and retry it after transient errors."""
        found: Object = await self.repeat(lambda: self.request("GET", path, query=query))
        return found

    async def request(
        self, method: str, path: str, body: JSON = None, *, query: Mapping[str, str | int] | None = None
    ) -> Object:
        """Send one request and return its answer. Raise UpstreamError for an error, or without an answer."""
        data = b"" if body is None else to_bytes(body)
        headers = {} if body is None else {"content-type": "application/json"}
        async with self.open(method, self._url(path, query), headers, data, REQUEST_SECONDS) as reply:
            return parse_answer(await read_reply_body(reply, MAX_ANSWER))

    async def repeat(self, action: Callable[[], Awaitable[Any]]) -> Any:
        """Await a request that may be sent several times, and retry it after transient errors."""
        attempt = 0
        while True:
            try:
                return await action()
            except UpstreamError as error:
                wait = self._policy.next_delay(error.fault, attempt, float("inf"))
                if wait is None:
                    raise
            attempt += 1
            await self.sleep(wait)

    def open(self, method: str, url: str, headers: Mapping[str, str], body: RequestBody, seconds: float) -> _OpenReply:
        """Send a request with the key. The block gets a successful reply; any other raises UpstreamError."""
        return _OpenReply(self._transport, self._credentials, method, url, headers, body, seconds)

    async def send_form(self, path: str, fields: Mapping[str, str]) -> FormReply:
        """Send a form without a file, and return the head of the answer. A redirect is an answer, and is not followed."""
        form = _form_start(fields)
        boundary = form.boundary.encode()
        headers = {"content-type": f"multipart/form-data; boundary={form.boundary}"}
        body = form.data + b"--%b--\r\n" % boundary
        opened = _OpenReply(self._transport, self._credentials, "POST", self._url(path), headers, body, REQUEST_SECONDS)
        async with opened.allowing(302) as reply:
            await read_reply_body(reply, MAX_ANSWER)
            return FormReply(reply.status, dict(reply.headers))

    async def send_file(
        self, method: str, url: str, headers: Mapping[str, str], file: Path, *, around: tuple[bytes, bytes] = (b"", b"")
    ) -> Object:
        """Send a file as the body, between two texts, such as the parts of a form, and return the answer."""
        body = StreamedBody(_chunks_of(file, around), _size_of(file) + sum(map(len, around)))
        async with self.open(method, url, headers, body, _TRANSFER_SECONDS) as reply:
            return parse_answer(await read_reply_body(reply, MAX_ANSWER))

    async def put_without_key(self, url: str, file: Path) -> None:
        """Send a file to an address that contains its own permission, such as an address in another answer.

        Raise ProtocolError unless it is encrypted, or on this machine.
        """
        try:
            parse_base_url(url, insecure=False)
        except ConfigError:
            message = "the service names an address for the file that is neither https nor on this machine"
            raise ProtocolError(message, status=502) from None
        keyless = ServiceKey(None, None)
        body = StreamedBody(_chunks_of(file, (b"", b"")), _size_of(file))
        opened = _OpenReply(self._transport, keyless, "PUT", url, {}, body, _TRANSFER_SECONDS)
        async with opened as reply:
            await read_reply_body(reply, MAX_ANSWER)

    async def upload_form(self, path: str, fields: Mapping[str, str], file: Path, name: str) -> Object:
        """Send a file as `multipart/form-data` (RFC 7578), after other fields."""
        form = _form_start(fields)
        head = (
            f'--{form.boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n'
            "content-type: application/jsonl\r\n\r\n"
        )
        headers = {"content-type": f"multipart/form-data; boundary={form.boundary}"}
        around = (form.data + head.encode(), f"\r\n--{form.boundary}--\r\n".encode())
        return await self.send_file("POST", self._url(path), headers, file, around=around)

    async def download(self, path: str, file: Path) -> None:
        """Write an answer to a file, which other programs never see incomplete, and retry after transient errors."""

        async def copy() -> None:
            async with self.open("GET", self._url(path), {}, b"", _TRANSFER_SECONDS) as reply:
                size = 0
                with replacing(file) as stream:
                    while data := await reply.read():
                        size += len(data)
                        if size > _MAX_DOWNLOAD:
                            raise ProtocolError(f"{file.name} exceeds {_MAX_DOWNLOAD} bytes", status=502)
                        stream.write(data)

        await self.repeat(copy)

    def _url(self, path: str, query: Mapping[str, str | int] | None = None) -> str:
        url = path if path.startswith("http") else f"{self.base_url}{path}"
        return f"{url}?{urlencode(query)}" if query else url


class _FormStart(NamedTuple):
    """The fields of a form before its end. The boundary is random, so that no content can contain it."""

    boundary: str
    data: bytes


def _form_start(fields: Mapping[str, str]) -> _FormStart:
    boundary = f"toolwire-{os.urandom(16).hex()}"
    parts = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    )
    return _FormStart(boundary, "".join(parts).encode())


class _OpenReply:
    """A request in flight. Errors of the network and of the service become UpstreamError."""

    def __init__(
        self,
        transport: RequestTransport,
        credentials: ServiceKey,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: RequestBody,
        seconds: float,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._method = method
        self._url = url
        self._headers = headers
        self._body = body
        self._seconds = seconds
        self._allowed: tuple[int, ...] = ()

    def allowing(self, *statuses: int) -> _OpenReply:
        """Accept these statuses besides successful ones."""
        self._allowed = statuses
        return self

    async def __aenter__(self) -> Reply:
        is_keyless = self._credentials.key is None and self._credentials.command is None
        secrets = {} if is_keyless else await self._credentials.headers()
        self._inner = self._transport.send(self._method, self._url, self._headers, secrets, self._body, self._seconds)
        try:
            reply: Reply = await self._inner.__aenter__()
        except (TimeoutError, ConnectionError) as error:
            raise self._network_error(error) from None
        if 200 <= reply.status < 300 or reply.status in self._allowed:
            return reply
        try:
            data = await read_reply_body(reply, MAX_ANSWER)
        except (TimeoutError, ConnectionError, ProtocolError):
            data = b""
        finally:
            await self._inner.__aexit__(None, None, None)
        fault = read_fault(reply.status, reply.headers, data)
        raise UpstreamError(replace(fault, message=self._credentials.hide(fault.message)))

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self._inner.__aexit__(kind, error, trace)
        if isinstance(error, (TimeoutError, ConnectionError)):
            raise self._network_error(error) from None

    def _network_error(self, error: TimeoutError | ConnectionError) -> UpstreamError:
        """Return an error without the query of the URL, which may contain a permission.

        It is noted if there was no connection, so the service has not seen the request.
        """
        fault = network_fault(error, origin_of(urlsplit(self._url)))
        unsent = isinstance(error, ConnectionRefusedError)
        found = UpstreamError(replace(fault, extra={NOTE: {"unsent": unsent}}))
        found.hint = "check the connection, and continue with the same folder"
        return found


def _size_of(file: Path) -> int:
    return file.stat().st_size


async def _chunks_of(file: Path, around: tuple[bytes, bytes]) -> AsyncIterator[bytes]:
    if around[0]:
        yield around[0]
    with file.open("rb") as stream:
        while data := stream.read(_CHUNK):
            yield data
    if around[1]:
        yield around[1]


def is_unsent(error: UpstreamError) -> bool:
    """Return whether there was no connection, so that nothing was sent."""
    return bool(error.fault.extra.get(NOTE, {}).get("unsent"))


def known_file(error: UpstreamError) -> str | None:
    """Return the id of a file that exists already, from an error that names it."""
    found = error.fault.extra.get(NOTE, {}).get("file_id")
    return found if error.fault.status == 409 and type(found) is str else None


def is_certainly_unprocessed(error: UpstreamError) -> bool:
    """Return whether the service has not executed the request: it refused it, or never got it."""
    fault = error.fault
    return is_unsent(error) or (400 <= fault.status < 500 and fault.status not in (408, 409))


def retry_wait(error: UpstreamError, attempt: int) -> float:
    """Return the seconds before the attempt after number `attempt`. Raise the error if the service demands too many."""
    demanded = error.fault.retry_after
    if demanded is not None and demanded > _MAX_WAIT:
        error.hint = f"the service demands a wait of {demanded:.0f} s; then continue in the same folder"
        raise error
    return demanded or 2.0**attempt


def page_numbers(path: str) -> Iterator[int]:
    """Count the pages of a list. Raise ProtocolError after `_MAX_PAGES`: a faulty service may repeat a page forever."""
    yield from range(_MAX_PAGES)
    raise ProtocolError(f"the list {path} has more than {_MAX_PAGES} pages", status=502)
