"""A Redis and a PostgreSQL for the gateways of these tests, started once a worker, empty for each test."""

import importlib.util
import os

import pytest

from stores.servers import Postgres, Redis
from waiting import SAFETY


def _installed(kind):
    if importlib.util.find_spec(kind.package) is None and not os.environ.get("CI"):
        pytest.skip(f"{kind.package} is not installed")


@pytest.fixture(scope="session")
def redis_server():
    _installed(Redis)
    server = Redis(keeps=False)
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server, monkeypatch):
    """The address of an empty Redis. A link without a timeout of its own waits for a slow machine."""
    from toolwire.gateway.state.redis_link import RedisLink

    monkeypatch.setitem(RedisLink.__init__.__kwdefaults__, "timeout", SAFETY)
    return redis_server.fresh(None)


@pytest.fixture(scope="session")
def postgres_server():
    _installed(Postgres)
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server):
    postgres_server.execute("DROP TABLE IF EXISTS toolwire_usage")
    return postgres_server.url
