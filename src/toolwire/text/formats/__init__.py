"""Text formats: one module per notation, each with `Format` values, on the styles and the engine beside it."""
