"""The request that a tool is serving: progress, logs, questions and approvals; and the clients notified of changes.

    async def book(city: str) -> str:
        exchange = current_exchange()
        exchange.report(1, 3, "looking for hotels")
        answer = await exchange.elicit("Which night?", {"type": "object", "properties": {"night": {"type": "string"}}})

Questions work in both eras. In the handshake era the question is sent at once and its answer is awaited. In the
stateless era the call ends at the question (`InputNeeded`), the client receives the list of missing answers, and
sends the call again with them. The function then runs again from the start, and the question is answered at once. So
ask before you change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...ir.tools import Tool
from ...net.tools.steps import Approver, ApproverThread
from ...net.tools.stored_approvals import StoredApprovals
from ...run.calls.context import CallContext, ProgressSink, ToolError, Transient
from ...run.calls.gates import argument_key
from ...run.calls.steps import ApprovalReply, Approve, Denied
from ...run.values.records import Store
from ...schema.validation.validator import validator
from ...wire.mcp.versions import STATELESS
from ..protocol.calls import InputRequired
from ..protocol.meta import Meta
from ..protocol.notifications import LogMessage, Progress, is_level_enabled
from ..protocol.rpc import INVALID_PARAMS, Notification, RpcError, RpcMessage, missing_capability

# The clients that are notified of changes, and of which changes.
#
# server.listeners.changed("tools")            the list of tools has changed
# server.listeners.updated("notes://today")    the content of that resource has changed


class Listener:
    """`lists` and `uris` select the notifications. A conversation of the handshake era is notified of all lists."""

    def __init__(
        self, emit: Callable[[Notification], None], lists: frozenset[str], uris: Callable[[], frozenset[str] | set[str]]
    ) -> None:
        self.emit = emit
        self.lists = lists
        self.uris = uris


class Listeners:
    """The current listeners of a server."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def add(self, listener: Listener) -> None:
        self._listeners.add(listener)

    def remove(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def __len__(self) -> int:
        return len(self._listeners)

    def changed(self, list_name: Literal["tools", "prompts", "resources"]) -> None:
        for listener in list(self._listeners):
            if list_name in listener.lists:
                listener.emit(Notification(f"notifications/{list_name}/list_changed"))

    def updated(self, uri: str) -> None:
        for listener in list(self._listeners):
            if uri in listener.uris():
                listener.emit(Notification("notifications/resources/updated", {"uri": uri}))


InputRequest: TypeAlias = tuple[str, Object]
"""(method, params)"""
SendInputRequest: TypeAlias = Callable[[str, Object], Awaitable[Object]]

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


_NO_LISTENERS = Listeners()
_SMALLEST_PROGRESS = 1e-6  # below any step that a client shows, and above the precision of a float near 1


class InputNeeded(Transient):
    """The call needs an answer of the client. It had no effect yet, and an immediate retry would not help."""

    def __init__(self) -> None:
        super().__init__("the client must answer a question first", retry_after=float("inf"), before_effect=True)


class RequestContext:
    """One request, as seen by the function that serves it. `listeners` are all clients that are notified of changes."""

    __slots__ = (
        "_ask",
        "_count",
        "_emit",
        "_log_level",
        "_loop",
        "_progress",
        "answers",
        "capabilities",
        "client",
        "is_remote",
        "listeners",
        "meta",
        "principal",
        "unanswered",
        "version",
    )

    def __init__(
        self,
        meta: Meta,
        version: str,
        emit: Callable[[RpcMessage], None],
        *,
        client: Object | None = None,
        capabilities: Object | None = None,
        log_level: str | None = None,
        answers: Object | None = None,
        ask: SendInputRequest | None = None,
        principal: str = "",
        is_remote: bool = False,
    ) -> None:
        self.meta = meta
        self.version = version
        self.client = client or {}
        self.capabilities = capabilities or {}
        self.principal = principal
        self.is_remote = is_remote  # the client is connected over HTTP, and must not see the text of exceptions
        self.answers: Object = answers or {}
        self.unanswered: InputRequired | RpcError | None = None  # why the function ended with InputNeeded
        self.listeners = _NO_LISTENERS
        self._emit = emit
        self._ask = ask
        self._log_level = log_level
        self._loop = asyncio.get_running_loop()
        self._progress: float | None = None  # the last reported value
        self._count = 0  # questions so far, for their default keys

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send the progress of the work. Do nothing if the client did not ask for it, or if it does not grow."""
        token = self.meta.progress_token
        if token is None or (self._progress is not None and progress <= self._progress):
            return
        self._progress = progress
        self._send(Progress(token, progress, total, message).to_notification())

    @property
    def progress_sink(self) -> ProgressSink | None:
        """The receiver of `CallContext.report_progress`; None if the client did not ask for progress."""
        return None if self.meta.progress_token is None else self._report_call

    def _report_call(self, _: CallContext[Any], message: str, fraction: float | None) -> None:
        """Send the progress of a call. MCP requires that the value grows, also if only the message is new."""
        if fraction is None or fraction <= (self._progress or 0.0):
            self.report((self._progress or 0.0) + _SMALLEST_PROGRESS, None, message)
        else:
            self.report(fraction, 1.0, message)

    def log(self, level: str, data: JSON, logger: str | None = None) -> None:
        """Send a log line to the client, if the client asked for that level."""
        if is_level_enabled(level, self._log_level):
            self._send(LogMessage(level, data, logger).to_notification())

    def _send(self, message: RpcMessage) -> None:
        """Send a message, from the event loop or from the thread of a tool."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._emit(message)
        else:
            self._loop.call_soon_threadsafe(self._emit, message)

    def can(self, capability: str) -> bool:
        """Return True if the client declared the capability: "elicitation", "sampling" or "roots"."""
        return capability in self.capabilities

    @property
    def can_elicit(self) -> bool:
        """True if a question to the user reaches the client: in this request, or in an answer that it repeats."""
        return self.can("elicitation") and (self.version in STATELESS or self._ask is not None)

    async def elicit(self, message: str, schema: Object, *, key: str | None = None) -> Object:
        """Ask the user. Return {"action": "accept" | "decline" | "cancel", "content": …}; content is validated."""
        params = {"message": message, "requestedSchema": schema}
        found = await self.ask_all({self._question_key(key): ("elicitation/create", params)})
        return next(iter(found.values()))

    async def sample(self, messages: list[Object], *, max_tokens: int, key: str | None = None, **more: Any) -> Object:
        """Ask the client's model."""
        params = {"messages": messages, "maxTokens": max_tokens, **more}
        found = await self.ask_all({self._question_key(key): ("sampling/createMessage", params)})
        return next(iter(found.values()))

    async def roots(self, *, key: str | None = None) -> list[Object]:
        """Ask for the directories that the client works in."""
        found = await self.ask_all({self._question_key(key): ("roots/list", {})})
        roots = next(iter(found.values())).get("roots")
        return roots if isinstance(roots, list) else []

    def _question_key(self, key: str | None) -> str:
        self._count += 1
        return key or f"question_{self._count}"

    async def ask_all(self, questions: Mapping[str, InputRequest]) -> dict[str, Object]:
        """Ask several questions at once, and return the answers by the keys that the caller chose.

        In the stateless era, unanswered questions, and a capability that the client lacks, end the request
        (InputNeeded); the client repeats it with the answers. In a session they are sent at once, and ToolError is
        raised if the client does not support them.
        """
        missing: Object = {name: {} for name in map(_capability_of, questions.values()) if not self.can(name)}
        if self.version in STATELESS:
            if missing:
                self.unanswered = missing_capability(missing)
                raise InputNeeded
            return self._collect_answers(questions)
        if missing or self._ask is None:
            raise ToolError(f"Cannot ask the client: it does not support {', '.join(missing) or 'server requests'}.")
        return {key: await self._ask(method, params) for key, (method, params) in questions.items()}

    def _collect_answers(self, questions: Mapping[str, InputRequest]) -> dict[str, Object]:
        """Return the answers sent with the request.

        If one is missing or does not match its schema, store the questions in `unanswered` and raise InputNeeded.
        """
        for key in questions:
            if key in self.answers and type(self.answers[key]) is not dict:
                problem = f"the answer to {key!r} must be an object"
                self.unanswered = RpcError(INVALID_PARAMS, problem, pointer=f"/params/inputResponses/{key}")
                raise InputNeeded
        unanswered_keys = {
            key: asked for key, asked in questions.items() if not _is_valid_answer(asked, self.answers.get(key))
        }
        if unanswered_keys:
            requests = {key: {"method": method, "params": params} for key, (method, params) in unanswered_keys.items()}
            self.answers = {key: value for key, value in self.answers.items() if key not in unanswered_keys}
            self.unanswered = InputRequired(requests)
            raise InputNeeded
        return {key: self.answers[key] for key in questions}


def _capability_of(question: InputRequest) -> str:
    return _CAPABILITIES.get(question[0], question[0])


def _is_valid_answer(question: InputRequest, answer: Object | None) -> bool:
    """Return True if there is an answer and, for an accepted form, the content matches the requested schema."""
    if answer is None:
        return False
    method, params = question
    if method != "elicitation/create" or answer.get("action") != "accept" or "requestedSchema" not in params:
        return True
    return validator(params["requestedSchema"]).accepts(answer.get("content") or {})


request_context_var: ContextVar[RequestContext | None] = ContextVar("toolwire_mcp_exchange", default=None)


def current_exchange() -> RequestContext:
    """Return the request that is being served, inside a tool, a resource or a prompt; raise ConfigError elsewhere."""
    context = request_context_var.get()
    if context is None:
        hint = "call it in a tool, a resource or a prompt that an MCP server runs"
        raise ConfigError("no MCP request is being served", hint=hint)
    return context


# Ask the user of an MCP client to approve a call, by elicitation.
#
# The answer is bound to the question: its key contains the hash of the tool, its definition and the arguments.
# Elicitation trusts the client to ask its user. For clients that are not trusted, use `approve="suspend"`: then the
# operator of the server decides, with `toolwire runs approve`.


_MAX_ARGUMENTS = 4_000  # characters; a person cannot check more
_SCHEMA: Object = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Run this call"}},
    "required": ["approve"],
}


class ElicitApproval:
    """An approver for the tools of an MCP server. `otherwise` decides if the client cannot ask its user."""

    def __init__(self, otherwise: Approver | None = None) -> None:
        self._otherwise = ApproverThread(otherwise)

    async def __call__(self, step: Approve) -> ApprovalReply:
        """Ask the user of the client.

        `otherwise` decides if the client cannot ask, or the arguments are too long to show.
        """
        exchange = request_context_var.get()
        arguments = dumps(step.arguments)
        if exchange is None or not exchange.can_elicit or len(arguments) > _MAX_ARGUMENTS:
            return await self._otherwise.ask(step)
        message = f"{step.tool}({arguments}): {step.why}. Approve this call."
        answer = await exchange.elicit(message, _SCHEMA, key=f"approve-{step.hash}")
        content = answer.get("content")
        if answer.get("action") == "accept" and isinstance(content, dict) and content.get("approve") is True:
            return True
        return Denied("the user declined")


def make_approver(approve: Approver | Literal["elicit", "suspend"] | None, store: Store | None) -> Approver | None:
    """Return the approver of a server. A client that cannot elicit gets a stored question, if there is a store.

    ConfigError for "suspend" without a store.
    """
    if approve == "suspend" and store is None:
        raise ConfigError(
            'approve="suspend" needs a store', hint="pass store=open_store(…), which another process opens"
        )
    stored = None if store is None else StoredApprovals(store.runs)
    if approve == "elicit":
        return ElicitApproval(stored)
    return stored if approve == "suspend" else approve


_MAX_KEY_LENGTH = 255  # characters; as in a store, so that another toolwire process can forward any of its keys
_MAX_PLAIN_KEY = 100  # characters of a key that is stored as text; a forwarded key stays short, whatever a hop adds


def scope_key(key: str | None, arguments: Object, tool: Tool, principal: str) -> str | None:
    """Return the store key of a call: of the key in its `_meta`, or else in its arguments. None if it has no key.

    The principal is a part of it, so that callers cannot share keys. The prefix distinguishes the client's claim from
    the server's: a client made with toolwire sends the key of its own claim, which may be in the same store, and would
    wait for itself otherwise. Each server of a chain adds a prefix, and equal requests still have equal keys.

    Raise RpcError for an empty or a long key in `_meta`; the gates of the call refuse one in the arguments.
    """
    if key is None:
        key = argument_key(arguments, tool)
        if key is None or not _is_valid_key(key):
            return None
    elif not _is_valid_key(key):
        raise RpcError(INVALID_PARAMS, f"idempotency key must have 1 to {_MAX_KEY_LENGTH} characters, got {len(key)}")
    scoped = f"mcp/{quote(principal, safe='')}/{key}"
    if len(scoped) <= _MAX_PLAIN_KEY:
        return scoped
    return f"mcp-{sha256(scoped.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _is_valid_key(key: str) -> bool:
    return 0 < len(key) <= _MAX_KEY_LENGTH
