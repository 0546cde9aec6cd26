"""A running candidate: its start, its CPU time and its memory."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from candidates import UPSTREAM, Candidate
from closed_loop import Loaded, load
from workload import JOBS, Job, body_of

HERE = Path(__file__).parent
FIRST_PORT = 7810
_STARTING = 120.0  # seconds until the first answer
_JOB = 180.0  # seconds for all requests of a job


@contextmanager
def run_upstream(*pace: str) -> Iterator[None]:
    """Run the mock upstream on core 0, to which this process moves too."""
    mock = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, HERE / "provider.py", str(UPSTREAM), *pace], stdout=subprocess.PIPE
    )
    if mock.stdout.readline() != b"ready\n":
        sys.exit(f"cannot start the upstream: is port {UPSTREAM} in use by another run?")
    os.sched_setaffinity(0, {0})
    try:
        yield
    finally:
        mock.kill()


class ServerProcess:
    """A candidate on core 1. `program`: runs it in the profiler or in the counter, which writes `output`."""

    def __init__(
        self, candidate: Candidate, port: int, *, program: Path | None = None, output: Path | None = None
    ) -> None:
        self.candidate = candidate
        self.port = port
        self.program = program
        self.output = output
        self.log = HERE / f".{candidate.name}-{port}.log"
        self.launch()

    def launch(self) -> None:
        """Start the process, and wait until it answers."""
        began = time.perf_counter()
        command = self.candidate.command(self.port, UPSTREAM)
        if self.program is not None:
            command[1:1] = [str(self.program), str(self.output)]
        # without cached bytecode the start would include the compilation of the package
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**inherited, **self.candidate.environment}
        with self.log.open("w") as log:
            # With random addresses, some processes need a fifth more CPU for the same requests than others.
            pinned = ["setarch", "--addr-no-randomize", "taskset", "-c", "1", *command]
            self.process = subprocess.Popen(pinned, stdout=log, stderr=log, env=environment)
        try:
            self.start = self._wait_until_ready(began)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def cpu(self) -> float:
        return cpu_of(self.process.pid)

    def memory(self) -> float:
        """Return the resident megabytes of the process and its children."""
        lines = [Path(f"/proc/{pid}/status").read_text() for pid in family_of(self.process.pid)]
        return sum(int(text.split("VmRSS:")[1].split()[0]) for text in lines if "VmRSS:" in text) / 1024

    def request_of(self, job: Job, *, pad: int = 0) -> tuple[str, bytes, dict[str, str]]:
        """Return the path, the body and the headers of the requests of a job."""
        candidate = self.candidate
        headers = {**candidate.headers, **candidate.target_headers.get(job.target, {})}
        return candidate.paths[job.target], body_of(candidate.models[job.target], stream=job.stream, pad=pad), headers

    def send(self, job: Job, requests: int, *, pad: int = 0) -> Loaded:
        path, body, headers = self.request_of(job, pad=pad)
        loading = load(self.port, path, body, requests=requests, at_once=job.connections, headers=headers)
        return asyncio.run(asyncio.wait_for(loading, _JOB))

    def _wait_until_ready(self, began: float) -> float:
        name = self.candidate.name
        while time.perf_counter() - began < _STARTING:
            if self.candidate.picks_port and (printed := re.search(r"listens at \S+:(\d+)", self.log.read_text())):
                self.port = int(printed[1])
            if self.process.poll() is not None:
                raise RuntimeError(f"{name} did not start: see bench/gateway/{self.log.name}")
            try:
                if self.send(JOBS["alone"], 1).done:
                    return time.perf_counter() - began
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{name} does not answer")


def cpu_of(pid: int) -> float:
    """Return the CPU microseconds of a process with all its threads and children."""
    tasks = [task for one in family_of(pid) for task in Path(f"/proc/{one}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) / 1000 for task in tasks)


def family_of(pid: int) -> list[int]:
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += family_of(int(child))
    return found
