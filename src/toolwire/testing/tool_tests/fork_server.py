"""Start child processes quickly: a process that has imported the runtime forks itself for every start.

The forked process leads a session of its own, so that it is killed with everything that it starts. Each hash seed has
a server of its own, because the seed is fixed when an interpreter starts.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...ir.errors import ConfigError
from ...ir.pointer import Object

__all__ = ["ForkServerEnded", "ForkServers", "StartedProcess"]

_MODULE = "toolwire.testing.tool_tests.child"
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT")


class ForkServerEnded(ConfigError):
    """The process that forks the others does not run any more."""


class StartedProcess:
    """A process that a server forked."""

    def __init__(self, server: _ForkServer, pid: int) -> None:
        self._server = server
        self._pid = pid
        self._code: int | None = None

    def wait(self) -> int | None:
        """Return the exit code, or minus the number of the signal; None if the process still runs after two seconds."""
        if self._code is None:
            self._code = self._server.request({"wait": self._pid})["code"]
        return self._code

    @property
    def has_lost_server(self) -> bool:
        """True if the server that forked this process has ended: a tool may have killed it."""
        return self._server.has_ended

    def kill(self) -> None:
        """Kill the process and all processes of its session, and wait for its end."""
        if self._code is None:  # afterwards the number may belong to another process
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ForkServerEnded):
                self.wait()


class ForkServers:
    """The servers of a test run, by hash seed. They are started when they are needed; several threads may use them."""

    def __init__(self) -> None:
        self._servers: dict[int, _ForkServer] = {}
        self._lock = threading.Lock()
        self._running: set[StartedProcess] = set()
        self._aborted = False

    def start(
        self, setup: Object, environment: Mapping[str, str], folder: str, descriptors: Sequence[int], hash_seed: int
    ) -> StartedProcess:
        """Fork a process. `descriptors`: its requests, its replies and its standard error."""
        request = {"setup": setup, "environment": dict(environment), "folder": folder}
        server = self._server(hash_seed)
        try:
            process = StartedProcess(server, server.request(request, descriptors)["pid"])
        except ForkServerEnded:
            server = self._server(hash_seed)  # a tool killed the other one
            process = StartedProcess(server, server.request(request, descriptors)["pid"])
        self._running.add(process)
        return process

    def _server(self, hash_seed: int) -> _ForkServer:
        """Return the running server of a hash seed."""
        with self._lock:
            if self._aborted:
                raise ConfigError("the test run was interrupted")
            server = self._servers.get(hash_seed)
            if server is not None and server.has_ended:
                server.close()
                server = None
            if server is None:
                server = self._servers[hash_seed] = _ForkServer(hash_seed)
            return server

    def stop(self, process: StartedProcess) -> None:
        """Kill a process."""
        self._running.discard(process)
        process.kill()

    def abort(self) -> None:
        """Kill all processes and start no more: calls that wait for them end at once."""
        self._aborted = True
        for process in list(self._running):
            self.stop(process)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


class _ForkServer:
    """One server process, and the socket that controls it."""

    def __init__(self, hash_seed: int) -> None:
        self._lock = threading.Lock()
        self._has_failed = False
        self._socket, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= {"PYTHONHASHSEED": str(hash_seed), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter
                [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._has_failed or self._process.poll() is not None

    def request(self, message: Object, descriptors: Sequence[int] = ()) -> Any:
        """Send a message and return the reply."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else 0
                self._socket.sendall(data[sent:])
                reply = b""
                while not reply.endswith(b"\n"):
                    piece = self._socket.recv(4096)
                    if not piece:
                        raise BrokenPipeError
                    reply += piece
            except OSError as error:
                self._has_failed = True
                raise ForkServerEnded(f"cannot start a process for the tools: {str(error) or 'it has ended'}") from None
        return json.loads(reply)

    def close(self) -> None:
        self._socket.close()  # the server ends at the end of its input
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
