"""Text formats: one module per model family, each with `Format` values, on the styles and the engine beside it."""
