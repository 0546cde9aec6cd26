"""Publish a toolbox as an MCP server, over stdio and HTTP, in both protocol eras."""
