"""State that gateway processes share: limits, turns, cooldowns, stored responses and usage."""
