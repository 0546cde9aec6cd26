"""Portability rules for tools, requests, code and MCP configurations, and reports of their findings."""
