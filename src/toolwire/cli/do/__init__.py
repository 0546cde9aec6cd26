"""`toolwire do`: from a request to one command line."""
