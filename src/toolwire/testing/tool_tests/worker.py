"""Start and control the process that runs the tools of a file. A call that takes too long kills the process group."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from .child_calls import CallBatch, CancelOutcome, RepeatedCall
from .fork_server import ForkServerEnded, ForkServers, StartedProcess
from .landlock import landlock_version
from .sandbox import ToolSandbox
from .settings import CallOutcome, LoadedFile, ToolTestSettings

__all__ = ["ToolWorker", "WorkerStopped"]

_LOAD_TIMEOUT = 60.0
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
        self._process: StartedProcess | None = None
        self._requests = self._replies = -1
        self._buffer = b""

    @property
    def is_running(self) -> bool:
        return self._process is not None

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
        if process is None or not process.has_lost_server:
            return outcome
        if self._own_servers is not None:  # no other tool uses them
            self.stop()
            return CallOutcome("died", "it killed the process that starts the tools", reached=True)
        self.stop()
        self._own_servers = ForkServers()  # repeat the call, because a concurrent test of another tool may be the cause
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
