"""A worker process of `toolwire serve --workers N`, as it sees itself: its signals, sockets, folder and parent.

read       the number, the descriptors and the folder from one environment variable, which is removed
listen     on the socket that all workers share; publish heartbeats and connections in the `WorkerTable`
report     the banner to the parent, over the channel, once requests are accepted
end        on a signal of the parent, or when the channel closes: then the parent is gone
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Callable, MutableMapping, Sized
from pathlib import Path
from ssl import SSLContext
from tempfile import TemporaryFile

import msgspec
from msgspec import Struct

from ...asgi.accepting import BATCH, BatchListener

# The parent passes them in an environment variable, and open descriptors under the same numbers.
#
# All workers accept from one listening socket. So a connection never waits for a worker that is starting, draining,
# frozen or dead: any other worker takes it. With a socket for each worker (SO_REUSEPORT) the kernel would choose the
# worker before it is known to be able to accept, and closing such a socket resets the connections in its queue
# (`net.ipv4.tcp_migrate_req` is off by default).
#
# The kernel wakes all idle workers for a connection, and the first of them takes it, which is mostly the same. So the
# workers balance themselves: they publish their numbers of connections in a `WorkerTable`, and a worker with more
# connections than another waits for a moment before it accepts.


HEARTBEAT_INTERVAL = 1.0
"""Seconds between two heartbeats of a worker: a thirtieth of the default limit, so a few late ones are no alarm."""
_YIELD = 0.002  # seconds; an idle worker takes a connection in a fraction of this, and a client does not notice it
_NOT_ACCEPTING = -1  # in place of a number of connections
_NAME = "TOOLWIRE_WORKER"
_KEY_MARK = "requires-key"
_SIGNING_MARK = "signing"  # the file with the secret


def share_secret(folder: Path, secret: str) -> None:
    """Write the secret for the workers into the folder of their gateway, which only its user can read."""
    path = folder / _SIGNING_MARK
    path.touch(mode=0o600)
    path.write_text(secret)


class WorkerTable:
    """A row for each worker: its number of heartbeats, and of connections.

    The parent creates it as an unlinked file, which no other program can truncate or delete.
    """

    _row = struct.Struct("=qq")

    def __init__(self, descriptor: int, count: int) -> None:
        self.descriptor = descriptor
        self.count = count

    @classmethod
    def create(cls, count: int) -> WorkerTable:
        with TemporaryFile() as file:
            table = cls(os.dup(file.fileno()), count)
        for number in range(count):  # this also reserves its block, so that no later write fails
            table.write(number, 0, _NOT_ACCEPTING)
        return table

    def write(self, number: int, heartbeats: int, connections: int) -> None:
        os.pwrite(self.descriptor, self._row.pack(heartbeats, connections), number * self._row.size)

    def reset(self, number: int) -> None:
        """Note that a worker does not accept connections any more."""
        self.write(number, 0, _NOT_ACCEPTING)

    def heartbeats(self) -> list[int]:
        return [heartbeats for heartbeats, _ in self._rows()]

    def least_of_others(self, number: int) -> int | None:
        """Return the smallest number of connections of another worker, or None if no other worker accepts any."""
        others = [row[1] for other, row in enumerate(self._rows()) if other != number and row[1] != _NOT_ACCEPTING]
        return min(others, default=None)

    def _rows(self) -> list[tuple[int, int]]:
        return list(self._row.iter_unpack(os.pread(self.descriptor, self.count * self._row.size, 0)))

    def close(self) -> None:
        os.close(self.descriptor)


class SharedListener(BatchListener):
    """Accept connections from a socket that all workers share, and publish heartbeats from the event loop."""

    def __init__(
        self,
        worker: WorkerProcess,
        make_protocol: Callable[[], asyncio.Protocol],
        connections: Sized,
        limit: int,
        ssl: SSLContext | None,
    ) -> None:
        super().__init__(worker.listener, make_protocol, connections, limit, ssl)
        self._table = worker.table
        self._number = worker.number
        self._heartbeats = 0
        self._least: int | None = 0  # connections of another worker, when this one yielded to it
        self._share = 1  # connections to accept after yielding

    def start(self) -> None:
        super().start()
        self._beat()

    def close(self) -> None:
        """Stop accepting. If no other worker accepts, take the connections that wait, which would be reset."""
        if self._stop():
            self._publish()
            if self._table.least_of_others(self._number) is None:
                self._accept_all()
            self._socket.close()

    def _beat(self) -> None:
        """Publish a heartbeat, also while the worker drains."""
        self._heartbeats += 1
        self._publish()
        self._loop.call_later(HEARTBEAT_INTERVAL, self._beat)

    def _publish(self) -> None:
        count = len(self._connections) + len(self._connecting)
        self._table.write(self._number, self._heartbeats, count if self._is_open else _NOT_ACCEPTING)

    def _on_connection(self) -> None:
        """Accept connections up to one more than the least of the other workers, or let these accept first."""
        self._publish()
        least = self._table.least_of_others(self._number)
        room = BATCH if least is None else least + 1 - len(self._connections) - len(self._connecting)
        if room > 0:
            self._accept(min(room, BATCH))
        else:
            # If the least is the same as last time, that worker did not use its turn: this one accepts more.
            self._share = min(2 * self._share, BATCH) if least == self._least else 1
            self._least = least
            self._pause(_YIELD)

    def _resume(self) -> None:
        """Accept connections that no other worker has accepted in the meantime."""
        super()._resume()
        self._accept(self._share)


class WorkerVariable(Struct, frozen=True):
    """The value of the environment variable: the number of the worker, descriptors, and the shared folder."""

    number: int
    count: int  # of all workers
    listener: int
    channel: int
    table: int
    folder: str
    requires_key: bool  # the gateway had keys at its start

    def to_environment(self) -> dict[str, str]:
        return {_NAME: msgspec.json.encode(self).decode()}


class ReadyMessage(Struct, frozen=True):
    """The message to the parent that requests are accepted. The parent prints the banner of one worker."""

    banner: str


class WorkerProcess:
    """The current process as a worker. `folder` is shared by the workers of one gateway."""

    def __init__(self, variable: WorkerVariable) -> None:
        """Take over the descriptors of the parent, and keep programs that this process starts from inheriting them."""
        self.number = variable.number
        self.folder = Path(variable.folder)
        self._requires_key = variable.requires_key
        self.table = WorkerTable(variable.table, variable.count)
        self.listener = socket.socket(fileno=variable.listener)
        self._channel = socket.socket(fileno=variable.channel)
        for inherited in (self.listener, self._channel):
            inherited.set_inheritable(False)
            inherited.setblocking(False)
        os.set_inheritable(variable.table, False)

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str]) -> WorkerProcess | None:
        """Return the worker that this process is, and remove the variable, or return None if it is no worker."""
        value = environment.pop(_NAME, None)
        return None if value is None else cls(msgspec.json.decode(value, type=WorkerVariable))

    @property
    def requires_key(self) -> bool:
        """Return whether a worker has had keys, for a worker that starts after the last key was revoked."""
        return self._requires_key or (self.folder / _KEY_MARK).exists()

    def require_key(self) -> None:
        """Let all workers that start from now on require a key."""
        (self.folder / _KEY_MARK).touch()

    def read_secret(self) -> str:
        """Return the secret that the parent shares with its workers."""
        return (self.folder / _SIGNING_MARK).read_text()

    def report_ready(self, banner: str) -> None:
        """Report to the parent that requests are accepted."""
        self._channel.setblocking(True)
        self._channel.sendall(msgspec.json.encode(ReadyMessage(banner)) + b"\n")
        self._channel.setblocking(False)

    async def stop_with_parent(self) -> None:
        """Stop this process as SIGTERM does when the parent has ended, because no signal would arrive any more."""
        loop = asyncio.get_running_loop()
        try:
            while await loop.sock_recv(self._channel, 1024):
                continue  # the parent sends nothing
        except ConnectionError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
