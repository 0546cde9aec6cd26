"""Workers publish heartbeats and connections in a table; the parent counts the ticks without a heartbeat."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolwire.gateway.processes import workers
from toolwire.gateway.processes.worker_process import SharedListener, WorkerProcess, WorkerTable
from toolwire.gateway.processes.workers import WorkerPool, _WorkerSlot
from waiting import until


@pytest.fixture
def table():
    table = WorkerTable.create(3)
    yield table
    table.close()


@pytest.mark.finding("OP4")
def test_worker_is_frozen_only_after_ticks_of_the_parent_without_a_heartbeat(table):
    slot = _WorkerSlot(1, None, table, Path(), requires_key=False)
    assert not any(slot.is_frozen(0, 1.0) for _ in range(9))  # no process
    slot._process = SimpleNamespace(returncode=None)
    starting = [slot.is_frozen(0, 1.0) for _ in range(6)]
    assert starting == [False] * 4 + [True] * 2  # a start may take four times as long
    slot._is_ready = True
    assert [slot.is_frozen(beats, 1.0) for beats in (1, 1, 1, 2, 2, 5, 5)] == [False, False, True, *[False] * 4]
    slot._process = SimpleNamespace(returncode=-9)
    assert not any(slot.is_frozen(5, 1.0) for _ in range(9))  # it waits for its restart


def test_least_connections_are_those_of_the_others_that_accept(table):
    assert table.least_of_others(0) is None
    table.write(0, 1, 2)
    assert table.least_of_others(0) is None
    table.write(1, 1, 9)
    table.write(2, 1, 4)
    assert (table.least_of_others(0), table.least_of_others(2)) == (4, 2)
    table.reset(2)
    assert table.least_of_others(0) == 9
    assert table.heartbeats() == [1, 1, 0]


class Protocol(asyncio.Protocol):
    """A protocol that adds itself to `connections`, as a server's connection does."""

    connections = None
    has_shut_down = False

    def connection_made(self, transport):
        self.transport = transport
        self.connections.append(self)

    def shutdown(self):
        self.has_shut_down = True
        self.transport.close()


def make_listener(table, number, listener):
    worker = object.__new__(WorkerProcess)
    worker.number, worker.table, worker.listener = number, table, listener
    connections = []
    kind = type("OwnProtocol", (Protocol,), {"connections": connections})
    return SharedListener(worker, kind, connections, 100, None), connections


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0), backlog=100) as found:
        found.setblocking(False)
        yield found


def connect(listener, count):
    """Connect without a turn of the event loop: the kernel completes a connection before it is accepted."""
    return [socket.create_connection(listener.getsockname()) for _ in range(count)]


def test_workers_with_a_shared_socket_get_as_many_connections(table, listener):
    async def run():
        second = listener.dup()
        second.setblocking(False)
        workers = [make_listener(table, number, one) for number, one in enumerate((listener, second))]
        for worker, _ in workers:
            worker.start()
        clients = connect(listener, 40)
        await until(lambda: sum(len(connections) for _, connections in workers) == 40)
        found = sorted(len(connections) for _, connections in workers)
        for worker, _ in workers:
            worker.close()
        for client in clients:
            client.close()
        return found

    least, most = asyncio.run(run())
    assert least + most == 40
    assert least >= 15


@pytest.mark.finding("OP4")
@pytest.mark.parametrize("other_accepts", [True, False])
def test_last_worker_takes_the_waiting_connections_when_it_stops(table, listener, other_accepts):
    async def run():
        if other_accepts:
            table.write(1, 1, 0)
        worker, connections = make_listener(table, 0, listener)
        worker.start()
        keeper = listener.dup()  # of the parent or another worker
        clients = connect(listener, 5)
        worker.close()
        await until(lambda: other_accepts or sum(protocol.has_shut_down for protocol in connections) == 5)
        shut_down = [protocol.has_shut_down for protocol in connections]
        keeper.close()
        for client in clients:
            client.close()
        return shut_down

    # a connection whose protocol is made after the stop is closed after its first request
    assert asyncio.run(run()) == ([] if other_accepts else [True] * 5)


@pytest.mark.finding("OP4")
def test_stop_also_ends_a_worker_that_is_frozen_in_its_start(tmp_path, listener, monkeypatch):
    monkeypatch.setattr(workers, "_STOP_GRACE", 0.05)
    command = ["sleep", "1000"]  # it is never ready
    options = {"count": 1, "drain": 0.0, "heartbeat": 0.0, "on_reload": lambda: None, "requires_key": False}

    async def run():
        pool = WorkerPool(command, os.environ, listener, tmp_path, **options)
        running = asyncio.ensure_future(pool.run(lambda banner: None))
        await until(lambda: pool._workers[0]._is_running)
        process = pool._workers[0]._process
        os.kill(process.pid, signal.SIGSTOP)
        await until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T")
        os.kill(os.getpid(), signal.SIGTERM)
        return await running

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        assert asyncio.run(run()) == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.mark.finding("OP4")
def test_worker_that_ends_in_the_moment_of_the_stop_is_not_restarted(tmp_path, listener, monkeypatch):
    monkeypatch.setattr(workers, "_STABLE", 0.0)  # it is restarted without a delay
    options = {"count": 1, "drain": 0.0, "heartbeat": 0.0, "on_reload": lambda: None, "requires_key": False}

    async def run():
        pool = WorkerPool([], {}, listener, tmp_path, **options)
        starts = []

        async def end():
            asyncio.get_running_loop().call_soon(pool._stop)
            return -9

        async def start(*_):
            starts.append(listener.fileno())

        worker = SimpleNamespace(number=0, wait=end, start=start, stop=lambda: None, kill=lambda reason: None)
        pool._workers = [worker]
        return await pool._supervise(worker), starts

    assert asyncio.run(run()) == (0, [])
