"""Fit the parts of a request to a target: tools, schemas, messages, parameters, reasoning and cache marks."""
