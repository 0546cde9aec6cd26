"""Translate between wires: fit a request to its target, restore the answer, report every loss."""
