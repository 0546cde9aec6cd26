"""`tools/call`: a ToolCall in one direction, a ToolResult or a request for input in the other.

A request is read as a `ToolCallRequest`: the call itself (`call`), the metadata of the request (`meta`), and, if it repeats a
request that required input, the answers and the server's state. A result is a ToolResult or `InputRequired`: obtain
the named inputs, and send the same call again with a new id.

`structuredContent` is an object before 2026-07-28 and any JSON since; before 2025-06-18 there is none. Structured
content is always sent as text, too, because older clients read the text.
"""

from __future__ import annotations

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.text import dumps
from ...ir.value import Value
from ...stream.strict import type_label
from ...wire.fields import read_extra, read_optional_string, require_object, write_extra
from ...wire.mcp.tools import NAME
from ...wire.mcp.versions import LATEST, STATELESS, since
from .content import decode_content, encode_content
from .meta import SERVER_INFO, Meta, read_meta, with_meta
from .rpc import INVALID_PARAMS, RequestId, RpcError, RpcRequest

_RESULT = frozenset({"content", "structuredContent", "isError", "resultType"})


class ToolCallRequest(Value, frozen=True):
    """One `tools/call`."""

    call: ToolCall
    meta: Meta = Meta()
    answers: Object = {}
    state: str | None = None


class InputRequired(Value, frozen=True):
    """The server needs input. `requests` are keyed by the server's names; `state` is sent back unchanged."""

    requests: Object = {}
    state: str | None = None

    def to_json(self) -> Object:
        out: Object = {"resultType": "input_required"}
        if self.requests:
            out["inputRequests"] = self.requests
        if self.state is not None:
            out["requestState"] = self.state
        return out


def read_call(request: RpcRequest, meta: Meta | None = None) -> ToolCallRequest:
    """Read a `tools/call` request. Raise RpcError if it is malformed."""
    params = request.params
    name, arguments = params.get("name"), params.get("arguments")
    if type(name) is not str:
        raise _malformed("name", "a string", name)
    if arguments is None:
        arguments = {}
    elif type(arguments) is not dict:
        raise _malformed("arguments", "an object", arguments)
    answers, state = params.get("inputResponses"), params.get("requestState")
    if answers is not None and type(answers) is not dict:
        raise _malformed("inputResponses", "an object", answers)
    if state is not None and type(state) is not str:
        raise _malformed("requestState", "a string", state)
    meta = read_meta(params) if meta is None else meta
    return ToolCallRequest(ToolCall(str(request.id), name, arguments), meta, answers or {}, state)


def _malformed(field: str, expected: str, value: object) -> RpcError:
    message = f"{field} is missing" if value is None else f"{field} must be {expected}, got {type_label(value)}"
    return RpcError(INVALID_PARAMS, message, pointer=f"/params/{field}")


def call_request(
    request_id: RequestId,
    call: ToolCall,
    meta: Meta = Meta(),  # noqa: B008  # frozen
    *,
    answers: Object | None = None,
    state: str | None = None,
) -> RpcRequest:
    """Build the request of a call. Raise EncodeError if the call is not complete."""
    if call.state != "complete" or call.arguments is None:
        raise EncodeError(f"the call of {call.name} has no complete arguments", hint="send only complete calls")
    params: Object = {"name": call.name, "arguments": call.arguments}
    if answers is not None:
        params["inputResponses"] = answers
    if state is not None:
        params["requestState"] = state
    return RpcRequest(request_id, "tools/call", with_meta(params, meta))


def read_result(raw: Object, call: ToolCall) -> ToolResult | InputRequired:
    """Read the result of a call. Raise ProtocolError if its type is unknown."""
    kind = raw.get("resultType", "complete")
    if kind == "input_required":
        requests = require_object(raw.get("inputRequests") or {}, "inputRequests")
        return InputRequired(requests, read_optional_string(raw, "requestState"))
    if kind != "complete":
        raise ProtocolError(f"unknown result type {kind!r}", pointer="/resultType")
    return ToolResult(
        call.id,
        call.name,
        decode_content(raw),
        raw.get("structuredContent"),
        raw.get("isError") is True,
        call.kind,
        call.namespace,
        extra=read_extra(raw, _RESULT, NAME),
    )


def encode_result(
    result: ToolResult, *, version: str = LATEST, server: Object | None = None, losses: Losses | None = None
) -> Object:
    """Write a result for `version`. `server` identifies the server, which a stateless result should do.

    A structured result that the version has no field for is a loss; its text is sent in any case.
    """
    structured = result.structured
    content = encode_content(result.parts, version=version, losses=losses) if result.parts else []
    if structured is not None and _has_only_structured(result):
        content.insert(0, {"type": "text", "text": dumps(structured)})
    out: Object = {"content": content}
    stateless = version in STATELESS
    if structured is not None:
        if stateless or (type(structured) is dict and since(version, "2025-06-18")):
            out["structuredContent"] = structured
        elif losses is not None:
            losses.add("/structuredContent", "structured result", "weakened", f"{version} has no field for it", "info")
    if result.is_error:
        out["isError"] = True
    if stateless:
        out["resultType"] = "complete"
    out = write_extra(out, result.extra, NAME) if result.extra else out
    if stateless and server is not None:
        out["_meta"] = {SERVER_INFO: server, **(out.get("_meta") or {})}
    return out


def _has_only_structured(result: ToolResult) -> bool:
    """Return True if no text represents the structured content."""
    if result.parts and any(isinstance(part, Text) for part in result.parts):
        return False
    return not result.extra or result.extra.get(f"{NAME}~", {}).get("content") != []
