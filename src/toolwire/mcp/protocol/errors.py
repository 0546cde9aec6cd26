"""JSON-RPC errors. They report an invalid message; a failed tool is a result (`isError`) and not one of these.

An `RpcError` is raised when a message is read or served, is written as the `error` of an answer, and is raised again
by the client that receives it. `status` is the accompanying HTTP status. It is not 200 if the transport itself was
misused, so that a proxy or an older client understands it without reading the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...wire.mcp.versions import KNOWN

__all__ = [
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "URL_ELICITATION_REQUIRED",
    "RequestId",
    "RpcError",
    "is_modern",
    "missing_capability",
    "unknown_method",
    "unknown_tool",
    "unsupported_version",
]

RequestId: TypeAlias = str | int

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
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
