"""The HTTP/1.1 client: transports, connections, pools, TLS and proxies."""
