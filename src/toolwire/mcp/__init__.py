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
    from .client.client import Handlers as Handlers
    from .client.client import McpClient as McpClient
    from .client.client import accept_defaults as accept_defaults
    from .client.config import ServerSpec as ServerSpec
    from .client.failures import NotAuthorized as NotAuthorized
    from .client.failures import ServerGone as ServerGone
    from .client.failures import ServerRefused as ServerRefused
    from .client.listing import ServerProblem as ServerProblem
    from .client.login import Browser as Browser
    from .client.login import Login as Login
    from .client.servers import McpServers as McpServers
    from .server.conversation import Conversation as Conversation
    from .server.http import Guard as Guard
    from .server.http import HttpApp as HttpApp
    from .server.offers import prompt as prompt
    from .server.offers import resource as resource
    from .server.request_context import current_exchange as current_exchange
    from .server.server import Server as Server
    from .server.stdio import serve_stdio as serve_stdio
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "client.client": "Handlers McpClient accept_defaults",
            "client.config": "ServerSpec",
            "client.failures": "NotAuthorized ServerGone ServerRefused",
            "client.listing": "ServerProblem",
            "client.login": "Browser Login",
            "client.servers": "McpServers",
            "server.conversation": "Conversation",
            "server.http": "Guard HttpApp",
            "server.offers": "prompt resource",
            "server.request_context": "current_exchange",
            "server.server": "Server",
            "server.stdio": "serve_stdio",
        },
    )
