"""Execution of tool calls: scheduling, approval, invocation, isolation."""
