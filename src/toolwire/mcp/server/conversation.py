"""The conversation with one client: perform the actions of the protocol, send questions, stop cancelled requests.

Transports pass in messages (`receive`) and a function that writes messages (`emit`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from ...ir.pointer import Object
from ...run.calls.context import ToolError
from ..protocol.rpc import (
    INVALID_REQUEST,
    Failure,
    Notification,
    RequestId,
    Result,
    RpcError,
    RpcMessage,
    RpcRequest,
    failure_from,
    is_batch,
    read,
    read_batch,
    write,
    write_batch,
)
from .protocol import (
    CancelRequest,
    OpenSubscription,
    PeerAction,
    ResolveReply,
    SendMessage,
    ServeRequest,
    ServerProtocol,
)
from .request_context import Listener, RequestContext, SendInputRequest
from .request_log import RequestRecord
from .server import Server

Emit: TypeAlias = Callable[[RpcMessage], None]
_LISTS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


def stateless_exchange(
    work: ServeRequest, emit: Emit, principal: str = "", *, is_remote: bool = False
) -> RequestContext:
    """Make the context of a stateless request, whose `_meta` describes the client. It cannot send questions."""
    return RequestContext(
        work.meta,
        work.version,
        emit,
        client=work.meta.client,
        capabilities=work.meta.capabilities,
        log_level=work.meta.log_level,
        principal=principal,
        is_remote=is_remote,
    )


def make_listener(listen: OpenSubscription, emit: Emit) -> Listener:
    """Make a listener that tags each notification with the id of its subscription."""
    lists = frozenset(_LISTS[key] for key in listen.notifications if key in _LISTS)
    uris = frozenset(listen.notifications.get("resourceSubscriptions", ()))
    return Listener(lambda notification: emit(listen.tag(notification)), lists, lambda: uris)


def _client_gone_error() -> ToolError:
    return ToolError("The client disconnected without answering.")


class Conversation:
    """`emit` writes messages that belong to no request. Running requests are kept by id, to be cancelled."""

    is_remote = False  # the client is connected over HTTP

    def __init__(self, server: Server, emit: Emit, principal: str = "") -> None:
        self.server = server
        self.peer = ServerProtocol(server.catalog)
        self.principal = principal
        self._emit = emit
        self._tasks: dict[object, asyncio.Task[None]] = {}  # by the id of their request
        self._subscriptions: dict[RequestId, tuple[OpenSubscription, Listener]] = {}
        self._pending_replies: dict[RequestId, asyncio.Future[Object]] = {}
        self._sent_requests = 0  # counts the questions to the client, to number them
        self._closed = False
        every = frozenset(_LISTS.values())
        self._listener = Listener(self._notify, every, lambda: self.peer.subscribed_uris)
        server.listeners.add(self._listener)

    @property
    def busy(self) -> int:
        """The number of requests in flight, or 0 while a request waits for an answer from the client."""
        return 0 if self._pending_replies else len(self._tasks)

    def _notify(self, notification: Notification) -> None:
        if self.peer.initialize_params is not None:
            self._emit(notification)

    def receive(self, message: RpcMessage) -> None:
        """Process a message. Answers go to `emit` in the order in which they complete."""
        emit = self._emit
        if isinstance(message, RpcRequest) and RequestRecord.is_enabled():
            record = RequestRecord(with_arguments=self.server.log_arguments)
            record.add_message(message)
            record.add_client(self.client)
            emit = record.watch(message, emit)
        self._perform_action(self.peer.receive(message), emit)

    @property
    def client(self) -> Object:
        """The client's description of itself in `initialize`; empty before it and in the stateless era."""
        return {} if self.peer.initialize_params is None else self.peer.initialize_params.client

    def _perform_action(self, action: PeerAction, emit: Emit) -> None:
        """Perform an action of the protocol. `emit` receives the answer and the messages of a served request."""
        if isinstance(action, SendMessage):
            emit(action.message)
        elif isinstance(action, ServeRequest):
            self._start_request(action, emit)
        elif isinstance(action, OpenSubscription):
            self.listen(action)
        else:
            self.handle_one_way(action)

    def handle_one_way(self, action: PeerAction) -> None:
        """Perform an action that has no answer."""
        if isinstance(action, CancelRequest):
            self.stop(action.request_id)
        elif isinstance(action, ResolveReply):
            self._resolve_reply(action.message)

    def _start_request(self, work: ServeRequest, emit: Emit) -> None:
        if work.request.id in self._tasks:
            emit(Failure(work.request.id, INVALID_REQUEST, "a request with this id is in progress"))
            return
        self.start(work, emit, lambda sent: emit(sent.message))

    def start(self, work: ServeRequest, emit: Emit, done: Callable[[SendMessage], None]) -> asyncio.Task[None]:
        """Serve a request. `done` is not called if the request is cancelled."""
        return self.track(work.request.id, self._serve(work, emit, done))

    def track(self, number: object, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that `busy` counts and `close` ends, under the id of its request or a new object."""
        task = asyncio.create_task(work)
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))
        return task

    async def _serve(self, work: ServeRequest, emit: Emit, done: Callable[[SendMessage], None]) -> None:
        done(await self.server.perform(work, self.make_context(work, emit)))

    def make_context(self, work: ServeRequest, emit: Emit) -> RequestContext:
        """Make the context of a request. `initialize` describes the client, or `_meta` in the stateless era."""
        if work.meta.version is not None:
            return stateless_exchange(work, emit, self.principal, is_remote=self.is_remote)
        initialize_params = self.peer.initialize_params
        assert initialize_params is not None, "no request is served before initialize"
        return RequestContext(
            work.meta,
            work.version,
            emit,
            client=initialize_params.client,
            capabilities=initialize_params.capabilities,
            log_level=self.peer.log_level,
            ask=self._make_asker(emit),
            principal=self.principal,
            is_remote=self.is_remote,
        )

    def _make_asker(self, emit: Emit) -> SendInputRequest:
        """Return a function that sends a question over `emit` and waits for its answer."""

        async def ask(method: str, params: Object) -> Object:
            """Send a question and return the client's answer; an error if the conversation is or will be closed."""
            if self._closed:
                raise _client_gone_error()
            self._sent_requests += 1
            number = f"toolwire-{self._sent_requests}"
            answer: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
            self._pending_replies[number] = answer
            emit(RpcRequest(number, method, params))
            try:
                return await answer
            finally:
                del self._pending_replies[number]

        return ask

    def _resolve_reply(self, message: Result | Failure) -> None:
        """Pass an answer to the waiting question. Ignore answers that no question waits for."""
        future = None if message.id is None else self._pending_replies.get(message.id)
        if future is None or future.done():
            return
        if isinstance(message, Result):
            future.set_result(message.result)
        else:
            future.set_exception(ToolError(f"The client answered with an error: {message.message}"))

    def listen(self, listen: OpenSubscription) -> None:
        listener = make_listener(listen, self._emit)
        self._subscriptions[listen.request_id] = (listen, listener)
        self._emit(listen.acknowledgement)
        self.server.listeners.add(listener)

    def stop(self, request_id: RequestId) -> None:
        """Cancel a request or subscription. Writes that have started are still finished and recorded."""
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()
        subscription = self._subscriptions.pop(request_id, None)
        if subscription is not None:
            self.server.listeners.remove(subscription[1])

    async def handle(self, data: bytes) -> bytes | None:
        """Answer one document, for transports that wait for the answer. Return None if there is nothing to answer."""
        try:
            if is_batch(data) and self.peer.version == "2025-03-26":
                return await self._answer_all(read_batch(data))
            answer = await self._answer(read(data))
        except RpcError as error:
            answer = failure_from(error)
        return None if answer is None else write(answer)

    async def _answer_all(self, messages: list[RpcMessage | RpcError]) -> bytes | None:
        answers = [answer for answer in await asyncio.gather(*map(self._answer, messages)) if answer is not None]
        return write_batch(answers) if answers else None

    async def _answer(self, message: RpcMessage | RpcError) -> RpcMessage | None:
        """Return the answer to one message, or None for a message without an answer."""
        if isinstance(message, RpcError):
            return failure_from(message)
        action = self.peer.receive(message)
        if isinstance(action, ServeRequest):
            action = await self.server.perform(action, self.make_context(action, self._emit))
        if isinstance(action, SendMessage):
            return action.message
        self._perform_action(action, self._emit)
        return None

    async def close(self, grace: float = 0.0) -> None:
        """End subscriptions, wait up to `grace` seconds for running requests, then cancel those that can be cancelled.

        Questions to the client fail at once, because no answer can arrive any more.
        """
        self._closed = True
        for question in self._pending_replies.values():
            if not question.done():
                question.set_exception(_client_gone_error())
        self.server.listeners.remove(self._listener)
        for listen, listener in self._subscriptions.values():
            self.server.listeners.remove(listener)
            self._emit(listen.end_result(self.server.catalog.info))
        self._subscriptions.clear()
        tasks = list(self._tasks.values())
        try:
            if tasks and grace:
                await asyncio.wait(tasks, timeout=grace)
        finally:  # also if Ctrl-C cancels this wait
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
