"""The agent loop, sans-IO: its state, its stored events, and the requests that it makes."""
