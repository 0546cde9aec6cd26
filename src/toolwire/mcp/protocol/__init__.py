"""The MCP protocol, sans-IO: JSON-RPC messages, handshake and stateless requests, calls, content, lists, headers.

    rpc        messages, to bytes and back              meta           `_meta`: version, trace, progress, idempotency key
    errors     JSON-RPC errors: RpcError                calls          tools/call: ToolCall → ToolResult | InputRequired
    content    content blocks ↔ parts                   lists          pages, and the time for which they may be cached
    handshake  initialize, server/discover              notifications  progress, cancellation, logs
    headers    headers of stateless HTTP

Versions and tool declarations are in `toolwire.wire.mcp`, the codec that translates declarations between wires.
"""
