"""Run tools: toolboxes, gates, scheduling, idempotency, the agent loop. Sans-IO: the drivers are in `toolwire.net`."""
