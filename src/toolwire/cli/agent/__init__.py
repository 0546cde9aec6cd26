"""Commands that run an agent: `run`, `chat` and `runs`."""
