"""A gateway over HTTP, for clients and upstreams of any wire (extra `gateway`)."""
