"""Running tools: toolboxes, gates, scheduling, idempotency, the agent loop. Sans-IO: drivers are in `toolwire.net`."""
