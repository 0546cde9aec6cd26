"""Validate values: patterns and formats, the cost of a check, and problems that a model can act on."""
