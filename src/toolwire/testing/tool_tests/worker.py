"""Start and control the processes that run the tools of a file: a server forks them, and a call that takes too long kills them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from .child_calls import CallBatch, CancelOutcome, RepeatedCall
from .landlock import landlock_version
from .sandbox import ToolSandbox
from .settings import CallOutcome, LoadedFile, ToolTestSettings

# Start child processes quickly: a process that has imported the runtime forks itself for every start.
#
# The forked process leads a session of its own, so that it is killed with everything that it starts. Each hash seed
# has servers of its own, because the seed is fixed when an interpreter starts. A server has one child at a time: if it
# ends, the tool of this child has killed it.


_MODULE = "toolwire.testing.tool_tests.child"
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT")
_CLOSE_SECONDS = 2.0  # a server ends at once at the end of its input, unless a tool has stopped it with a signal


class ForkServerEnded(ConfigError):
    """The process that forks the others does not run any more."""


class ForkServers:
    """The servers of a test run. They are started when they are needed; several threads may use them."""

    def __init__(self) -> None:
        self._idle: list[_ForkServer] = []
        self._busy: set[_ForkServer] = set()
        self._lock = threading.Lock()
        self._aborted = False

    def take(self, hash_seed: int) -> _ForkServer:
        """Return a running server of a hash seed, for one child."""
        with self._lock:
            self.require_running()
            usable = (server for server in self._idle if server.hash_seed == hash_seed and not server.has_ended)
            server = next(usable, None) or _ForkServer(hash_seed)
            self._idle = [other for other in self._idle if other is not server]
            self._busy.add(server)
            return server

    def give_back(self, server: _ForkServer) -> None:
        """Let another child use a server."""
        with self._lock:
            self._busy.discard(server)
            self._idle.append(server)

    def require_running(self) -> None:
        """Raise ConfigError after `abort`."""
        if self._aborted:
            raise ConfigError("the test run was interrupted")

    def abort(self) -> None:
        """Kill all children and start no more: calls that wait for them end at once."""
        self._aborted = True
        with self._lock:
            busy = list(self._busy)
        for server in busy:
            server.kill()

    def close(self) -> None:
        for server in (*self._busy, *self._idle):
            server.close()


class _ForkServer:
    """One server process, the socket that controls it, and its child."""

    def __init__(self, hash_seed: int) -> None:
        """Start an interpreter with a fixed hash seed and few environment variables, which forks a child per worker."""
        self.hash_seed = hash_seed
        self._lock = threading.Lock()
        self._has_failed = False
        self._child: int | None = None
        self._code: int | None = None
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
        """Ask the server for a reply, because the system reports the end of a killed process with a delay."""
        with suppress(ForkServerEnded):
            self._request({})
        return self._has_failed

    def fork(self, setup: Object, environment: Mapping[str, str], folder: str, descriptors: Sequence[int]) -> None:
        """Start a child. `descriptors`: its requests, its replies and its standard error."""
        request = {"setup": setup, "environment": dict(environment), "folder": folder}
        self._child, self._code = self._request(request, descriptors)["pid"], None

    def wait(self) -> int | None:
        """Return the exit code of the child, or minus the number of the signal; None if it still runs after a while."""
        if self._code is None and self._child is not None:
            self._code = self._request({"wait": self._child})["code"]
        return self._code

    def kill(self) -> None:
        """Kill the child and all processes of its session, and wait for its end."""
        if self._code is None and self._child is not None:  # afterwards the number may belong to another process
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
            with suppress(ForkServerEnded):
                self.wait()

    def _request(self, message: Object, descriptors: Sequence[int] = ()) -> Any:
        """Send a message and return the reply. Raises `ForkServerEnded`, now and later, if the server has ended."""
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
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_LOAD_TIMEOUT = 60.0  # seconds; enough to import torch on a busy machine, not measured
_MAX_REPLY = 8 * 1024 * 1024  # a reply has cut texts, so that only a tool that writes to the pipe itself exceeds it
_MAX_ERROR = 300  # characters of the last line of standard error
_STARTUP_ALLOWANCE = 1.0  # seconds for the work of the child around a call
_SUSPECT_WAIT = 1.0  # seconds for a thread or a process of a call to kill the server after its result; not measured

KILLED_SERVER = "it killed the process that starts the tools"
ReplyType = TypeVar("ReplyType")


class WorkerStopped(Exception):
    """The process did not answer. `timed_out`: it was killed; otherwise it exited by itself, for `reason`."""

    def __init__(self, reason: str, *, timed_out: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.timed_out = timed_out


class ToolWorker:
    """One process with the tools of a file. `start` may be called again after `stop`: the sandbox is reset."""

    def __init__(self, file: str, settings: ToolTestSettings, servers: ForkServers, *, allow_writes: bool) -> None:
        """Create the sandbox; the process starts later. Raises `ConfigError` on Windows."""
        if sys.platform == "win32":
            raise ConfigError("toolwire test needs process groups and resource limits", hint="use Linux or macOS")
        self._file = str(Path(file).resolve())
        self.sandbox = ToolSandbox(settings.files)
        self._settings = settings
        self._servers = servers
        self._allow_writes = allow_writes
        self._server: _ForkServer | None = None
        self._has_lost_server = False
        self._has_unknown_cause = False
        self._requests = self._replies = -1
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.sandbox.remove()

    @property
    def is_running(self) -> bool:
        return self._server is not None

    def start(self, *, hash_seed: int = 0) -> LoadedFile:
        """Start the process in a fresh sandbox and import the file; a running process is stopped first.

        An import that fails or takes too long is an error in the result.
        """
        self.stop()
        self.sandbox.reset()
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        environment = self.sandbox.environment(os.environ, self._settings.pass_env)
        try:
            with self.sandbox.stderr.open("wb") as stderr:
                descriptors = (child_requests, child_replies, stderr.fileno())
                folder = str(self.sandbox.work)
                self._server = self._servers.take(hash_seed)
                self._server.fork(self._setup(), environment, folder, descriptors)
                self._servers.require_running()  # `abort` cannot kill a child that has no number yet
        finally:
            os.close(child_requests)
            os.close(child_replies)
        try:
            return self._read_reply(_LOAD_TIMEOUT, LoadedFile)
        except WorkerStopped as stopped:
            reason = f"no result within {_LOAD_TIMEOUT:g} seconds" if stopped.timed_out else stopped.reason
            return LoadedFile(error=reason)

    def _setup(self) -> Object:
        """Return the first message to the child: the file, the sandbox and its limits."""
        sandbox, settings = self.sandbox, self._settings
        return {
            "file": self._file,
            "outside": str(sandbox.outside),
            "folders": [str(folder) for folder in sandbox.folders],
            "temp": str(sandbox.temp),
            "secret": sandbox.secret,
            "allow_writes": self._allow_writes,
            "landlock": landlock_version() > 0,
            "allow_hosts": list(settings.allow_hosts),
            "memory": settings.memory,
            "deps": settings.deps,
            "path": [str(Path.cwd())],
        }

    def call(self, tool: str, arguments: Object, patience: float = 1.0) -> CallOutcome:
        """Make one call.

        A process that dies or is killed is an outcome, too; it must be started again then. If the fork server is lost,
        the call is repeated, to learn whether it was the cause.
        """
        outcome = self._call_once(tool, arguments, patience)
        if not self._loses_server():
            return outcome
        self.start()  # repeat the call, because a thread of an earlier one may have killed the server
        outcome = self._call_once(tool, arguments, patience)
        time.sleep(_SUSPECT_WAIT)
        if self._loses_server():
            return CallOutcome("died", KILLED_SERVER, reached=True)
        self._has_unknown_cause = True
        return outcome

    def _call_once(self, tool: str, arguments: Object, patience: float) -> CallOutcome:
        started_at = time.monotonic()
        try:
            return self._request(CallOutcome, patience, do="call", tool=tool, arguments=arguments)
        except WorkerStopped as stopped:
            seconds = self._settings.timeout * patience if stopped.timed_out else time.monotonic() - started_at
            status: Literal["timeout", "died"] = "timeout" if stopped.timed_out else "died"
            return CallOutcome(status, stopped.reason, reached=True, seconds=seconds)

    def _loses_server(self) -> bool:
        """Return True if the server has ended since the last question."""
        if self._server is not None and self._server.has_ended:
            self.stop()
        lost, self._has_lost_server = self._has_lost_server, False
        return lost

    def call_serially(self, tool: str, calls: list[Object]) -> CallBatch:
        return self._request(CallBatch, len(calls), do="call_serially", tool=tool, calls=calls)

    def call_concurrently(self, tool: str, calls: list[Object]) -> CallBatch:
        return self._request(CallBatch, 2, do="call_concurrently", tool=tool, calls=calls)

    def cancel(self, tool: str, arguments: Object, delay: float, limit: float) -> CancelOutcome:
        return self._request(CancelOutcome, 2, do="cancel", tool=tool, arguments=arguments, delay=delay, limit=limit)

    def call_twice(self, tool: str, arguments: Object, key: str) -> RepeatedCall:
        return self._request(RepeatedCall, 2, do="call_twice", tool=tool, arguments=arguments, key=key)

    def _request(self, kind: type[ReplyType], allowed_calls: float, /, **request: Any) -> ReplyType:
        """Send the name of a method of `ChildCalls` with its arguments, and read its result.

        Raise WorkerStopped if the process has died.
        """
        view = memoryview(json.dumps(self.sandbox.expand(request)).encode() + b"\n")
        try:
            while view:
                view = view[os.write(self._requests, view) :]
        except OSError:
            raise self._died() from None
        return self._read_reply(self._settings.timeout * allowed_calls + _STARTUP_ALLOWANCE, kind)

    def _read_reply(self, timeout: float, kind: type[ReplyType]) -> ReplyType:
        """Return the next reply.

        Raises `WorkerStopped` after `timeout` seconds, with the process killed, and if it has died.
        """
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._replies], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.stop()
                raise WorkerStopped("killed", timed_out=True)
            data = os.read(self._replies, 65536)
            if not data or len(self._buffer) > _MAX_REPLY:
                raise self._died()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return msgspec.json.decode(line, type=kind)

    def _died(self) -> WorkerStopped:
        code = None
        with suppress(ForkServerEnded):
            code = None if self._server is None else self._server.wait()
        self.stop()
        reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        errors = self.sandbox.last_errors().splitlines()
        return WorkerStopped(reason + (f": {errors[-1][:_MAX_ERROR]}" if errors else ""), timed_out=False)

    def stop(self) -> None:
        """Kill the process with its session, give its fork server back, and close the pipes."""
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            self._has_lost_server |= server.has_ended  # before the child of another worker uses it
            self._servers.give_back(server)
        for descriptor in (self._requests, self._replies):
            if descriptor >= 0:
                os.close(descriptor)
        self._requests = self._replies = -1
        self._buffer = b""

    def ends_without_server(self) -> bool:
        """Stop the process. Return True if its tool killed the process that started it, and no call has reported that."""
        self.stop()
        return self._has_lost_server or self._has_unknown_cause
