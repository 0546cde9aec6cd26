"""Translate from one wire to another: fit a request to its target, restore the answer, report every loss."""
