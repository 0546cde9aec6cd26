"""MCP tool declarations: decode, encode, list.

MCP carries no conversations with a model, so this is not a wire in the sense of `protocol.Wire`. It is a codec for
declarations only; the protocol itself is in `toolwire.mcp.protocol`.

    tools      declarations, annotations ↔ effects
    versions   the protocol versions and their eras
"""

from __future__ import annotations

from .tools import DETECTION, NAME, declarations, decode_tools, encode_tools, list_tools

__all__ = ["DETECTION", "NAME", "declarations", "decode_tools", "encode_tools", "list_tools"]
