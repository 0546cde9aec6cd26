"""A server's description of itself, and the pages of its lists, both with the time for which they may be cached."""

from __future__ import annotations

from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...stream.strict import type_label
from ...wire.fields import read_integer, read_optional_string, read_string, require_object, type_error
from ...wire.mcp.versions import KNOWN, LATEST_HANDSHAKE, STATELESS
from .meta import SERVER_INFO, Meta, with_meta
from .rpc import INVALID_PARAMS, Notification, RequestId, RpcError, RpcRequest

# The first exchange of client and server: `initialize` in the handshake era, `server/discover` in the stateless era.
#
# Either way the client gets a `ServerCard`. A client of both eras sends `server/discover` first, and falls back to
# `initialize` on any error that is not specific to modern servers (`errors.is_modern`).


INITIALIZED = Notification("notifications/initialized")
"""Sent by a client after the answer to `initialize`."""


class InitializeParams(Value, frozen=True):
    """The client's description of itself in `initialize`."""

    version: str
    capabilities: Object = {}
    client: Object = {}


class ServerCard(Value, frozen=True):
    """The server's description of itself. `ttl_ms` and `scope`: for how long, and for whom, it may be cached."""

    versions: tuple[str, ...] = KNOWN
    capabilities: Object = {}
    info: Object = {}
    instructions: str | None = None
    ttl_ms: int | None = None
    scope: str | None = None

    def initialize_result(self, version: str) -> Object:
        """Return the result of `initialize`."""
        out: Object = {"protocolVersion": version, "capabilities": self.capabilities, "serverInfo": self.info}
        return self._with_instructions(out)

    def discovered(self) -> Object:
        """Return the result of `server/discover`."""
        out: Object = {
            "resultType": "complete",
            "supportedVersions": list(self.versions),
            "capabilities": self.capabilities,
            "_meta": {SERVER_INFO: self.info},
            "ttlMs": self.ttl_ms or 0,
            "cacheScope": self.scope or "private",
        }
        return self._with_instructions(out)

    def _with_instructions(self, out: Object) -> Object:
        if self.instructions is not None:
            out["instructions"] = self.instructions
        return out


def discover_request(request_id: RequestId, meta: Meta) -> RpcRequest:
    return RpcRequest(request_id, "server/discover", with_meta({}, meta))


def initialize_request(
    request_id: RequestId, client: Object, capabilities: Object | None = None, version: str = LATEST_HANDSHAKE
) -> RpcRequest:
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
    return RpcRequest(request_id, "initialize", params)


def read_initialize(params: Object) -> InitializeParams:
    """Read the params of `initialize`. Raise RpcError if they do not state a version."""
    version = params.get("protocolVersion")
    if type(version) is not str:
        problem = "is missing" if version is None else f"must be a string, got {type_label(version)}"
        raise RpcError(INVALID_PARAMS, f"protocolVersion {problem}", pointer="/params/protocolVersion")
    capabilities, client = params.get("capabilities"), params.get("clientInfo")
    return InitializeParams(
        version, capabilities if type(capabilities) is dict else {}, client if type(client) is dict else {}
    )


def read_initialized(result: Object) -> ServerCard:
    """Read the result of `initialize`. `versions` of the card is the one version that the server chose."""
    return ServerCard(
        (read_string(result, "protocolVersion"),),
        require_object(result.get("capabilities") or {}, "capabilities"),
        require_object(result.get("serverInfo") or {}, "serverInfo"),
        read_optional_string(result, "instructions"),
    )


def read_discovered(result: Object) -> ServerCard:
    """Read the result of `server/discover`, in which the server's name is in `_meta`."""
    versions = result.get("supportedVersions")
    known = tuple(item for item in versions if type(item) is str) if type(versions) is list else ()
    meta = require_object(result.get("_meta") or {}, "_meta")
    return ServerCard(
        known,
        require_object(result.get("capabilities") or {}, "capabilities"),
        require_object(meta.get(SERVER_INFO) or {}, "_meta", SERVER_INFO),
        read_optional_string(result, "instructions"),
        read_integer(result, "ttlMs"),
        read_optional_string(result, "cacheScope"),
    )


# Pages of lists. Since 2026-07-28 they state the time for which they may be cached.


class Page(Value, frozen=True):
    """Items in their raw form, and the cursor of the next page, or None on the last page."""

    items: list[JSON]
    cursor: str | None = None
    ttl_ms: int | None = None
    scope: str | None = None

    def to_json(self, key: str, *, version: str, server: Object | None = None) -> Object:
        """Return the result of a list request; `key` is "tools", "resources", …"""
        out: Object = {key: self.items}
        if self.cursor is not None:
            out["nextCursor"] = self.cursor
        if version in STATELESS:
            out.update(resultType="complete", ttlMs=self.ttl_ms or 0, cacheScope=self.scope or "private")
            if server is not None:
                out["_meta"] = {SERVER_INFO: server}
        return out


def list_request(request_id: RequestId, method: str, meta: Meta, cursor: str | None = None) -> RpcRequest:
    """Build a list request; `method` is "tools/list", "resources/list", …"""
    return RpcRequest(request_id, method, with_meta({} if cursor is None else {"cursor": cursor}, meta))


def read_page(result: Object, key: str) -> Page:
    """Read a page. Raise ProtocolError if it has no such list."""
    items = result.get(key)
    if type(items) is not list:
        raise type_error("an array", items, key)
    cursor = read_optional_string(result, "nextCursor") or None
    return Page(items, cursor, read_integer(result, "ttlMs"), read_optional_string(result, "cacheScope"))
