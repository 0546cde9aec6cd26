"""`toolwire with`: run a command whose model requests go through a gateway of its own."""
