"""A worker process of `toolwire serve --workers N`, as it sees itself: its sockets, its folder, its parent.

The parent passes them in an environment variable, and open sockets under the same numbers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import MutableMapping
from pathlib import Path

import msgspec
from msgspec import Struct

__all__ = ["ReadyMessage", "WorkerProcess", "WorkerVariable", "share_secret"]

_NAME = "TOOLWIRE_WORKER"
_KEY_MARK = "requires-key"
_SIGNING_MARK = "signing"  # the file with the secret


def share_secret(folder: Path, secret: str) -> None:
    """Write the secret for the workers into the folder of their gateway, which only its user can read."""
    path = folder / _SIGNING_MARK
    path.touch(mode=0o600)
    path.write_text(secret)


class WorkerVariable(Struct, frozen=True):
    """The value of the environment variable: the number of the worker, two descriptors, and the shared folder."""

    number: int
    listener: int
    channel: int
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
        self.number = variable.number
        self.folder = Path(variable.folder)
        self._requires_key = variable.requires_key
        self.listener = socket.socket(fileno=variable.listener)
        self._channel = socket.socket(fileno=variable.channel)
        for descriptor in (self.listener, self._channel):  # programs that tools start must not inherit them
            descriptor.set_inheritable(False)
            descriptor.setblocking(False)

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str]) -> WorkerProcess | None:
        """Return the worker that this process is, and remove the variable; None if it is no worker."""
        value = environment.pop(_NAME, None)
        return None if value is None else cls(msgspec.json.decode(value, type=WorkerVariable))

    @property
    def requires_key(self) -> bool:
        """Return whether a worker has had keys, for one that starts after the last key was revoked."""
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
