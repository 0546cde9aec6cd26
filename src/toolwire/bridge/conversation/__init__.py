"""The conversation in a request: its normal form and names, and its state between two requests."""
