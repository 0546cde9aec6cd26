"""Upstreams and targets: configuration, health, and the choice for a request."""
