"""The tools of the MCP server of the task `mcp`: `toolwire mcp serve adder.py --http :8000`."""

import toolwire


@toolwire.tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
