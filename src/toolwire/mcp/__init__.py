"""MCP for toolboxes: publish one to every client, both eras, stdio and HTTP.

Server       the published tools, resources, prompts  toolwire.mcp.server.server
serve_stdio  serve on standard input and output       toolwire.mcp.server.stdio
HttpApp      serve over HTTP, an ASGI app             toolwire.mcp.server.http
resource, prompt                                      toolwire.mcp.server.offers
current_exchange: progress, logs, questions           toolwire.mcp.server.request_context

The client side, which uses MCP servers as toolboxes, is toolwire.mcp.client.
"""

from __future__ import annotations

from .server.http import HttpApp
from .server.offers import prompt, resource
from .server.request_context import current_exchange
from .server.server import Server
from .server.stdio import serve_stdio

__all__ = ["HttpApp", "Server", "current_exchange", "prompt", "resource", "serve_stdio"]
