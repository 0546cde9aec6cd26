"""The gateway's own tools as an MCP server at `/mcp`, for the same clients with the same keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..asgi.access import AccessDenied, OriginPolicy, RequestRefused
from ..asgi.access import Guard as McpGuard
from ..asgi.request import Receive, Scope, Send
from ..ir.errors import ToolwireError
from ..mcp.server.http import HttpApp
from ..mcp.server.server import Server
from .keys import ClientKeys


class McpMount:
    """An MCP server with the access checks of the gateway.

    `access` returns the current checks and the model pattern of the tools. A key that allows none of these models does
    not allow the tools either.
    """

    def __init__(self, server: Server, access: Callable[[], tuple[OriginPolicy, ClientKeys, str]]) -> None:
        self.server = server
        self._app = HttpApp(server, path=None, guard=_GatewayAccess(access))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def end_sessions(self) -> None:
        """Close streams that would stay open as long as the server runs."""
        await self._app.close()

    async def aclose(self) -> None:
        await self._app.close()
        self.server.close()
        await self.server.runner.aclose()


class _GatewayAccess(McpGuard):
    """The access checks of the gateway, for MCP clients."""

    def __init__(self, access: Callable[[], tuple[OriginPolicy, ClientKeys, str]]) -> None:
        super().__init__()
        self._access = access

    def check_address(self, address: Sequence[object] | None) -> None:
        """Accept every address: without keys the gateway listens on this machine only."""

    def admit(self, headers: Mapping[str, str]) -> str:
        """Return the key's name. Raise AccessDenied if the host, the origin, the key or its models are not accepted."""
        origin_policy, keys, models = self._access()
        try:
            origin_policy.check([(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()])
            caller = keys.identify(headers, {})
            if not caller.may_use_any_of(models):
                raise RequestRefused(f"the key {caller.name!r} does not allow the models that have these tools")
            return caller.name
        except ToolwireError as error:
            challenge = ((b"www-authenticate", b'Bearer realm="mcp"'),) if error.status == 401 else ()
            raise AccessDenied(error.status, str(error), challenge) from None
