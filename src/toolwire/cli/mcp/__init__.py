"""`toolwire mcp`: publish tools over MCP and use MCP servers."""
