"""Schemas: from type hints to JSON Schema."""
