"""Lower schemas to the dialects of providers, and lift the arguments back."""
