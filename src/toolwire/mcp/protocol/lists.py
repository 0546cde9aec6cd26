"""Pages of lists. Since 2026-07-28 they state the time for which they may be cached."""

from __future__ import annotations

from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...wire.fields import read_integer, read_optional_string, type_error
from ...wire.mcp.versions import STATELESS
from .errors import RequestId
from .meta import SERVER_INFO, Meta, with_meta
from .rpc import RpcRequest

__all__ = ["Page", "list_request", "read_page"]


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
