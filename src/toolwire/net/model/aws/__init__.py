"""Credentials of AWS and signed requests, only for upstreams that use them."""
