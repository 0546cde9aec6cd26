"""Answer requests that need no upstream: the models, the metrics, the version, and token counts."""

from __future__ import annotations

from collections.abc import Callable
from time import time

from msgspec.structs import replace

from ..asgi.access import RequestRefused
from ..asgi.http_exchange import HeaderPairs, HttpExchange
from ..asgi.offload import ClientOffload
from ..ir.errors import ProtocolError, ToolwireError
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.text import to_bytes
from ..stream.strict import parse_object
from ..wire.models.lists import ListedModel, model_entry, model_list, ollama_description
from ..wire.protocol import Wire
from .keys import ANONYMOUS, Caller, Limiter
from .memory import MemoryReservation
from .request.client_request import ClientRequest
from .request.dependencies import Dependencies, open_response
from .request.openapi_document import openapi_document
from .request.reader import RequestReader
from .request.routes import VERSION, Route
from .retrieval.tool_ranker import ToolRanker
from .routing.router import Router

# The part of a request whose tokens are counted.
#
# Clients shorten their conversation by this number, so tools that are not offered must not count.


async def find_counted_body(
    client_request: ClientRequest, router: Router, ranker: ToolRanker, client: str, offload: ClientOffload
) -> bytes:
    """Return the client's body, with its stored conversation, or with the selected tools if the model has `retrieve`.

    A request that cannot be decoded or routed is returned as it is.
    """
    try:
        target = router.plan(client_request.model, tools=client_request.has_tools)[0]
        if client_request.is_rebuilt:
            return await offload.run(client_request.work_size, _encode, client_request.wire, client_request.request)
        if target.row.retrieval is None or not client_request.has_tools:
            return client_request.body
        request = await offload.run(client_request.work_size, lambda: client_request.request)
        offer = await ranker.open_offer(request, target.row.retrieval, client, offload, client_request.work_size)
        if offer is None:
            return client_request.body
        return await offload.run(
            client_request.work_size, _encode, client_request.wire, replace(request, tools=offer.tools)
        )
    except ToolwireError:
        return client_request.body  # an estimate is possible for every body


def _encode(wire: Wire, request: Request) -> bytes:
    return to_bytes(wire.encode_request(request)[0])


_JSON: HeaderPairs = [(b"content-type", b"application/json")]
_METRICS: HeaderPairs = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
_NO_METRICS = "its operator can start it with `toolwire serve`, or pass `metrics` to Gateway"
_TOKENIZER_LIMIT = 64 * 1024  # bytes, for which a tokenizer takes tens of milliseconds
_DAY = 24 * 3600  # seconds


class MetadataApi:
    """The routes about models and the gateway itself, on one version of the settings."""

    def __init__(
        self,
        dependencies: Dependencies,
        reader: RequestReader,
        limiter: Limiter,
        metrics: Callable[[], bytes] | None,
        has_mcp: bool,
    ) -> None:
        self._dependencies = dependencies
        self._reader = reader
        self._limiter = limiter
        self._metrics = metrics
        self._has_mcp = has_mcp
        self._created = int(time()) // _DAY * _DAY  # of listed models: the day of the settings, equal in all workers

    async def answer(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> None:
        """Write the answer for a route: a token count, the version, loaded models, the list, one model, or OpenAPI."""
        if route.action == "openapi":
            root_path = http_exchange.root_path
            document = openapi_document(
                requires_key=caller is not ANONYMOUS, has_mcp=self._has_mcp, root_path=root_path
            )
            await http_exchange.respond(200, _JSON, document)
            return
        if route.action == "count":
            count = await self._count_tokens(http_exchange, route, caller, memory)
            body: Object = {**dict(route.ingress.count_fields), route.ingress.count_field: count}
        elif route.action == "version":
            body = {"version": VERSION}
        elif route.action == "processes":
            body = {"models": []}  # models in this process's memory: clients need not load or unload any
        elif route.action == "models":
            names = [name for name in self._dependencies.router.names if caller.may_use(name)]
            body = model_list(route.ingress.wire, [self._describe(name) for name in names], http_exchange.query)
        else:
            body = await self._find_model_entry(http_exchange, route, caller, memory)
        await http_exchange.respond(200, _JSON, to_bytes(body))

    async def write_state(self, http_exchange: HttpExchange, route: Route, *, is_draining: bool) -> None:
        """Write the answer to a probe of operators."""
        if route.action == "alive":
            await http_exchange.respond(200, _JSON, b'{"status":"ok"}')
        elif is_draining:
            await http_exchange.respond(503, _JSON, b'{"status":"draining"}')
        else:
            await http_exchange.respond(200, _JSON, b'{"status":"ready"}')

    async def write_metrics(self, http_exchange: HttpExchange) -> None:
        if self._metrics is None:
            raise RequestRefused("this gateway has no metrics", hint=_NO_METRICS, status=404)
        await http_exchange.respond(200, _METRICS, self._metrics())

    async def _count_tokens(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> int:
        """Read a request and estimate its tokens. It counts as a request of its key.

        Raise the errors of reading, of a model that the key does not allow, and RateLimited.
        """
        dependencies, offload = self._dependencies, self._reader.open_offload(caller.name)
        client_request = await self._reader.read_request(http_exchange, route, memory, dependencies, caller, offload)
        await client_request.check_caller(caller, offload)
        if caller.name:
            await self._limiter.admit(caller)
        if route.ingress.stores_responses:
            await open_response(client_request, caller, memory, dependencies, offload)
        try:
            counted = await find_counted_body(
                client_request, dependencies.router, dependencies.ranker, caller.name, offload
            )
        finally:
            if client_request.pending_response is not None:
                await dependencies.responses.close_response(client_request.pending_response)
        return _estimate_tokens(counted)

    async def _find_model_entry(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> Object:
        """Describe one model. Ollama's clients name it in the body, all others in the path.

        Raise RequestRefused if the key does not allow it, and UnknownModel if no upstream has it.
        """
        dependencies, name = self._dependencies, route.model or ""
        if route.ingress.wire == "ollama":
            data, size = await self._reader.read_document(http_exchange, memory, dependencies.limits)
            document = await dependencies.offload.run(memory.client, size, parse_object, data)
            requested_model: JSON = document.get("model", document.get("name"))
            name = requested_model if isinstance(requested_model, str) else ""
        caller.check(name)
        target = dependencies.router.first_target(name)
        if target.upstream.context_sizes is not None:
            await target.upstream.context_sizes.refresh(target.endpoint, target.upstream.transport)
        described = self._describe(name)
        return (
            ollama_description(described)
            if route.ingress.wire == "ollama"
            else model_entry(route.ingress.wire, described)
        )

    def _describe(self, name: str) -> ListedModel:
        """Return a model with the facts about its first target. Raise UnknownModel if no upstream has it."""
        target = self._dependencies.router.first_target(name)
        capabilities = replace(target.capabilities, window=target.listed_window)
        if target.row.vision is not None:
            capabilities = replace(capabilities, media=None)  # clients may send images, which are described
        return ListedModel(name, self._created, capabilities, target.row.tools)


def _estimate_tokens(body: bytes) -> int:
    """Estimate tokens without the provider's tokenizer, and for a large body from its size only.

    Raise ProtocolError if a small body is not UTF-8.
    """
    if len(body) > _TOKENIZER_LIMIT:
        return len(body) // 4
    from ..audit.tokens import count_tokens

    try:
        return count_tokens(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ProtocolError("the body is not UTF-8", hint=f"the byte at offset {error.start} is invalid") from None
