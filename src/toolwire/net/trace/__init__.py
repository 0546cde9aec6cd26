"""Observation of runs: trace files, their replay, and OpenTelemetry."""
