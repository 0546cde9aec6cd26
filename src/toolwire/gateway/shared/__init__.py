"""State that requests and gateway processes share: keys, rate limits, turns, Redis."""
