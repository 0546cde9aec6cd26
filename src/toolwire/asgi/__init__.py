"""Server-side HTTP that the gateway and MCP servers share: request reading, access and origin policy, disconnects."""
