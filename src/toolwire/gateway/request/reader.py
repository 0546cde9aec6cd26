"""Read the bodies of clients within the limits on their size, their values and the memory of all requests.

A request that all of its targets get unchanged is not read whole: its body is sent on while it arrives.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ...asgi.admission import Admission
from ...asgi.http_exchange import HttpExchange
from ...asgi.offload import LARGE, ClientOffload, Offload
from ...bridge.conversation.reasoning_envelope import ENVELOPE_WIRES
from ...ir.errors import ProtocolError, ToolwireError
from ...ir.request import Request
from ...net.model.translation_cache import TranslationCache
from ..config.settings import LimitsRow
from ..faults import Overloaded
from ..hosted_tools import may_need_services
from ..keys import Caller
from ..memory import SMALL_DOCUMENT, MemoryReservation, admit_document, admit_request, admit_small_document
from ..routing.router import Target
from .body import ClientBody
from .client_request import ClientRequest, check_model
from .dependencies import Dependencies
from .field_scan import CountedObjects
from .routes import Route
from .transformed import change_body

# A request whose body is sent on while it arrives: only its first fields are known.


class StreamedRequest(ClientRequest):
    """A request that is passed through without being held.

    Whether the answer is a stream is known from the path, or else from the upstream's reply.
    """

    has_envelopes = False  # its pieces are searched before they are sent on

    def __init__(self, route: Route, upload: ClientBody, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        self._read_head(route, headers, query)
        self.upload = upload
        self.own_work = 0  # nothing is decoded
        self.wire = route.ingress.codec_for(headers)
        self.body = b""
        self.body_model = upload.model
        self.model = check_model(route, route.model or upload.model)
        self.stream = route.stream is not False
        self.has_tools = True  # perhaps

    @property
    def request(self) -> Request:
        """Raise ProtocolError: the request is not held."""
        raise ProtocolError("the request is not held")

    def may_have_calls(self) -> bool:
        """Return False: no stored turn can be restored in it."""
        return False


def open_streamed_request(
    dependencies: Dependencies,
    route: Route,
    client_body: ClientBody,
    headers: Mapping[str, str],
    query: Mapping[str, str],
) -> StreamedRequest | None:
    """Return the request if all of its targets get the same bytes as it arrives, or None if it must be read whole.

    Stored turns and answers, the gateway's tools and a cache need the whole body.
    """
    model = route.model or client_body.model
    if (
        not model
        or route.ingress.stores_responses
        or route.ingress.is_invoke  # its body is rewritten
        or dependencies.turn_store.has_any
        or dependencies.runner_for(model) is not None
    ):
        return None
    try:
        targets = dependencies.router.plan(model, tools=True)
        renamed = targets[0].endpoint.renamed_fields
        if (
            any(len(new) > len(old) for old, new in renamed.items())  # names of a streamed body cannot grow
            or not all(_takes_bytes(target, route.ingress.wire, renamed, dependencies) for target in targets)
            or not client_body.may_stream(
                renamed,
                may_have_envelopes=route.ingress.wire in ENVELOPE_WIRES,
                counted=_count_tools(targets, route),
            )
        ):
            return None
        return StreamedRequest(route, client_body, headers, query)
    except ToolwireError:
        return None  # the same error is raised after the body was read


def _count_tools(targets: Sequence[Target], route: Route) -> CountedObjects | None:
    """Return the tools to count in the body: no target may get more than it accepts."""
    limits = [target.max_tools for target in targets if target.max_tools is not None]
    return CountedObjects("tools", route.ingress.tool_depth, min(limits)) if limits else None


def _takes_bytes(target: Target, wire: str, renamed: Mapping[str, str], dependencies: Dependencies) -> bool:
    return (
        target.kept_wire == wire
        and target.row.tools
        and target.endpoint.renamed_fields == renamed
        and target.endpoint.signing is None  # a signature covers the whole body
        and not target.row.cache
        and not target.refused_media  # images are searched for
        and not may_need_services(dependencies.hosted, target.endpoint.wire, target.capabilities)
    )


_READ_AT_ONCE = 512 * 1024  # bytes of a request whose fields are found on the event loop; not measured apart


class RequestReader:
    """Reads requests for a model, and other documents. `may_stream`: no sink needs the body of a large request."""

    __slots__ = ("_admission", "_may_stream", "_offload", "_translations")

    def __init__(
        self, offload: Offload, admission: Admission, translations: TranslationCache, *, may_stream: bool
    ) -> None:
        self._offload = offload
        self._admission = admission
        self._translations = translations
        self._may_stream = may_stream

    def open_offload(self, client: str) -> ClientOffload:
        """Return the threads for a new request of a client. They raise Overloaded if the first would be too late."""
        return ClientOffload(self._offload, client, self.refuse_late)

    def refuse_late(self) -> NoReturn:
        """Count the refusal of a request that waits too long for a thread, and raise Overloaded."""
        self._admission.refuse_late()
        raise Overloaded

    async def read_request(
        self,
        http_exchange: HttpExchange,
        route: Route,
        memory: MemoryReservation,
        dependencies: Dependencies,
        caller: Caller,
        offload: ClientOffload,
    ) -> ClientRequest:
        """Read a request, or only the beginning of a large request that its targets get as it is.

        Memory is reserved for it. Raise the errors of its size, time and memory, and of `ClientRequest`.
        """
        limits, headers, query = dependencies.limits, http_exchange.headers, http_exchange.query
        if "content-encoding" in headers or route.path_model:
            change_body(http_exchange, route.path_model, limits.body)
        length = http_exchange.declared_length
        if 0 < length <= SMALL_DOCUMENT and length <= limits.stream_body and length <= limits.body:
            arrived = http_exchange.take_body()
            if arrived is not None:  # nothing to await: this saves a coroutine and a timer
                body = arrived.removeprefix(BOM_UTF8)
                size = admit_small_document(body, memory, received=len(arrived))
                return ClientRequest(route, route.ingress.codec_for(headers), body, headers, query, size)
        is_long = limits.stream_body < length <= limits.body
        if is_long and self._may_stream and route.action == "generate":
            client_body = ClientBody(http_exchange, limits, memory, caller)
            await client_body.read_start(needs_model=route.model is None)
            streamed = open_streamed_request(dependencies, route, client_body, headers, query)
            if streamed is not None:
                return streamed
            return await self.read_whole_request(client_body, http_exchange, route, memory, dependencies, offload)
        body = await http_exchange.read_body(limits.body, limits.slow_client, memory.add)
        return await self._open_request(body, http_exchange, route, memory, dependencies, offload)

    async def read_whole_request(
        self,
        client_body: ClientBody,
        http_exchange: HttpExchange,
        route: Route,
        memory: MemoryReservation,
        dependencies: Dependencies,
        offload: ClientOffload,
    ) -> ClientRequest:
        """Read the rest of a body whose beginning was read, or even sent on, and return its request."""
        body = await client_body.read_whole()
        return await self._open_request(body, http_exchange, route, memory, dependencies, offload)

    async def _open_request(
        self,
        body: bytes,
        http_exchange: HttpExchange,
        route: Route,
        memory: MemoryReservation,
        dependencies: Dependencies,
        offload: ClientOffload,
    ) -> ClientRequest:
        """Return the request of a whole body, in a thread if it is large. Reserve the memory for parsing it.

        The first messages of a large body may be known from an earlier request.
        """
        limits, headers, query = dependencies.limits, http_exchange.headers, http_exchange.query
        body = body.removeprefix(BOM_UTF8)  # an upstream may not accept the byte order mark
        wire = route.ingress.codec_for(headers)
        if len(body) <= SMALL_DOCUMENT:
            return ClientRequest(route, wire, body, headers, query, admit_small_document(body, memory))
        reading = self._translations.open(memory.client, wire, body)
        size = await admit_request(reading, limits.values, offload, memory)
        if size <= LARGE and len(reading.new_text) <= _READ_AT_ONCE:
            return ClientRequest(route, wire, body, headers, query, size, reading)
        work = max(size, len(reading.new_text))
        return await offload.run(work, ClientRequest, route, wire, body, headers, query, size, reading)

    async def read_document(
        self, http_exchange: HttpExchange, memory: MemoryReservation, limits: LimitsRow
    ) -> tuple[bytes, int]:
        """Read a body, and reserve the memory for parsing it. Return it with the size of the work that it makes."""
        if "content-encoding" in http_exchange.headers:
            change_body(http_exchange, "", limits.body)
        return await self.admit(
            await http_exchange.read_body(limits.body, limits.slow_client, memory.add), memory, limits
        )

    async def admit(self, body: bytes, memory: MemoryReservation, limits: LimitsRow) -> tuple[bytes, int]:
        """Reserve the memory for parsing a body. Return it with the size of the work that it makes."""
        size = await admit_document(body, limits.values, self.open_offload(memory.client), memory)
        return body, size
