"""`toolwire serve`: run and manage the gateway."""
