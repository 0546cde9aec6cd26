"""Agents: the loop between a model and its tools, answers, checkpoints, subagents."""
