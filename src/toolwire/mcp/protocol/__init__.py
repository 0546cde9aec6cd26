"""The MCP protocol, sans-IO: JSON-RPC messages, handshake and stateless requests, calls, content, lists, headers.

    rpc        messages, to bytes and back; RpcError    meta           `_meta`: version, trace, progress, idempotency key
    content    content blocks ↔ parts                   calls          tools/call: ToolCall → ToolResult | InputRequired
    discovery  initialize, server/discover, lists       notifications  progress, cancellation, logs
    headers    headers of stateless HTTP

Versions and tool declarations are in `toolwire.wire.mcp`, the codec that translates declarations between wires.
"""
