"""JSON-RPC as MCP uses it: messages to bytes and back, and errors.

    read(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')  →  RpcRequest(1, "tools/list")
    write(Result(1, {"tools": []}))                          →  b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'

One message per document: a line on stdio, a body or an SSE event on HTTP. Only 2025-03-26 has batches (`read_batch`).
Stricter than JSON-RPC, as the specification demands: an id is a string or an integer and never null, `params` is an
object. An invalid message raises an `RpcError` with the id of the message if that could be read, so that its sender
can be answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.text import to_line
from ...ir.value import Value
from ...stream.strict import parse, type_label
from ...wire.mcp.versions import KNOWN

# JSON-RPC errors. They report an invalid message; a failed tool is a result (`isError`) and not one of these.
#
# An `RpcError` is raised when a message is read or served, is written as the `error` of an answer, and is raised
# again by the client that receives it. `status` is the accompanying HTTP status. It is not 200 if the transport
# itself was misused, so that a proxy or an older client understands it without reading the body.


RequestId: TypeAlias = str | int

PARSE_ERROR = -32700  # this and the next four: JSON-RPC 2.0, section 5.1
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020  # this and the next two: MCP 2026-07-28
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002
"""Before 2026-07-28; INVALID_PARAMS since."""
URL_ELICITATION_REQUIRED = -32042
"""2025-11-25 only."""

_STATUSES = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


class RpcError(ProtocolError):
    """A JSON-RPC error. `request_id` is the request that it answers, or None if that could not be read."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        data: JSON = None,
        request_id: RequestId | None = None,
        pointer: str = "",
        hint: str = "",
        status: int | None = None,
    ) -> None:
        super().__init__(
            message, pointer=pointer, hint=hint, status=_STATUSES.get(code, 200) if status is None else status
        )
        self.code = code
        self.data = data
        self.request_id = request_id

    def with_request_id(self, request_id: RequestId | None) -> RpcError:
        """Set the request that the error answers, if it is not set, and return the error."""
        if self.request_id is None:
            self.request_id = request_id
        return self

    def to_json(self) -> Object:
        """Return the `error` object."""
        location = f" at {self.pointer}" if self.pointer else ""
        out: Object = {"code": self.code, "message": f"{self.message}{location}"}
        if self.data is not None:
            out["data"] = self.data
        return out


def unknown_tool(name: str, similar_names: Sequence[str] = ()) -> RpcError:
    """Make the error for an unknown tool: a mistake of the caller, not a result of the tool."""
    suggestion = f". Did you mean {' or '.join(similar_names)}?" if similar_names else ""
    return RpcError(INVALID_PARAMS, f"Unknown tool: {name}{suggestion}")


def unknown_method(method: str) -> RpcError:
    return RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", data=method)


def unsupported_version(requested: str, supported: Sequence[str] = KNOWN) -> RpcError:
    data = {"supported": list(supported), "requested": requested}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data=data)


def missing_capability(needed: Object) -> RpcError:
    """`needed` has the shape of client capabilities: {"elicitation": {}}."""
    names = ", ".join(needed)
    return RpcError(MISSING_CAPABILITY, f"The client must declare {names}", data={"requiredCapabilities": needed})


def is_modern(error: Any) -> bool:
    """Return True if only a server of 2026-07-28 can have sent the error. Then there is no fallback."""
    return isinstance(error, RpcError) and error.code in (HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)


LIMIT = 16 * 1024 * 1024
"""Maximum size of a message in bytes."""


class RpcRequest(Value, frozen=True):
    """A message that requires an answer with the same id."""

    id: RequestId
    method: str
    params: Object = {}


class Notification(Value, frozen=True):
    """A message without an answer."""

    method: str
    params: Object = {}


class Result(Value, frozen=True):
    """The answer to a request that was served, whether its work succeeded or not."""

    id: RequestId
    result: Object


class Failure(Value, frozen=True):
    """The answer to a request that could not be served. `id` is None if the request could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: JSON = None

    @property
    def error(self) -> RpcError:
        """The exception to raise in the client."""
        return RpcError(self.code, self.message, data=self.data, request_id=self.id)


RpcMessage: TypeAlias = RpcRequest | Notification | Result | Failure


def failure_from(error: RpcError, request_id: RequestId | None = None) -> Failure:
    """Convert an error to the answer of its request."""
    error_object = error.to_json()
    return Failure(
        error.request_id if request_id is None else request_id, error.code, error_object["message"], error.data
    )


def read(data: bytes | str, *, limit: int = LIMIT) -> RpcMessage:
    """Read a document with one message. Raise RpcError for anything else."""
    return read_message(_parse(data, limit))


def is_batch(data: bytes) -> bool:
    return data[:1] != b"{" and data.lstrip()[:1] == b"["


def read_batch(data: bytes | str, *, limit: int = LIMIT) -> list[RpcMessage | RpcError]:
    """Read the messages of a batch, each on its own. Raise RpcError if it is empty or not a batch."""
    value = _parse(data, limit)
    if type(value) is not list or not value:
        raise RpcError(INVALID_REQUEST, f"expected a batch of messages, got {type_label(value)}")
    return [_read_or_error(item) for item in value]


def _read_or_error(value: JSON) -> RpcMessage | RpcError:
    try:
        return read_message(value)
    except RpcError as error:
        return error


def _parse(data: bytes | str, limit: int) -> JSON:
    try:
        return parse(data, limit=limit)
    except ProtocolError as error:
        status = error.status if error.status == 413 else None
        raise RpcError(PARSE_ERROR, error.message, pointer=error.pointer, status=status) from None


def read_message(value: JSON) -> RpcMessage:
    """Read a message from a parsed document; RpcError if it is not a JSON-RPC message."""
    if type(value) is not dict:
        hint = "send one message at a time" if type(value) is list else ""
        raise RpcError(INVALID_REQUEST, f"expected a JSON-RPC message, got {type_label(value)}", hint=hint)
    raw_id = value.get("id")
    known = raw_id if type(raw_id) is str or type(raw_id) is int else None
    if value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'jsonrpc must be "2.0"', request_id=known)
    if "id" in value and known is None and "error" not in value:
        raise RpcError(INVALID_REQUEST, f"id must be a string or an integer, got {type_label(raw_id)}", pointer="/id")
    if "method" in value:
        return _read_request(value, known)
    if "error" in value:
        return _read_failure(value["error"], known)
    result = value.get("result")
    if type(result) is not dict or known is None:
        raise RpcError(INVALID_REQUEST, "expected a request, a notification or an answer", request_id=known)
    return Result(known, result)


def _read_request(value: Object, known: RequestId | None) -> RpcRequest | Notification:
    """Read a request, or a notification if there is no id (`known`). RpcError for a malformed method or params."""
    method, params = value["method"], value.get("params", {})
    if type(method) is not str:
        raise RpcError(
            INVALID_REQUEST, f"method must be a string, got {type_label(method)}", pointer="/method", request_id=known
        )
    if type(params) is not dict:
        problem = f"params must be an object, got {type_label(params)}"
        raise RpcError(INVALID_PARAMS, problem, pointer="/params", request_id=known, status=400)
    return Notification(method, params) if known is None else RpcRequest(known, method, params)


def _read_failure(error: JSON, known: RequestId | None) -> Failure:
    code, message = (error.get("code"), error.get("message")) if type(error) is dict else (None, None)
    if type(code) is not int or type(message) is not str:
        raise RpcError(INVALID_REQUEST, "error must have a code and a message", pointer="/error", request_id=known)
    return Failure(known, code, message, error.get("data"))


def write(message: RpcMessage) -> bytes:
    """Write the message as one line of JSON without line end. Raise EncodeError for values that JSON cannot express."""
    return to_line(to_json(message))


def write_batch(messages: list[RpcMessage]) -> bytes:
    return to_line([to_json(message) for message in messages])


def to_json(message: RpcMessage) -> Object:
    """Return the message as a JSON object. Empty params are left out."""
    if type(message) is Result:
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    if isinstance(message, Failure):
        error: Object = {"code": message.code, "message": message.message}
        if message.data is not None:
            error["data"] = message.data
        return {"jsonrpc": "2.0", "id": message.id, "error": error}
    out: Object = {"jsonrpc": "2.0"}
    if isinstance(message, RpcRequest):
        out["id"] = message.id
    assert isinstance(message, (RpcRequest, Notification))
    out["method"] = message.method
    if message.params:
        out["params"] = message.params
    return out
