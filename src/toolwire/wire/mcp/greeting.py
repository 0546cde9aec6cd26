"""How two ends learn of each other: `initialize` in the handshake era, `server/discover` in the stateless one.

Either way a client ends up with a `ServerCard`. A client that speaks both asks for `server/discover` first, and on any error
that is not a modern server's own (`errors.is_modern`) says `initialize`.
"""

from __future__ import annotations

from ...ir.pointer import Object
from ...ir.value import Value
from ...stream.strict import kind_of
from ..shape import integer, obj, optional_string, string
from .errors import INVALID_PARAMS, RequestId, RpcError
from .meta import SERVER_INFO, Meta, with_meta
from .rpc import Notification, Request
from .versions import KNOWN, LATEST_HANDSHAKE

__all__ = [
    "INITIALIZED",
    "Hello",
    "ServerCard",
    "discover_request",
    "initialize_request",
    "read_discovered",
    "read_hello",
    "read_initialized",
]

INITIALIZED = Notification("notifications/initialized")
"""What a client says once `initialize` has been answered."""


class Hello(Value, frozen=True):
    """What a client says of itself in `initialize`."""

    version: str
    capabilities: Object = {}
    client: Object = {}


class ServerCard(Value, frozen=True):
    """What a server says of itself. `ttl_ms` and `scope`: how long, and for whom, that may be kept."""

    versions: tuple[str, ...] = KNOWN
    capabilities: Object = {}
    info: Object = {}
    instructions: str | None = None
    ttl_ms: int | None = None
    scope: str | None = None

    def initialized(self, version: str) -> Object:
        """The result of `initialize`."""
        out: Object = {"protocolVersion": version, "capabilities": self.capabilities, "serverInfo": self.info}
        return self._instructed(out)

    def discovered(self) -> Object:
        """The result of `server/discover`."""
        out: Object = {
            "resultType": "complete",
            "supportedVersions": list(self.versions),
            "capabilities": self.capabilities,
            "_meta": {SERVER_INFO: self.info},
            "ttlMs": self.ttl_ms or 0,
            "cacheScope": self.scope or "private",
        }
        return self._instructed(out)

    def _instructed(self, out: Object) -> Object:
        if self.instructions is not None:
            out["instructions"] = self.instructions
        return out


def discover_request(request_id: RequestId, meta: Meta) -> Request:
    return Request(request_id, "server/discover", with_meta({}, meta))


def initialize_request(
    request_id: RequestId, client: Object, capabilities: Object | None = None, version: str = LATEST_HANDSHAKE
) -> Request:
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
    return Request(request_id, "initialize", params)


def read_hello(params: Object) -> Hello:
    """What `initialize` says; RpcError where it does not say which version it speaks."""
    version = params.get("protocolVersion")
    if type(version) is not str:
        words = "is missing" if version is None else f"is a string, not {kind_of(version)}"
        raise RpcError(INVALID_PARAMS, f"protocolVersion {words}", pointer="/params/protocolVersion")
    capabilities, client = params.get("capabilities"), params.get("clientInfo")
    return Hello(version, capabilities if type(capabilities) is dict else {}, client if type(client) is dict else {})


def read_initialized(result: Object) -> ServerCard:
    return ServerCard(
        (string(result, "protocolVersion"),),
        obj(result.get("capabilities") or {}, "capabilities"),
        obj(result.get("serverInfo") or {}, "serverInfo"),
        optional_string(result, "instructions"),
    )


def read_discovered(result: Object) -> ServerCard:
    versions = result.get("supportedVersions")
    known = tuple(one for one in versions if type(one) is str) if type(versions) is list else ()
    meta = obj(result.get("_meta") or {}, "_meta")
    return ServerCard(
        known,
        obj(result.get("capabilities") or {}, "capabilities"),
        obj(meta.get(SERVER_INFO) or {}, "_meta", SERVER_INFO),
        optional_string(result, "instructions"),
        integer(result, "ttlMs"),
        optional_string(result, "cacheScope"),
    )
