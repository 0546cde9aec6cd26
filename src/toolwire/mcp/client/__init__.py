"""MCP servers as toolboxes: processes that the client starts, and URLs, both eras.

McpServers   several servers, from an `mcpServers` configuration   toolwire.mcp.client.servers
McpClient    one server                                            toolwire.mcp.client.client
ServerSpec   its command or URL, and its trust settings            toolwire.mcp.client.config
Handlers     answers to questions of a server                      toolwire.mcp.client.questions
Login        authorization by OAuth                                toolwire.mcp.client.login
ServerGone, ServerRefused, NotAuthorized                           toolwire.mcp.client.failures
"""

from __future__ import annotations

from .client import McpClient
from .config import ServerSpec
from .failures import NotAuthorized, ServerGone, ServerRefused
from .listing import ServerProblem
from .login import Browser, Login
from .questions import Handlers, accept_defaults
from .servers import McpServers

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
