"""Infer schemas from Python functions and types."""
