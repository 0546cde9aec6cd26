"""JSON-RPC messages as MCP uses them, to bytes and back.

    read(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')  →  RpcRequest(1, "tools/list")
    write(Result(1, {"tools": []}))                          →  b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'

One message per document: a line on stdio, a body or an SSE event on HTTP. Only 2025-03-26 has batches (`read_batch`).
Stricter than JSON-RPC, as the specification demands: an id is a string or an integer and never null, `params` is an
object. An invalid message raises an `RpcError` with the id of the message if that could be read, so that its sender
can be answered.
"""

from __future__ import annotations

from typing import TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.text import to_line
from ...ir.value import Value
from ...stream.strict import parse, type_label
from .errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RequestId, RpcError

__all__ = [
    "LIMIT",
    "Failure",
    "Notification",
    "RequestId",
    "Result",
    "RpcMessage",
    "RpcRequest",
    "failure_from",
    "is_batch",
    "read",
    "read_batch",
    "read_message",
    "write",
    "write_batch",
]

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
    return data.lstrip()[:1] == b"["


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
    """Read a message from a parsed document."""
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
    """Read a request, or a notification if there is no id. `known` is the id, for the error answer."""
    method, params = value["method"], value.get("params", {})
    if type(method) is not str:
        raise RpcError(
            INVALID_REQUEST, f"method must be a string, got {type_label(method)}", pointer="/method", request_id=known
        )
    if type(params) is not dict:
        words = f"params must be an object, got {type_label(params)}"
        raise RpcError(INVALID_PARAMS, words, pointer="/params", request_id=known, status=400)
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
