"""The real stores with which the fake ones are compared."""

from stores.conftest import server, servers, store, store_url

__all__ = ["server", "servers", "store", "store_url"]
