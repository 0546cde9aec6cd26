"""A store with its queues, and workers as processes that are killed at the end of a test."""

import importlib.util
import os

import pytest

from stores import servers as store_servers
from stores.servers import PROCESSES
from waiting import wait_until

if importlib.util.find_spec("dbos") is None and not os.environ.get("CI"):
    collect_ignore_glob = ["test_*"]
PROCESSES.set_forkserver_preload(
    ["pytest", "jsonschema_rs", "dbos", "toolwire.durable.worker", "toolwire.testing.models"]
)


@pytest.fixture(scope="session")
def postgres():
    server = store_servers.Postgres()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The address of an empty store without queues."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    server = request.getfixturevalue("postgres")
    server.execute("DROP SCHEMA IF EXISTS dbos CASCADE")
    return server.fresh(tmp_path)


@pytest.fixture
def runs(url):
    from toolwire.durable import DurableRuns

    with DurableRuns(url) as opened:
        yield opened


@pytest.fixture
def start_worker(url, tmp_path):
    """Start a process that executes the runs; it is killed at the end."""
    from durable.program import work

    processes = []

    def start(**options):
        process = PROCESSES.Process(target=work, args=(url, tmp_path), kwargs=options)
        process.start()
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.join()


@pytest.fixture
def block_at(tmp_path):
    """Let the next run that comes to a point stop there; return a function that waits until it does."""

    def block(point):
        (tmp_path / "point").write_text(point)

        def wait():
            wait_until((tmp_path / "reached").exists, 0.05)
            (tmp_path / "point").unlink()
            (tmp_path / "reached").unlink()

        return wait

    return block


@pytest.fixture
def kill_at(start_worker, block_at):
    """Start a worker and kill it when it has reached a point."""

    def kill(point, **options):
        wait = block_at(point)
        worker = start_worker(**options)
        wait()
        worker.kill()
        worker.join()

    return kill
