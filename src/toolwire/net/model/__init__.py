"""Model clients: resolve an endpoint, send a request, and restore the response."""
