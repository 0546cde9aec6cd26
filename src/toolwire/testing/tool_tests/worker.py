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
from typing import Any, TypeVar

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
# has a server of its own, because the seed is fixed when an interpreter starts.


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

    def has_lost_server(self, wait: float = 0.0) -> bool:
        """Return True if the server that forked this process ends within `wait` seconds: a tool may have killed it."""
        return self._server.ends_within(wait)

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

    def ends_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.has_ended

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


# Start and control the process that runs the tools of a file. A call that takes too long kills the process group.


_LOAD_TIMEOUT = 60.0
_SUSPECT_WAIT = 1.0  # seconds for the end of a server after the call that probably killed it
_MAX_REPLY = 8 * 1024 * 1024
_STARTUP_ALLOWANCE = 1.0  # seconds for the work of the child around a call

ReplyType = TypeVar("ReplyType")


class WorkerStopped(Exception):
    """The process did not answer. `timed_out`: it was killed; otherwise it exited by itself, for `reason`."""

    def __init__(self, reason: str, *, timed_out: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.timed_out = timed_out


class ToolWorker:
    """One process with the tools of a file. `start` may be called again after `stop`: the sandbox is reset."""

    def __init__(
        self,
        file: str,
        sandbox: ToolSandbox,
        settings: ToolTestSettings,
        servers: ForkServers,
        *,
        allow_writes: bool,
    ) -> None:
        if sys.platform == "win32":
            raise ConfigError("toolwire test needs process groups and resource limits", hint="use Linux or macOS")
        self._file = str(Path(file).resolve())
        self._sandbox = sandbox
        self._settings = settings
        self._servers = servers
        self._allow_writes = allow_writes
        self._own_servers: ForkServers | None = None
        self._suspect_wait = 0.0
        self._process: StartedProcess | None = None
        self._requests = self._replies = -1
        self._buffer = b""

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def has_lost_server(self) -> bool:
        """True if the process that starts the tools was killed since the last start, maybe by this tool."""
        return self._process is not None and self._process.has_lost_server()

    def start(self, *, hash_seed: int = 0) -> LoadedFile:
        """Start the process in a fresh sandbox and import the file."""
        self.stop()
        self._sandbox.reset()
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        environment = self._sandbox.environment(os.environ, self._settings.pass_env)
        try:
            with self._sandbox.stderr.open("wb") as stderr:
                descriptors = (child_requests, child_replies, stderr.fileno())
                folder = str(self._sandbox.work)
                servers = self._own_servers or self._servers
                self._process = servers.start(self._setup(), environment, folder, descriptors, hash_seed)
        finally:
            os.close(child_requests)
            os.close(child_replies)
        try:
            return self._read_reply(_LOAD_TIMEOUT, LoadedFile)
        except WorkerStopped as stopped:
            reason = f"no result within {_LOAD_TIMEOUT:g} seconds" if stopped.timed_out else stopped.reason
            return LoadedFile(error=reason)

    def _setup(self) -> Object:
        sandbox, settings = self._sandbox, self._settings
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
        """Make one call. A process that dies or is killed is an outcome, too; it must be started again then."""
        process = self._process
        outcome = self._call_process(tool, arguments, patience)
        wait, self._suspect_wait = self._suspect_wait, 0.0
        if process is None or not process.has_lost_server(wait):
            return outcome
        if self._own_servers is not None:  # no other tool uses them
            self.stop()
            return CallOutcome("died", "it killed the process that starts the tools", reached=True)
        self.stop()
        self._own_servers = ForkServers()  # repeat the call, because a concurrent test of another tool may be the cause
        self._suspect_wait = _SUSPECT_WAIT
        self.start()
        return self.call(tool, arguments, patience)

    def _call_process(self, tool: str, arguments: Object, patience: float) -> CallOutcome:
        started_at = time.monotonic()
        try:
            made = self._sandbox.expand(arguments)
            return self._request(CallOutcome, patience, do="call", tool=tool, arguments=made)
        except WorkerStopped as stopped:
            seconds = self._settings.timeout * patience if stopped.timed_out else time.monotonic() - started_at
            return CallOutcome(
                "timeout" if stopped.timed_out else "died", stopped.reason, reached=True, seconds=seconds
            )

    def call_serially(self, tool: str, calls: list[Object]) -> CallBatch:
        made = [self._sandbox.expand(arguments) for arguments in calls]
        return self._request(CallBatch, len(calls), do="serial", tool=tool, calls=made)

    def call_concurrently(self, tool: str, calls: list[Object]) -> CallBatch:
        made = [self._sandbox.expand(arguments) for arguments in calls]
        return self._request(CallBatch, 2, do="concurrent", tool=tool, calls=made)

    def cancel(self, tool: str, arguments: Object, delay: float, limit: float) -> CancelOutcome:
        made = self._sandbox.expand(arguments)
        return self._request(CancelOutcome, 2, do="cancel", tool=tool, arguments=made, delay=delay, limit=limit)

    def call_twice(self, tool: str, arguments: Object, key: str) -> RepeatedCall:
        made = self._sandbox.expand(arguments)
        return self._request(RepeatedCall, 2, do="twice", tool=tool, arguments=made, key=key)

    def _request(self, kind: type[ReplyType], allowed_calls: float = 1, /, **request: Any) -> ReplyType:
        line = json.dumps(request).encode() + b"\n"
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._requests, view) :]
        except OSError:
            raise self._died() from None
        return self._read_reply(self._settings.timeout * allowed_calls + _STARTUP_ALLOWANCE, kind)

    def _read_reply(self, timeout: float, kind: type[ReplyType]) -> ReplyType:
        """Read one line up to a deadline."""
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
            code = None if self._process is None else self._process.wait()
        self.stop()
        reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        errors = self._sandbox.last_errors().splitlines()
        return WorkerStopped(reason + (f": {errors[-1][:300]}" if errors else ""), timed_out=False)

    def stop(self) -> None:
        """Kill the process with its session and close the pipes."""
        process, self._process = self._process, None
        if process is not None:
            (self._own_servers or self._servers).stop(process)
        for descriptor in (self._requests, self._replies):
            if descriptor >= 0:
                os.close(descriptor)
        self._requests = self._replies = -1
        self._buffer = b""

    def close(self) -> None:
        """Stop the process, and the servers that only this worker uses."""
        self.stop()
        if self._own_servers is not None:
            self._own_servers.close()
            self._own_servers = None
