"""The runs of `toolwire test` in one process share their fork servers: starting one takes 0.4 s of CPU."""

import pytest

from toolwire.testing.tool_tests import worker


@pytest.fixture(scope="session")
def idle_servers():
    idle = []
    yield idle
    for server in idle:
        server.close()


@pytest.fixture(autouse=True)
def shared_fork_servers(idle_servers, monkeypatch):
    """Take servers of earlier runs that still answer, and keep those that no child uses at the end of a run."""
    start = worker._ForkServer

    def take(hash_seed):
        fitting = (server for server in idle_servers if server.hash_seed == hash_seed and not server.has_ended)
        server = next(fitting, None)
        if server is None:
            return start(hash_seed)
        idle_servers.remove(server)
        return server

    def close(servers):
        for server in servers._busy:
            server.close()
        idle_servers.extend(servers._idle)

    monkeypatch.setattr(worker, "_ForkServer", take)
    monkeypatch.setattr(worker.ForkServers, "close", close)
