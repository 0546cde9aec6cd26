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
    from .client import Handlers as Handlers
    from .client import McpClient as McpClient
    from .client import accept_defaults as accept_defaults
    from .config import ServerSpec as ServerSpec
    from .failures import NotAuthorized as NotAuthorized
    from .failures import ServerGone as ServerGone
    from .failures import ServerRefused as ServerRefused
    from .listing import ServerProblem as ServerProblem
    from .login import Browser as Browser
    from .login import Login as Login
    from .servers import McpServers as McpServers
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "client": "Handlers McpClient accept_defaults",
            "config": "ServerSpec",
            "failures": "NotAuthorized ServerGone ServerRefused",
            "listing": "ServerProblem",
            "login": "Browser Login",
            "servers": "McpServers",
        },
    )
