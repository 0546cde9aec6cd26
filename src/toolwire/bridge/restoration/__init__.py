"""Restore an answer in the terms of its request: arguments, structured output, fields of the provider."""
