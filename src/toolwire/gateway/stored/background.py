"""Background responses of OpenAI Responses: answered at once with their id, made meanwhile, read and cancelled by it.

A run is a request of its own, which the gateway answers as if the client had sent it without `background`, so limits, logs,
usage, state and fallbacks are the same. The store connects the two:

    start     lock the id, store the response as `in_progress`, begin the run, answer `queued`
    run       extend the lock; look for a cancellation by another process
    end       the answer replaces the stored response before the run ends; a failure is stored as `failed`
    read      the stored response. If it is in progress and its id is not locked, its process has stopped: `failed`
    cancel    store `cancelled`; the run finds it, ends its request upstream, and stores nothing any more

A client that also streams gets the events while it is connected. The run goes on without it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from logging import getLogger
from secrets import token_hex
from time import time
from urllib.parse import urlencode

from msgspec.structs import replace

from ...asgi.http_exchange import ClientGone, HeaderPairs, HttpExchange, header_pairs
from ...asgi.offload import ClientOffload, Offload
from ...asgi.request import AsgiMessage, Scope
from ...ir.errors import ToolwireError
from ...ir.events import ResponseStart
from ...ir.pointer import Object
from ...ir.text import to_bytes
from ...stream.framing import SSEDecoder
from ...stream.strict import parse_object
from ..memory import MemoryBound, MemoryReservation
from ..request.client_request import ClientRequest
from ..request.routes import INGRESSES, AnswerRequest, Route
from ..responses.records import ResponseEntry, ResponseStateError, new_digits, with_failure
from ..responses.state import RUNNING, ResponseState
from ..responses.store import StateAccess

_log = getLogger("toolwire.gateway")
_INGRESS = INGRESSES["openai_responses"]
_JSON: HeaderPairs = [(b"content-type", b"application/json")]
_POLL = 2.0  # seconds until another process's cancellation ends the run
_LEASE = 30.0  # seconds for which the id stays locked after its process has stopped
_MAX_ERROR = 64 * 1024  # bytes of a refusal
_STOPPED = ("server_error", "the gateway stopped while it made this response")
_FAILED = ("server_error", "the answer is incomplete; the gateway's log has the cause")


def is_background(client_request: ClientRequest) -> bool:
    """Check whether a request asks for a background response."""
    return b'"background"' in client_request.body and bool(client_request.document.get("background"))


async def read_current(state: ResponseState, access: StateAccess, entry: ResponseEntry) -> ResponseEntry:
    """Return a stored response as it is now: failed if the process that made it has stopped."""
    if entry.document.get("status") not in RUNNING or not await state.try_lock(access, entry.id, token_hex(16), 1.0):
        return entry
    current = await state.find_response(access, entry.id)  # it may have ended meanwhile
    if not isinstance(current, ResponseEntry) or current.document.get("status") not in RUNNING:
        return entry if not isinstance(current, ResponseEntry) else current
    return replace(current, document=with_failure(current.document, *_STOPPED))


class BackgroundRuns:
    """The runs of one process."""

    def __init__(self, answer: AnswerRequest, memory: MemoryBound, offload: Offload) -> None:
        self._answer = answer
        self._memory = memory
        self._offload = offload
        self._runs: dict[str, InnerRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self, http_exchange: HttpExchange, client_request: ClientRequest, caller: str, state: ResponseState
    ) -> None:
        """Start a run and answer: with the queued response, or with the stream as long as the client is connected.

        Raise ResponseStateError without a store, and the errors of decoding the request.
        """
        document = client_request.document
        if not state.keeps_responses or document.get("store") is False:
            hint = "leave out `background` and `store`; the gateway's operator can set `responses.store`"
            message = "a background response must be stored, and this gateway or request stores none"
            raise ResponseStateError(message, pointer="/background", hint=hint)
        memory = MemoryReservation(self._memory, caller)
        access = state.access(caller, memory, ClientOffload(self._offload, caller))
        response_id, token = f"resp_{new_digits()}", token_hex(16)
        queued = await access.offload.run(client_request.work_size, _describe, client_request, response_id)
        entry = ResponseEntry(response_id, state.now(), document={**queued, "status": "in_progress"})
        await state.try_lock(access, response_id, token, _LEASE)
        await state.save(access, response_id, entry, len(client_request.body))
        body = to_bytes({name: value for name, value in document.items() if name != "background"})
        run = InnerRequest(http_exchange, body, http_exchange if client_request.stream else None)
        self._runs[response_id] = run
        task = asyncio.ensure_future(self._run(run, entry, state, access, token, memory))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not client_request.stream:
            await http_exchange.respond(200, _JSON, to_bytes(queued))
            return
        http_exchange.watch()
        try:
            await asyncio.shield(task)
        finally:
            run.client = None
            http_exchange.unwatch()

    def cancel(self, response_id: str) -> None:
        """End a run of this process at once, if it has one with this id."""
        run = self._runs.get(response_id)
        if run is not None:
            run.is_cancelled.set()

    async def aclose(self) -> None:
        """End all runs, because the gateway stops, and store them as failed."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(
        self,
        run: InnerRequest,
        entry: ResponseEntry,
        state: ResponseState,
        access: StateAccess,
        token: str,
        memory: MemoryReservation,
    ) -> None:
        route = Route("generate", _INGRESS, entry_id=entry.id)
        watch = asyncio.ensure_future(self._watch(run, entry.id, state, access, token))
        failure: tuple[str, str] = _FAILED
        try:
            await self._answer(HttpExchange(run.scope, run.receive, run.send), run.scope, route)
            failure = run.failure or _FAILED
        except asyncio.CancelledError:
            failure = _STOPPED
            raise
        except Exception:  # noqa: BLE001  # a bug ends only this response
            _log.exception("a background response failed")
        finally:
            watch.cancel()
            del self._runs[entry.id]
            try:
                await state.fail_running(access, entry.id, *failure)
            except ToolwireError as error:
                _log.warning("a background response is not stored: %s", error)
            finally:
                memory.release()
                await state.unlock(access, entry.id, token)

    async def _watch(
        self, run: InnerRequest, response_id: str, state: ResponseState, access: StateAccess, token: str
    ) -> None:
        """Extend the lock of a run, and cancel it if another process has cancelled or deleted its response."""
        while True:
            await asyncio.sleep(_POLL)
            # Each poll has its own memory, which is freed at once: a run may last for hours.
            memory = MemoryReservation(self._memory, access.owner)
            try:
                await state.try_lock(access, response_id, token, _LEASE)
                polled = state.access(access.owner, memory, access.offload)
                current = await state.find_response(polled, response_id)
                if isinstance(current, ResponseEntry) and current.document.get("status") != "cancelled":
                    continue
            except ResponseStateError:
                pass  # deleted
            except ToolwireError as error:
                _log.warning("cannot read a background response: %s", error)
                continue
            finally:
                memory.release()
            run.is_cancelled.set()


def _describe(client_request: ClientRequest, response_id: str) -> Object:
    """Return the queued response, with the fields of the request that every response repeats."""
    request, document = client_request.request, client_request.document
    start = ResponseStart(response_id, client_request.model, int(time()), {})
    events = SSEDecoder().feed(client_request.wire.stream_encoder(request).feed(start))
    described: Object = parse_object(events[0][1])["response"]
    conversation = document.get("conversation")
    named: Object = {"conversation": {"id": conversation}} if isinstance(conversation, str) else {}
    echoed: Object = {name: document[name] for name in ("previous_response_id", "metadata") if name in document}
    return {**described, **echoed, **named, "background": True, "store": True, "status": "queued", "output": []}


class InnerRequest:
    """A request for an answer that the gateway makes itself, on behalf of another one, whose headers it has.

    `client` is a connected client that gets the answer. `body` and `status` are of the answer, as far as they are kept: a
    whole one, or the error of a refusal.
    """

    __slots__ = ("_body", "_kept", "client", "headers", "is_cancelled", "max_kept", "scope", "status")

    def __init__(
        self, http_exchange: HttpExchange, body: bytes, client: HttpExchange | None, max_kept: int = _MAX_ERROR
    ) -> None:
        headers = {**http_exchange.headers, "content-type": "application/json", "content-length": str(len(body))}
        headers.pop("x-request-id", None)
        root_path = http_exchange.root_path
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "http_version": "1.1",
            "root_path": root_path,
            "path": root_path + _INGRESS.path,
            "query_string": urlencode(http_exchange.query).encode(),  # which may have the client's key
            "headers": header_pairs(headers),
        }
        self.client = client
        self.is_cancelled = asyncio.Event()
        self.status = 0
        self.headers: HeaderPairs = []
        self.max_kept = max_kept
        self._kept = bytearray()  # a large answer arrives in a thousand pieces
        self._body = body

    async def run(self, answer: AnswerRequest, route: Route, outer: HttpExchange) -> None:
        """Make the answer for the client of an outer request, and end it when that client leaves.

        It has a task of its own, because it would take the cancellation of the outer one for the stop of the server.
        """
        answering = asyncio.ensure_future(answer(HttpExchange(self.scope, self.receive, self.send), self.scope, route))
        outer.watch()
        try:
            await asyncio.shield(answering)
        finally:
            outer.unwatch()
            self.is_cancelled.set()
            await asyncio.wait({answering})

    async def receive(self) -> AsgiMessage:
        """Receive the body, and after it the end of the connection if the response is cancelled."""
        if self._body:
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        await self.is_cancelled.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: AsgiMessage) -> None:
        """Keep an answer that is no stream, and pass every answer on to a connected client."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
        elif (self.client is None or self.status != 200) and len(self._kept) < self.max_kept:
            self._kept += message.get("body", b"")
        if self.client is not None:
            with suppress(ClientGone):
                await self._forward(self.client, message)

    @property
    def body(self) -> bytes:
        return bytes(self._kept)

    @property
    def failure(self) -> tuple[str, str] | None:
        """The code and the message of a refusal."""
        try:
            error = parse_object(self.body)["error"] if self.status != 200 else None
        except (ToolwireError, KeyError):
            return None
        return None if error is None else (str(error.get("code") or error["type"]), str(error["message"]))

    async def _forward(self, client: HttpExchange, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            await client.start(message["status"], list(message["headers"]))
            return
        if message.get("body"):
            await client.write(message["body"])
        if not message.get("more_body", False):
            await client.end()
