"""Recorded runs and exchanges: the trace format, replay, and the removal of secrets."""
