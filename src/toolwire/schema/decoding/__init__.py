"""Convert schemas for constrained decoding."""
