"""MCP for toolboxes: publish one to every client, both eras, stdio and HTTP.

Server       the published tools, resources, prompts  toolwire.mcp.server.server
serve_stdio  serve on standard input and output       toolwire.mcp.server.stdio
HttpApp      serve over HTTP, an ASGI app             toolwire.mcp.server.http
resource, prompt                                      toolwire.mcp.server.offers
current_exchange: progress, logs, questions           toolwire.mcp.server.request_context

The client side, which uses MCP servers as toolboxes, is toolwire.mcp.client.
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .client.client import Handlers, McpClient, accept_defaults
    from .client.config import ServerSpec
    from .client.failures import NotAuthorized, ServerGone, ServerRefused
    from .client.listing import ServerProblem
    from .client.login import Browser, Login
    from .client.servers import McpServers
    from .server.conversation import Conversation
    from .server.http import Guard, HttpApp
    from .server.offers import prompt, resource
    from .server.request_context import current_exchange
    from .server.server import Server
    from .server.stdio import serve_stdio
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "server.server": ("Server",),
            "server.http": ("Guard", "HttpApp"),
            "server.stdio": ("serve_stdio",),
            "server.offers": ("prompt", "resource"),
            "server.request_context": ("current_exchange",),
            "server.conversation": ("Conversation",),
            "client.client": ("Handlers", "McpClient", "accept_defaults"),
            "client.servers": ("McpServers",),
            "client.config": ("ServerSpec",),
            "client.login": ("Browser", "Login"),
            "client.failures": ("NotAuthorized", "ServerGone", "ServerRefused"),
            "client.listing": ("ServerProblem",),
        },
    )

__all__ = [
    "Browser",
    "Conversation",
    "Guard",
    "Handlers",
    "HttpApp",
    "Login",
    "McpClient",
    "McpServers",
    "NotAuthorized",
    "Server",
    "ServerGone",
    "ServerProblem",
    "ServerRefused",
    "ServerSpec",
    "accept_defaults",
    "current_exchange",
    "prompt",
    "resource",
    "serve_stdio",
]
