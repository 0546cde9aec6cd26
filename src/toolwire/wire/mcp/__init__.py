"""MCP: tool declarations, calls and results between programs. JSON-RPC, both eras, sans-IO.

MCP carries no conversations with a model, so this is not a wire in the sense of `protocol.Wire`. It provides the
building blocks of a server and a client.

    versions   the versions and their eras          rpc        messages, to bytes and back
    errors     JSON-RPC errors: RpcError            meta       `_meta`: version, trace, progress, idempotency key
    tools      declarations, annotations ↔ effects   calls      tools/call: ToolCall → ToolResult | InputRequired
    content    content blocks ↔ parts               lists      pages, and the time for which they may be cached
    greeting   initialize, server/discover          notices    progress, cancellation, logs
    headers    headers of stateless HTTP
"""

from __future__ import annotations

from .tools import DETECTION, NAME, declarations, decode_tools, encode_tools, list_tools

__all__ = ["DETECTION", "NAME", "declarations", "decode_tools", "encode_tools", "list_tools"]
