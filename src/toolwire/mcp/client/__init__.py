"""MCP servers as toolboxes: processes that the client starts, and URLs, both eras.

McpServers   several servers, from an `mcpServers` configuration   toolwire.mcp.client.servers
McpClient    one server                                            toolwire.mcp.client.client
ServerSpec   its command or URL, and its trust settings            toolwire.mcp.client.config
Handlers     answers to questions of a server                      toolwire.mcp.client.client
Login        authorization by OAuth                                toolwire.mcp.client.login
ServerGone, ServerRefused, NotAuthorized                           toolwire.mcp.client.failures
"""

from __future__ import annotations

from ..._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .client import Handlers, McpClient, accept_defaults
    from .config import ServerSpec
    from .failures import NotAuthorized, ServerGone, ServerRefused
    from .listing import ServerProblem
    from .login import Browser, Login
    from .servers import McpServers
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "client": ("Handlers", "McpClient", "accept_defaults"),
            "servers": ("McpServers",),
            "config": ("ServerSpec",),
            "login": ("Browser", "Login"),
            "failures": ("NotAuthorized", "ServerGone", "ServerRefused"),
            "listing": ("ServerProblem",),
        },
    )

__all__ = [
    "Browser",
    "Handlers",
    "Login",
    "McpClient",
    "McpServers",
    "NotAuthorized",
    "ServerGone",
    "ServerProblem",
    "ServerRefused",
    "ServerSpec",
    "accept_defaults",
]
