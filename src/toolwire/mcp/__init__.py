"""MCP for toolboxes: publish one to every client, both eras, stdio and HTTP.

Server       the published tools, resources, prompts  toolwire.mcp.server
serve_stdio  serve on standard input and output       toolwire.mcp.stdio
HttpApp      serve over HTTP, an ASGI app             toolwire.mcp.http
resource, prompt                                      toolwire.mcp.offers
current_exchange: progress, logs, questions           toolwire.mcp.request_context

The client side, which uses MCP servers as toolboxes, is toolwire.mcp.client.
"""

from __future__ import annotations

from .http import HttpApp
from .offers import prompt, resource
from .request_context import current_exchange
from .server import Server
from .stdio import serve_stdio

__all__ = ["HttpApp", "Server", "current_exchange", "prompt", "resource", "serve_stdio"]
