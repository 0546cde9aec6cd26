"""A toolbox published over MCP: for every client, both eras, every transport.

    server = Server(my_module, name="weather", store=open_store("runs.db"))
    await serve_stdio(server)                    toolwire.mcp.server.stdio
    app = HttpApp(server)                        toolwire.mcp.server.http: an ASGI app

Calls pass the gates of `toolwire.net.Runner`. A write runs at most once per key: a client whose stream broke repeats
the call with the same key in `_meta` and gets the answer of the first run. A failed tool, or a call with wrong
arguments, is a result that the model reads (`isError`); an unknown tool is a protocol error.
"""

from __future__ import annotations

import hmac
import inspect
import logging
import secrets
import time
from asyncio import to_thread, wrap_future
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from ... import __version__
from ...ir.errors import ConfigError
from ...ir.parts import Text, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.text import to_bytes
from ...ir.tools import Tool
from ...net.stores import open_store
from ...net.threads import ThreadPool
from ...net.tools.runner import Runner
from ...net.tools.steps import Approver
from ...net.tools.stored_approvals import owned_by
from ...run.calls.context import CallContext
from ...run.calls.policy import Policy
from ...run.calls.signature import function_signature
from ...run.tools.toolbox import Source
from ...run.values.keys import canonical_json
from ...run.values.records import DAY, Store
from ...run.values.results import error_text, exception_text, hide_exception, result_code
from ...schema.validation.validator import Validator, validator
from ...stream.strict import parse
from ...wire.mcp.versions import STATELESS
from ..protocol.calls import InputRequired, encode_result, read_call
from ..protocol.meta import SERVER_INFO
from ..protocol.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Failure,
    Result,
    RpcError,
    failure_from,
    unknown_tool,
)
from .catalog import Catalog
from .offers import Prompt, Resource, make_contents, make_messages
from .protocol import SendMessage, ServeRequest
from .request_context import InputNeeded, Listeners, RequestContext, make_approver, request_context_var, scope_key

# The state that a server hands to its client and gets back: signed, bound to one request and one caller, with an
# expiry.
#
# A stateless server that needs input forgets the call, and the client sends the known answers back with the next
# attempt. The client is not trusted, so a state is only accepted if this server signed it for the same request.


class RequestState:
    """Seal and open states. Servers with the same `secret` accept each other's states."""

    # Seconds in which a person answers the question of a call.
    def __init__(self, secret: bytes, now: Callable[[], float], lifetime: float = 3600.0) -> None:
        self._secret = secret
        self._now = now
        self._lifetime = lifetime

    def seal(self, answers: Object, method: str, params: Object, principal: str) -> str:
        """Return the signed state: the answers so far, a digest of the request and its caller, and the expiry."""
        payload = {
            "answers": answers,
            "for": _request_digest(method, params, principal),
            "until": self._now() + self._lifetime,
        }
        body = to_bytes(payload)
        return f"{_encode_base64(body)}.{_encode_base64(self._sign(body))}"

    def open(self, state: str, method: str, params: Object, principal: str) -> Object:
        """Return the answers so far. Raise RpcError for a state that was not sealed for this request."""
        body, signature = _decode_base64(state.partition(".")[0]), _decode_base64(state.partition(".")[2])
        if not hmac.compare_digest(signature, self._sign(body)):
            raise _refusal("its signature is invalid")
        payload: JSON = parse(body)
        if payload["for"] != _request_digest(method, params, principal):
            raise _refusal("it belongs to another request")
        if payload["until"] < self._now():
            raise _refusal("it has expired; start the call again")
        answers: Object = payload["answers"]
        return answers

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, sha256)


def _request_digest(method: str, params: Object, principal: str) -> str:
    """Identify a request by its content and its caller. The answers and `_meta` are not part of it."""
    identity = {key: params[key] for key in ("name", "uri", "arguments") if key in params}
    return sha256(canonical_json([method, principal, identity])).hexdigest()


def _encode_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decode_base64(text: str) -> bytes:
    """Decode base64. Invalid input gives empty bytes, for which the signature check fails."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _refusal(reason: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"requestState is refused: {reason}", pointer="/params/requestState")


_log = logging.getLogger("toolwire.mcp")
_MAX_THREADS = 32  # resources and prompts that are plain functions; half of those for tools
_Worker: TypeAlias = Callable[[ServeRequest, RequestContext], Awaitable[Object]]


class Server:
    """The published tools, resources and prompts, and their execution. Transports deliver the messages.

    `store` keeps calls by their idempotency keys for `ttl` seconds; without it, they are kept in the memory of the
    process. `approve` decides about calls that need approval by the policy; without it they are denied. "elicit": the
    user of the client decides. "suspend": the question is stored, for `toolwire runs approve`. `lease`: the seconds
    without a heartbeat after which a call is considered lost, and its outcome unknown. `runner` replaces all of these
    and the sources. `secret` signs the state of stateless calls: share it between processes that serve one URL.
    `log_arguments`: log the arguments of requests, without secrets (`toolwire.mcp.requests`).
    """

    def __init__(
        self,
        *sources: Source,
        resources: Sequence[Resource] = (),
        prompts: Sequence[Prompt] = (),
        name: str = "toolwire",
        version: str = __version__,
        title: str | None = None,
        instructions: str | None = None,
        store: Store | None = None,
        policy: Policy | None = None,
        approve: Approver | Literal["elicit", "suspend"] | None = None,
        secret: bytes | None = None,
        lease: float = 60.0,  # seconds, as `Claim.lease`
        ttl: float = DAY,
        ttl_ms: int = 60_000,  # as `Catalog`
        runner: Runner | None = None,
        log_arguments: bool = False,
    ) -> None:
        """Raise ConfigError for options that `runner` would make ineffective, and for "suspend" without a store."""
        if runner is not None and (sources, store, policy, approve) != ((), None, None, None):
            raise ConfigError("runner= excludes sources, store, policy and approve", hint="pass them to the Runner")
        self.runner = runner or Runner(
            *sources,
            store=store or open_store("memory:"),
            policy=policy,
            approve=make_approver(approve, store),  # no other process could answer a question in memory
            lease=lease,
            ttl=ttl,
            keeps_keyless=store is not None,  # in memory, no other process continues a run
        )
        info = {"name": name, "version": version, **({"title": title} if title else {})}
        tools = self.runner.box.tools
        self.catalog = Catalog(tools, resources, prompts, info=info, instructions=instructions, ttl_ms=ttl_ms)
        self.listeners = Listeners()
        self._threads = ThreadPool(_MAX_THREADS)
        self._request_state = RequestState(secret or secrets.token_bytes(32), time.time)
        self.log_arguments = log_arguments
        self._box_version = self.runner.box.version
        self._output_validators = _output_validators(tools)
        self._handlers: dict[str, _Worker] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }

    def close(self) -> None:
        self.runner.close()
        self._threads.close()

    def refresh(self) -> bool:
        """Offer the current tools of live sources. If they have changed, notify the clients and return True.

        Sessions and running calls continue. Call it on the event loop of the server.
        """
        box = self.runner.box
        version = box.version
        if version == self._box_version:
            return False
        box.refresh()
        self._box_version = version
        validators = _output_validators(box.tools)
        self.catalog.replace_tools(box.tools)
        self._output_validators = validators
        self.listeners.changed("tools")
        return True

    def replace_offers(self, resources: Sequence[Resource], prompts: Sequence[Prompt]) -> None:
        """Replace the resources and prompts, and notify the clients of the lists that have changed."""
        before = self.catalog.offers
        self.catalog.replace_offers(resources, prompts)
        after = self.catalog.offers
        if before[0] != after[0]:
            self.listeners.changed("resources")
        if before[1] != after[1]:
            self.listeners.changed("prompts")

    async def perform(self, work: ServeRequest, exchange: RequestContext) -> SendMessage:
        """Run a function for a request and return the answer; a failure is logged, and its text hidden if remote."""
        number = work.request.id
        exchange.listeners = self.listeners
        token = request_context_var.set(exchange)
        try:
            return SendMessage(Result(number, await self._handlers[work.request.method](work, exchange)))
        except RpcError as error:
            return SendMessage(failure_from(error, number), error.status)
        except Exception as error:  # noqa: BLE001  # the author's own function may raise anything
            error_id = secrets.token_hex(4)
            _log.exception("%s failed (error %s)", work.request.method, error_id)
            text = f"internal error {error_id}" if exchange.is_remote else error_text(error)
            return SendMessage(Failure(number, INTERNAL_ERROR, f"{work.request.method} failed: {text}"))
        finally:
            request_context_var.reset(token)

    async def _call_tool(self, work: ServeRequest, exchange: RequestContext) -> Object:
        """Run a tool and return its result or its question to the client; RpcError if the tool is unknown."""
        tool_call = read_call(work.request, work.meta)
        call, key = tool_call.call, tool_call.meta.idempotency_key
        box = self.runner.box
        entry = box.find(call.name)
        if entry is None:
            suggest = partial(box.similar_names, call.name)
            raise unknown_tool(call.name, await to_thread(suggest) if box.needs_index(call.name) else suggest())
        if tool_call.answers or tool_call.state is not None:
            self._resume(work, exchange, tool_call.answers, tool_call.state)
        key = scope_key(key, call.arguments or {}, entry.tool, exchange.principal)
        keys = None if key is None else {call.id: key}
        with owned_by(exchange.principal):
            (result,) = await self.runner.run([call], keys=keys, on_progress=exchange.progress_sink)
        if exchange.unanswered is not None and result_code(result) == "failed":
            return self._input_required(work, exchange)
        if call.name in self._output_validators and not result.is_error:
            result = self._validate_output(result)
        if exchange.is_remote and (text := exception_text(result)) is not None:
            error_id = secrets.token_hex(4)
            _log.error("%s raised an exception (error %s): %s", call.name, error_id, text)
            result = hide_exception(result, f"internal error {error_id}")
        return encode_result(result, version=work.version, server=self.catalog.info)

    def _validate_output(self, result: ToolResult) -> ToolResult:
        """Log a result that does not match the tool's output schema, and return an error: clients validate it, too."""
        check = self._output_validators[result.name or ""]
        if check.accepts(result.structured):
            return result
        problems = "; ".join(map(str, check.problems(result.structured)))
        _log.error("the result of %s does not match its output schema: %s", result.name, problems)
        message = (
            f"{result.name} ran, but its result does not match its output schema: {problems}. Result: {result.text}"
        )
        return replace(result, parts=(Text(message),), structured=None, is_error=True)

    def _resume(self, work: ServeRequest, exchange: RequestContext, answers: Object, state: str | None) -> None:
        """Restore the answers for a repeated request that needed input: the earlier ones and the new ones."""
        method, params = work.request.method, work.request.params
        known = {} if state is None else self._request_state.open(state, method, params, exchange.principal)
        exchange.answers = {**known, **answers}

    def _input_required(self, work: ServeRequest, exchange: RequestContext) -> Object:
        """Return the `input_required` answer with the sealed answers so far. Raise if the client lacks a capability."""
        unanswered = exchange.unanswered
        if not isinstance(unanswered, InputRequired):
            assert isinstance(unanswered, RpcError)
            raise unanswered
        request = work.request
        state = self._request_state.seal(exchange.answers, request.method, request.params, exchange.principal)
        return {**replace(unanswered, state=state).to_json(), "_meta": {SERVER_INFO: self.catalog.info}}

    async def _read_resource(self, work: ServeRequest, exchange: RequestContext) -> Object:
        """Run a resource's function and return its contents; RpcError, by the era's code, for an unknown URI."""
        uri = work.request.params.get("uri")
        found = self.catalog.find_resource(uri) if isinstance(uri, str) else None
        stateless = work.version in STATELESS
        if found is None:
            code = INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND
            raise RpcError(code, f"Resource not found: {uri}", data={"uri": uri})
        offer, variables = found
        value = await self._run_function(work, exchange, offer.function, variables)
        if isinstance(value, _InputRequiredReply):
            return value.answer
        out = {"contents": make_contents(value, str(uri), offer.media_type)}
        return self._complete_result({**out, **self.catalog.cache_hints()} if stateless else out, work.version)

    async def _get_prompt(self, work: ServeRequest, exchange: RequestContext) -> Object:
        """Run the function of a prompt and convert its value to messages."""
        params = work.request.params
        offer = self.catalog.find_prompt(params.get("name"))
        value = await self._run_function(work, exchange, offer.function, _prompt_arguments(offer, params))
        if isinstance(value, _InputRequiredReply):
            return value.answer
        out: Object = {"messages": make_messages(value, work.version)}
        if offer.description is not None:
            out["description"] = offer.description
        return self._complete_result(out, work.version)

    async def _run_function(
        self, work: ServeRequest, exchange: RequestContext, function: Callable[..., Any], raw_arguments: Object
    ) -> Any:
        """Call the function of a resource or prompt. Return its value, or `_InputRequiredReply` if it needs input.

        RpcError for arguments that do not fit the function.
        """
        params = work.request.params
        answers, state = params.get("inputResponses"), params.get("requestState")
        if isinstance(answers, dict) or isinstance(state, str):
            self._resume(work, exchange, answers or {}, state)
        try:
            signature = function_signature(function)
            context: CallContext[Any] = CallContext("", "", caller=exchange.principal, _sink=exchange.progress_sink)
            arguments = signature.add_context(signature.bind_arguments(raw_arguments), context)
        except Exception as error:
            raise RpcError(INVALID_PARAMS, f"invalid arguments: {error_text(error)}") from error
        try:
            return await self._call_function(function, arguments)
        except InputNeeded:
            return _InputRequiredReply(self._input_required(work, exchange))

    async def _call_function(self, function: Callable[..., Any], arguments: Object) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(**arguments)
        return await wrap_future(self._threads.submit(partial(copy_context().run, function, **arguments)))

    async def _complete(self, work: ServeRequest, exchange: RequestContext) -> Object:
        """Suggest up to 100 values for an argument of a prompt. RpcError if the reference or argument is no object."""
        params = work.request.params
        ref, argument = params.get("ref"), params.get("argument")
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise RpcError(INVALID_PARAMS, "ref and argument must be objects", pointer="/params")
        values: list[str] = []
        if ref.get("type") == "ref/prompt":
            offer = self.catalog.find_prompt(ref.get("name"))
            values = offer.completions(str(argument.get("name")), str(argument.get("value", "")))
        first_values = values[:100]
        completion = {"values": first_values, "total": len(values), "hasMore": len(values) > len(first_values)}
        return self._complete_result({"completion": completion}, work.version)

    def _complete_result(self, out: Object, version: str) -> Object:
        if version in STATELESS:
            out.update(resultType="complete", _meta={SERVER_INFO: self.catalog.info})
        return out


def _output_validators(tools: Sequence[Tool]) -> dict[str, Validator]:
    return {tool.name: validator(tool.output_schema) for tool in tools if tool.output_schema is not None}


class _InputRequiredReply(NamedTuple):
    """An answer that requests input."""

    answer: Object


def _prompt_arguments(offer: Prompt, params: Object) -> Object:
    """Return the arguments for a prompt. Raise RpcError if a required one is missing."""
    raw_arguments = params.get("arguments") or {}
    if not isinstance(raw_arguments, dict):
        raise RpcError(INVALID_PARAMS, "arguments must be an object", pointer="/params/arguments")
    missing = [name for name in offer.parameters.get("required", ()) if name not in raw_arguments]
    if missing:
        raise RpcError(
            INVALID_PARAMS, f"prompt {offer.name} requires {', '.join(missing)}", pointer="/params/arguments"
        )
    return raw_arguments
