"""Executable tools from an OpenAPI document.

    tools = toolbox("petstore.json", base_url="https://api.example.com/v1", auth="${PETSTORE_TOKEN}")
    agent = Agent(model, tools)

Requests go to the host of `base_url` only. Redirects are not followed, references to other documents are not fetched,
and credentials are neither in schemas nor in results.
"""

from __future__ import annotations

import os
from asyncio import to_thread
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from urllib.parse import SplitResult
from uuid import uuid4

from msgspec.structs import replace

from ..ir.errors import ConfigError, EncodeError, SchemaError
from ..ir.parts import Media
from ..ir.pointer import JSON, Object
from ..ir.terminal import neutralise_line
from ..net.http.client import HttpTransport
from ..net.http.head import expand_headers, origin_of, parse_base_url
from ..net.http.transport import Reply
from ..run.calls.context import ToolError, Transient, current_call
from ..run.tools.function_tool import Options
from ..run.tools.toolbox import Entry, Toolbox
from .api_tools import ApiTool, OperationProblem, OperationRequest
from .document import load_document
from .operations import check_path, document_servers, read_operations
from .responses import ApiResponse, failure, result
from .security import ApiCredentials, AppliedCredentials, Auth, SecretFilter

_ACCEPT = "application/json, text/*;q=0.8, image/*;q=0.7, */*;q=0.5"
_MAX_ERROR = 64 * 1024  # bytes of an error's body; it is shortened to 2,000 characters for the model
_LARGE_BODY = 256 * 1024  # bytes; the conversion of a larger body would delay the event loop
_GRACE = 5.0  # seconds; the request's timeout ends the call before the runner's


class RequestSender(Protocol):
    """A transport with all methods: `toolwire.net.HttpTransport`, or one like it."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]: ...

    async def aclose(self) -> None: ...


class ApiToolbox(Toolbox):
    """The tools of a document. `problems`: the operations that are not offered. Close it after use, or use `async with`."""

    def __init__(
        self, entries: Sequence[Entry], problems: tuple[OperationProblem, ...], transports: Sequence[RequestSender]
    ) -> None:
        super().__init__(*entries)
        self.problems = problems
        self._transports = transports

    async def __aenter__(self) -> ApiToolbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections."""
        for transport in self._transports:
            await transport.aclose()


def toolbox(
    document: Object | str | os.PathLike[str],
    *,
    base_url: str | None = None,
    auth: Auth | None = None,
    tags: Sequence[str] = (),
    operations: Sequence[str] | Callable[[ApiTool], bool] = (),
    headers: Mapping[str, str] | None = None,
    # Seconds; half of the default of other tools: an API that takes longer usually has another operation for it.
    timeout: float = 30.0,
    # Bytes; results are shortened to 64 KiB of text, and the rest is stored for `read_output`.
    max_response: int = 4 * 1024 * 1024,
    trusted: bool = False,
    trust_servers: bool = False,
    insecure: bool = False,
    transport: RequestSender | None = None,
    environment: Mapping[str, str] | None = None,
) -> ApiToolbox:
    """Return executable tools for the operations of a document: a file in JSON or YAML, or an object.

    `base_url` is required, unless `trust_servers` is set and the document has an absolute server URL with https.
    `auth` is the credential of the only security scheme, or a mapping from scheme names; see docs/openapi.md. `tags`
    and `operations` select operations. `headers` are sent with every request; `${NAME}` is an environment variable.
    `timeout` is in seconds; of a response, `max_response` bytes are read. `trusted`: results contain no third-party
    instructions. `insecure` permits http to other machines. Raise ConfigError for invalid options, and SchemaError for
    a document that cannot be read; operations that cannot be offered are listed in `problems`.
    """
    if not timeout > 0 or max_response <= 0:
        raise ConfigError(f"timeout and max_response must be positive, got {timeout} and {max_response}")
    environment = os.environ if environment is None else environment
    loaded = load_document(document)
    # output schemas are not declared: servers and their documents differ too often to refuse results
    listed = read_operations(loaded, tags=tags, operations=operations, headers=tuple(headers or ()), outputs=False)
    base = parse_base_url(base_url or _server_url(loaded, trust_servers=trust_servers), insecure=insecure)
    if base.query:
        raise ConfigError("base_url must not contain a query")
    custom = expand_headers(headers or {}, environment, "authorization")
    credentials = ApiCredentials(auth, listed.schemes, environment)
    # a write is never sent on a reused connection: if the server closed it meanwhile, the outcome would be unknown
    reader = transport or HttpTransport(environment=environment)
    writer = transport or HttpTransport(environment=environment, resends=False, reuse=False)
    client = _ApiClient(credentials, {**custom.literal}, custom.secret, timeout, max_response)
    problems = list(listed.problems)
    entries: list[Entry] = []
    options = Options(timeout=timeout + _GRACE, untrusted=not trusted, resource=origin_of(base))
    for tool in listed.tools:
        try:
            prefix = _prefix(base, tool.server, trust_servers=trust_servers)
        except (ConfigError, SchemaError) as error:
            problems.append(OperationProblem(tool.operation, str(error)))
            continue
        sender = reader if tool.effect == "read" else writer
        own_options = replace(options, preview=_preview_function(tool, prefix))
        origin = f"openapi:{prefix}:{tool.operation}"
        entries.append(Entry(tool, client.function(tool, prefix, sender), own_options, origin))
    return ApiToolbox(entries, tuple(problems), (reader,) if reader is writer else (reader, writer))


def _server_url(document: Object, *, trust_servers: bool) -> str:
    """Return the document's first server URL with https if the caller trusts it; else raise ConfigError."""
    urls = document_servers(document)
    url = next((url for url in urls if url.startswith("https://")), None)
    if url is not None and trust_servers:
        return url
    if url is not None:
        shown = neutralise_line(url[:200])
        hint = f"pass trust_servers=True to use {shown}, the server in the document, or pass base_url=…"
    else:
        hint = 'pass the URL of the API: base_url="https://api.example.com"'
        if urls:
            hint += (
                f"; trust_servers=True uses only https servers, and the document has {neutralise_line(urls[0][:200])}"
            )
    raise ConfigError("base_url is missing", hint=hint)


def _prefix(base: SplitResult, server: str | None, *, trust_servers: bool) -> str:
    """Return the URL before the path of an operation; ConfigError or SchemaError if its server is not below `base`.

    The operator gives a credential to the API at `base`. The document is untrusted, and must not choose another API for it.
    """
    if server is None:
        return origin_of(base) + base.path.rstrip("/")
    if server.startswith("/") and not server.startswith("//"):
        own = parse_base_url(origin_of(base) + server, insecure=True)
    else:
        own = parse_base_url(server, insecure=True)
    if origin_of(own) != origin_of(base) or own.query:
        raise ConfigError("the operation has a server on another host than base_url")
    check_path(own.path or "/")
    if not trust_servers and not f"{own.path}/".startswith(base.path.rstrip("/") + "/"):
        hint = "pass trust_servers=True if the document may choose the path"
        raise ConfigError("the operation has a server outside the path of base_url", hint=hint)
    return origin_of(own) + own.path.rstrip("/")


def _preview_function(tool: ApiTool, prefix: str) -> Callable[..., str]:
    """Return the function that describes the request of a call in a dry run, without credentials."""

    def preview(**arguments: JSON) -> str:
        request = tool.request(arguments)
        url = prefix + request.path + (f"?{request.query}" if request.query else "")
        size = f", {len(request.body)} bytes of {request.headers['content-type']}" if request.body else ""
        return f"{request.method} {url}{size}"

    return preview


class _ApiClient:
    """Sends the requests of operations."""

    def __init__(
        self,
        credentials: ApiCredentials,
        headers: Mapping[str, str],
        secret_headers: Mapping[str, str],
        timeout: float,
        max_response: int,
    ) -> None:
        self._credentials = credentials
        self._headers = headers
        self._secret_headers = secret_headers
        self._timeout = timeout
        self._max_response = max_response

    def function(
        self, tool: ApiTool, prefix: str, sender: RequestSender
    ) -> Callable[..., Coroutine[Any, Any, JSON | Media]]:
        """Return the function of a tool. Its parameters are the schema's, with any name."""

        async def call_operation(**arguments: JSON) -> JSON | Media:
            return await self._call(tool, prefix, sender, arguments)

        call_operation.__name__ = tool.name
        return call_operation

    async def _call(self, tool: ApiTool, prefix: str, sender: RequestSender, arguments: Object) -> JSON | Media:
        """Send one request and convert its response.

        Arguments that cannot be encoded and error responses raise ToolError; temporary failures raise Transient.
        """
        try:
            request = tool.request(arguments)
        except EncodeError as error:
            raise ToolError(f"Nothing was sent: {error}") from None
        applied = await self._credentials.resolve(tool.security)
        clean = SecretFilter((*applied.secrets, *self._secret_headers.values()))
        response = await self._exchange(tool, prefix, sender, request, applied, clean)
        if 200 <= response.status < 300:
            if len(response.body) > _LARGE_BODY:
                return await to_thread(result, response, clean)
            return result(response, clean)
        raise failure(tool.operation, response, clean, note=_credentials_note(tool, applied)) from None

    async def _exchange(
        self,
        tool: ApiTool,
        prefix: str,
        sender: RequestSender,
        request: OperationRequest,
        applied: AppliedCredentials,
        clean: SecretFilter,
    ) -> ApiResponse:
        """Send the request with its credentials, and read the response within the limits.

        Network errors raise Transient, with `before_effect` if there was no connection: nothing was sent then.
        """
        query = "&".join(text for text in (request.query, applied.query) if text)
        url = prefix + request.path + (f"?{query}" if query else "")
        secrets = {**self._secret_headers, **{name.lower(): value for name, value in applied.headers.items()}}
        cookies = "; ".join(text for text in (request.cookies, applied.cookies) if text)
        if cookies:
            secrets["cookie"] = cookies
        headers = {"accept": _ACCEPT, **request.headers, **self._headers, **_key_header(tool)}
        try:
            async with sender.send(request.method, url, headers, secrets, request.body, self._timeout) as reply:
                return await self._read(reply)
        except ConnectionRefusedError as error:
            raise Transient(clean(f"{tool.operation}: no connection: {error}"), before_effect=True) from None
        except TimeoutError:
            raise Transient(f"{tool.operation}: no complete response within {self._timeout:g} seconds") from None
        except ConnectionError as error:
            raise Transient(clean(f"{tool.operation}: the connection failed: {error}")) from None

    async def _read(self, reply: Reply) -> ApiResponse:
        """Read the response up to the limit. The rest of a larger one is not read."""
        limit = self._max_response if 200 <= reply.status < 300 else _MAX_ERROR
        pieces, size = [], 0
        while size <= limit and (data := await reply.read()):
            pieces.append(data)
            size += len(data)
        return ApiResponse(reply.status, reply.headers, b"".join(pieces)[:limit], size > limit)


def _key_header(tool: ApiTool) -> dict[str, str]:
    """Return the idempotency key of the call, for operations that are not reads.

    Without a store, a call has none and gets a random one here. The context belongs to the call and not to one attempt,
    so a retry sends the same key.
    """
    if tool.effect == "read":
        return {}
    context = current_call()
    if context.idempotency_key is None:
        context.idempotency_key = str(uuid4())
    return context.headers


def _credentials_note(tool: ApiTool, applied: AppliedCredentials) -> str:
    """Return a note for the operator if the document requires credentials and none were sent. Return "" otherwise."""
    if applied.secrets or not tool.security:
        return ""
    names = " or ".join(" + ".join(names) for names in tool.security if names)
    return f"No credentials were sent; the operator has to configure auth for {names[:200]}." if names else ""
