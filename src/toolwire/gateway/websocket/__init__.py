"""OpenAI Responses over WebSockets: messages of clients, and connections with their lanes."""
