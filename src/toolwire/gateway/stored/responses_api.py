"""The requests about stored responses and conversations, in OpenAI's shapes.

A response that an upstream stores itself is read and deleted there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import time
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from ...asgi.http_exchange import HeaderPairs, HttpExchange
from ...asgi.offload import ClientOffload
from ...ir.errors import ProtocolError, ToolwireError
from ...ir.folding import unfold
from ...ir.pointer import JSON, Object, join
from ...ir.response import Response, Stop, UpstreamError, Usage
from ...ir.text import to_bytes
from ...net.http.transport import Reply
from ...net.model.endpoint_request import parse_or_raw, redact_secrets
from ...net.model.key_command import KeyCommandError
from ...net.model.replies import read_reply_body
from ...net.model.upstream_exchange import ERROR_LIMIT
from ...stream.strict import parse_object
from ...wire.openai_responses.content import write_summary
from ..faults import as_gateway_fault, key_fault_of, network_fault_of
from ..keys import Caller, Limiter
from ..memory import MemoryReservation, admit_document
from ..observe.request_log import RequestLogWriter
from ..request.body import estimate_tokens, is_plausible
from ..request.client_request import check_model
from ..request.dependencies import Dependencies
from ..request.reader import RequestReader
from ..request.routes import INGRESSES, AnswerRequest, Route
from ..responses.records import (
    ResponseEntry,
    ResponseStateError,
    UpstreamPin,
    input_documents,
    new_digits,
    not_found,
)
from ..responses.state import RUNNING
from ..responses.store import StateAccess
from ..routing.router import Target
from ..routing.upstreams import ConfiguredUpstream, UpstreamTransports
from .background import BackgroundRuns, InnerRequest, read_current
from .conversations_api import ConversationsApi, StateRequest, list_items_of, make_page

_JSON: HeaderPairs = [(b"content-type", b"application/json")]
_COMPACT, _GENERATE = Route("compact", INGRESSES["openai_responses"]), Route("generate", INGRESSES["openai_responses"])


class ResponsesApi:
    """The routes about stored state, on one version of the settings."""

    def __init__(
        self,
        dependencies: Dependencies,
        reader: RequestReader,
        limiter: Limiter,
        transports: UpstreamTransports,
        runs: BackgroundRuns,
        answer: AnswerRequest,
    ) -> None:
        self._dependencies = dependencies
        self._state = dependencies.responses
        self._reader = reader
        self._limiter = limiter
        self._transports = transports
        self._runs = runs
        self._answer = answer
        self._conversations = ConversationsApi(self._state)
        self._actions: dict[str, Callable[[StateRequest], Awaitable[bytes]]] = {
            **self._conversations.actions,
            "get_response": self._get_response,
            "delete_response": self._delete_response,
            "cancel_response": self._cancel_response,
            "list_input": self._list_input,
        }

    async def answer(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> None:
        """Write the answer for a route. It counts as a request of the key.

        Raise RateLimited, the errors of reading the body, and ResponseStateError if there is no such entry, or no store.
        """
        if caller.name and route.action != "compact":  # which is admitted as a request for an answer
            await self._limiter.admit(caller)
        dependencies = self._dependencies
        body, work_size = await self._reader.read_document(http_exchange, memory, dependencies.limits)
        access = self._state.access(caller.name, memory, ClientOffload(dependencies.offload, caller.name))
        if route.action == "compact":
            await self._compact(http_exchange, caller, access, memory, body, work_size)
            return
        request = StateRequest(access, route, http_exchange.query, body, work_size)
        if "conversation" in route.action or route.action.endswith(("_item", "_items")):
            self._conversations.require_store()
        await http_exchange.respond(200, _JSON, await self._actions[route.action](request))

    async def prepare(
        self,
        http_exchange: HttpExchange,
        route: Route,
        caller: Caller,
        memory: MemoryReservation,
        log_writer: RequestLogWriter,
    ) -> None:
        """Write a response without output, as a stream, whose input the next request of the same WebSocket continues.

        Everything is checked as for an answer of the model. Raise the errors of that.
        """
        dependencies, offload = self._dependencies, self._reader.open_offload(caller.name)
        client_request = await self._reader.read_request(http_exchange, route, memory, dependencies, caller, offload)
        log_writer.set_request(client_request)
        await client_request.check_caller(caller, offload)
        if caller.name:
            await self._limiter.admit(caller)
        dependencies.router.plan(client_request.model, tools=client_request.has_tools)
        await offload.run(client_request.work_size, client_request.decode)
        request = client_request.request
        encoder = client_request.wire.stream_encoder(replace(request, params=replace(request.params, store=False)))
        response = Response(
            route.ingress.answer_id(""), client_request.model, usage=Usage(0, 0), stop=Stop("stop"), created=int(time())
        )
        await http_exchange.start(200, [(b"content-type", route.ingress.framing.media_type.encode())])
        await http_exchange.write(b"".join([encoder.feed(event) for event in unfold(response)]))
        await http_exchange.end()

    async def _compact(
        self,
        http_exchange: HttpExchange,
        caller: Caller,
        access: StateAccess,
        memory: MemoryReservation,
        body: bytes,
        work_size: int,
    ) -> None:
        """Write the compacted conversation of a request, or the error of the request for its summary.

        An upstream that stores responses compacts them itself, unless the gateway stores this conversation.
        """
        document = await access.offload.run(work_size, parse_object, body)
        model = check_model(_COMPACT, document.get("model"))
        caller.check(model)
        target = self._dependencies.router.plan(model, tools=False)[0]
        previous_id = document.get("previous_response_id")
        previous = await self._state.find_previous(access, previous_id) if isinstance(previous_id, str) else None
        if target.upstream.keeps_responses and not isinstance(previous, ResponseEntry):
            compacted = await self._forward_compaction(http_exchange, target, caller, access, document, previous)
            await http_exchange.respond(200, _JSON, compacted)
            return
        earlier: list[Object] = []
        if isinstance(previous, ResponseEntry):
            earlier = list_items_of([*await self._state.load_entries(access, previous.chain), previous])
        summary = await access.offload.run(work_size, _make_summary_request, document)
        inner = InnerRequest(http_exchange, summary, None, self._dependencies.limits.answer)
        await inner.run(self._answer, _GENERATE, http_exchange)
        answer = inner.body
        memory.add(len(answer))  # its own request has freed the memory of it
        if inner.status != 200:
            headers = [(name, value) for name, value in inner.headers if name != b"content-length"]
            await http_exchange.respond(inner.status, headers, answer)
            return
        size = await admit_document(answer, self._dependencies.limits.values, access.offload, memory, status=502)
        made = await access.offload.run(size + work_size, _make_compacted, answer, earlier, document)
        await http_exchange.respond(200, _JSON, to_bytes(made))

    async def _forward_compaction(
        self,
        http_exchange: HttpExchange,
        target: Target,
        caller: Caller,
        access: StateAccess,
        document: Object,
        previous: UpstreamPin | None,
    ) -> bytes:
        """Let the upstream compact a conversation, and charge the usage. Only known fields are sent to it.

        If the client leaves, the usage is not known, and the size of the request is charged: the upstream may have begun.
        Raise ResponseStateError if another upstream stores the conversation.
        """
        kept = {name: document[name] for name in _KEPT_FIELDS if document.get(name) is not None}
        if previous is not None:
            if previous.upstream != target.upstream.name:
                raise not_found("response", str(kept["previous_response_id"]), "/previous_response_id")
            kept["previous_response_id"] = previous.last_id or kept["previous_response_id"]
        if caller.name:
            await self._limiter.admit(caller)
        sent = to_bytes({**kept, "model": target.model})
        total = estimate_tokens(sent)
        http_exchange.watch()
        try:
            data = await self._send("POST", target.upstream, "compact", access, sent)
            total = await access.offload.run(len(data), _read_total, data)
        except ToolwireError:
            total = 0
            raise
        finally:
            http_exchange.unwatch()
            if caller.name and total:
                await self._limiter.spend(caller, total)
        return data

    async def _get_response(self, request: StateRequest) -> bytes:
        """Return a response, from the store or from the upstream that stores it.

        Raise ResponseStateError if its stream is requested: only the finished response is stored.
        """
        for name in ("starting_after", "stream"):
            if request.query.get(name, "false") not in ("false", ""):
                hint = "read the finished response without it"
                message = f"{name} is not supported: the stream of a stored response cannot be resumed"
                raise ResponseStateError(message, pointer=join(name), hint=hint)
        entry = await self._state.find_response(request.access, request.entry_id)
        if isinstance(entry, UpstreamPin):
            return await self._forward("GET", entry, request)
        current = await read_current(self._state, request.access, entry)
        return await request.access.offload.run(request.access.loaded_bytes, lambda: to_bytes(current.response))

    async def _delete_response(self, request: StateRequest) -> bytes:
        entry = await self._state.find_response(request.access, request.entry_id)
        if isinstance(entry, UpstreamPin):
            deleted = await self._forward("DELETE", entry, request)
            await self._state.delete(request.access, [request.entry_id])
            return deleted
        async with request.access.lock_status(entry.id) as lock:
            await self._state.delete(request.access, [entry.id], lock)
        self._runs.cancel(entry.id)
        return to_bytes({"id": entry.id, "object": "response", "deleted": True})

    async def _cancel_response(self, request: StateRequest) -> bytes:
        """Cancel a background response, and return it; one that has ended is returned as it is."""
        entry = await self._state.find_response(request.access, request.entry_id)
        if isinstance(entry, UpstreamPin):
            return await self._forward("POST", entry, request, "/cancel")
        if not entry.document.get("background"):
            hint = "close the connection to end another response"
            raise ResponseStateError("only a background response can be cancelled", hint=hint)
        current: ResponseEntry | None = await read_current(self._state, request.access, entry)
        if current is not None and current.document.get("status") in RUNNING:
            current, size = await self._state.change_running(request.access, entry.id, _as_cancelled)
            if size:
                self._runs.cancel(entry.id)
        if current is None:  # it was deleted meanwhile
            raise not_found("response", entry.id)
        return to_bytes(current.response)

    async def _list_input(self, request: StateRequest) -> bytes:
        """List the items that a response was made from: the items of the responses before it, then its own input."""
        entry = await self._state.find_response(request.access, request.entry_id)
        if isinstance(entry, UpstreamPin):
            return await self._forward("GET", entry, request, "/input_items")
        earlier = await self._state.load_entries(request.access, entry.chain)
        items = [*list_items_of(earlier), *entry.items]
        return await request.access.offload.run(request.access.loaded_bytes, make_page, items, request.query)

    async def _forward(self, method: str, pin: UpstreamPin, request: StateRequest, path: str = "") -> bytes:
        """Send the request to the upstream that stores the response, and return its answer unchanged.

        Raise UpstreamError if that fails, and ResponseStateError (404) if the settings have no such upstream any more.
        """
        upstream = self._dependencies.router.find_upstream(pin.upstream)
        if upstream is None:
            raise not_found("response", request.entry_id)
        path = quote(pin.last_id or request.entry_id, safe="") + path
        public = {name: value for name, value in request.query.items() if name != "key"}  # which is the client's
        return await self._send(method, upstream, path, request.access, query=urlencode(public))

    async def _send(
        self,
        method: str,
        upstream: ConfiguredUpstream,
        path: str,
        access: StateAccess,
        body: bytes = b"",
        query: str = "",
    ) -> bytes:
        """Send a request to a path below the responses of an upstream, and reserve memory for its answer.

        Raise UpstreamError if it fails.
        """
        endpoint = upstream.endpoint("any")
        base = urlsplit(endpoint.url(stream=False))
        query = "&".join(filter(None, (base.query, query)))
        url = urlunsplit((base.scheme, base.netloc, f"{base.path}/{path}", query, ""))
        try:
            secrets = await endpoint.authorise(method, url, endpoint.headers, body)
            transport = self._transports.of(upstream.name, upstream.row)
            async with transport.send(method, url, endpoint.headers, secrets, body, upstream.row.timeout) as reply:
                if 200 <= reply.status < 300:
                    return await read_reply_body(reply, self._dependencies.limits.answer, access.reserve)
                error = parse_or_raw(await _read_error(reply, access))
                fault = endpoint.wire.decode_error(reply.status, error, dict(reply.headers))
        except (TimeoutError, ConnectionError) as error:
            fault = network_fault_of(error, upstream.name, endpoint.origin)
        except KeyCommandError as error:
            fault = key_fault_of(error, upstream.name)
        raise UpstreamError(as_gateway_fault(redact_secrets(endpoint.known_secrets, fault), upstream.name))


async def _read_error(reply: Reply, access: StateAccess) -> bytes:
    """Return the body of an error, or nothing if it is too large or incomplete: the status is enough."""
    try:
        return await read_reply_body(reply, ERROR_LIMIT, access.reserve)
    except (ProtocolError, TimeoutError, ConnectionError):
        return b""


def _as_cancelled(entry: ResponseEntry) -> ResponseEntry:
    return replace(entry, document={**entry.document, "status": "cancelled"})


# Compaction: a conversation as the user's messages and a summary.
#
# The model of the request writes the summary, in a request of its own with the whole conversation. The summary is in an item
# like OpenAI's, whose content only the gateway reads; it is a message of the user for the model
# (`wire.openai_responses.content.read_summary`).


_KEPT_FIELDS = ("model", "input", "instructions", "previous_response_id", "prompt_cache_key", "service_tier")
_INSTRUCTION = (
    "Summarise this conversation for the model that will continue it, and will see only your summary and the messages of "
    "the user. State the task, the decisions with their reasons, the results of tools that still matter with exact names, "
    "paths, numbers and ids, the current state, and the next steps. Write only the summary."
)


def _make_summary_request(document: Object) -> bytes:
    """Return the body of the request for a summary. Raise ProtocolError if there is nothing to summarise."""
    given = document.get("input") or []
    if not given and not document.get("previous_response_id"):
        raise ProtocolError(
            "there is nothing to compact", pointer="/input", hint="send `input` or previous_response_id"
        )
    items: list[JSON] = [{"role": "user", "content": given}] if isinstance(given, str) else [*_as_list(given)]
    kept = {name: document[name] for name in _KEPT_FIELDS if document.get(name) is not None}
    question = {"role": "user", "content": _INSTRUCTION}
    return to_bytes({**kept, "input": [*items, question], "store": False, "stream": False})


def _make_compacted(answer: bytes, earlier: list[Object], document: Object) -> Object:
    """Return the compacted conversation: the user's messages of `earlier` and of the request, then the summary.

    `answer` is the response with the summary. Raise ProtocolError if it has none.
    """
    response = parse_object(answer)
    summary = "".join(
        [
            part.get("text") or ""
            for item in response.get("output") or []
            if item.get("type") == "message"
            for part in item.get("content") or []
        ]
    )
    if not summary.strip() or response.get("status") != "completed":
        raise ProtocolError("the model wrote no complete summary", hint="retry, or choose another model", status=502)
    digits = new_digits()
    given = document.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _as_list(given)
    messages = [item for item in (*earlier, *items) if isinstance(item, dict) and item.get("role") == "user"]
    return {
        "id": f"resp_{digits}",
        "object": "response.compaction",
        "created_at": int(time()),
        "output": [*input_documents(messages, digits), write_summary(summary, f"cmp_{digits}_0")],
        "usage": response.get("usage"),
    }


def _as_list(value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise ProtocolError("expected a string or an array of items", pointer="/input")
    return value


class _ChargedUsage(msgspec.Struct):
    total_tokens: int = 0


class _Charge(msgspec.Struct):
    """The tokens of a compaction; everything else is skipped."""

    usage: _ChargedUsage | None = None


def _read_total(data: bytes) -> int:
    """Return the tokens of a compaction, or 0 without a plausible number: the client gets its answer all the same."""
    try:
        usage = msgspec.json.decode(data, type=_Charge).usage
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    return usage.total_tokens if usage is not None and is_plausible(Usage(usage.total_tokens, 0)) else 0
