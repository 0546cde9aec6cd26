"""Run tool calls, sans-IO: gates, policy, scheduling, at-most-once execution, observation."""
