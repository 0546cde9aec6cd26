"""One client request, from routing to the last byte of its answer."""
