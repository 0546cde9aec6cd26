"""`toolwire learn`: train and evaluate open models."""
