"""One suite over all stores: each server is started once a worker, each test gets it empty."""

import importlib.util
import itertools
import os

import pytest

from stores import servers as store_servers
from stores.servers import open_test_store
from toolwire.run.values.records import Claim

NAMES = ("memory", "sqlite", "redis", "postgres")


@pytest.fixture(scope="session")
def servers():
    """By name, started at the first use."""
    started = {}

    def server(name):
        if name not in started:
            kind = getattr(store_servers, name.capitalize())
            package = getattr(kind, "package", None)
            if package and importlib.util.find_spec(package) is None and not os.environ.get("CI"):
                pytest.skip(f"{package} is not installed")
            started[name] = kind()
        return started[name]

    yield server
    for each in started.values():
        each.stop()


@pytest.fixture(params=NAMES)
def server(request, servers):
    return servers(request.param)


@pytest.fixture
def store_url(server, tmp_path):
    """The URL of an empty store."""
    return server.fresh(tmp_path)


@pytest.fixture
def store(store_url):
    opened = open_test_store(store_url)
    yield opened
    opened.close()


@pytest.fixture
def new_claim():
    """Claims, each with a token of its own."""
    tokens = (f"token {number}" for number in itertools.count(1))

    def make(key="k", **fields):
        return Claim(**{"key": key, "tool": "pay", "fingerprint": "f", "token": next(tokens), **fields})

    return make
