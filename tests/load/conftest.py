"""A server of Redis or PostgreSQL for a scenario, which may kill it."""

import importlib.util
import os

import pytest

from stores.servers import Postgres, Redis


@pytest.fixture(params=[Redis, Postgres], ids=["redis", "postgres"])
def state_server(request):
    if importlib.util.find_spec(request.param.package) is None and not os.environ.get("CI"):
        pytest.skip(f"{request.param.package} is not installed")
    server = Redis(keeps=False) if request.param is Redis else Postgres()
    yield server
    server.stop()
