"""MCP servers as toolboxes: processes that we start and addresses, both eras.

McpServers   several, from an `mcpServers` configuration       toolwire.mcp.client.servers
McpClient    one of them                                       toolwire.mcp.client.client
ServerSpec   where it is, and how far it is trusted            toolwire.mcp.client.config
Handlers     what a server may ask its client                  toolwire.mcp.client.questions
Login        who we are, by OAuth                              toolwire.mcp.client.login
ServerGone, ServerRefused, NotAuthorized                       toolwire.mcp.client.failures
"""

from __future__ import annotations

from .client import McpClient
from .config import ServerSpec
from .failures import NotAuthorized, ServerGone, ServerRefused
from .listing import Problem
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
    "Problem",
    "ServerGone",
    "ServerRefused",
    "ServerSpec",
    "accept_defaults",
]
