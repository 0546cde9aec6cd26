"""Run a program of the comparison against a scripted model and print its output.

python examples/compare/run_program.py weather pydantic_ai toolwire
python examples/compare/run_program.py weather pydantic_ai peer      # needs `make test-peers` once
"""

import asyncio
import os
import shutil
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from scripted_answers import SCENARIOS, Scenario
from toolwire import Request
from toolwire.testing import Upstream

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = Path(os.environ.get("TOOLWIRE_PEERS", ROOT / ".peers"))
_DOCUMENTED_SERVER = "http://localhost:8000/mcp"
_PATIENCE = 120.0


@dataclass(frozen=True)
class Outcome:
    """A finished program: exit status, standard output and error, and the requests that the model received."""

    status: int
    output: str
    requests: tuple[Request, ...]


def program_path(task: str, peer: str, *, ours: bool) -> Path:
    return HERE / task / peer / ("with_toolwire.py" if ours else f"with_{peer}.py")


def interpreter(peer: str, *, ours: bool) -> Path:
    """Return the Python of toolwire or of the peer's own environment."""
    return Path(sys.executable) if ours else PEERS / peer.replace("_", "-") / "bin" / "python"


async def run_program(task: str, peer: str, *, ours: bool) -> Outcome:
    """Run one program in an empty directory, with a scripted model and, if it needs one, an MCP server."""
    scenario = SCENARIOS[task, peer]
    async with Upstream(*scenario.answers) as upstream, _mcp_server(scenario) as server:
        with _prepared_program(program_path(task, peer, ours=ours), server) as path:
            command = [str(interpreter(peer, ours=ours)), *_arguments(scenario, path, ours=ours)]
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=path.parent, env=_environment(upstream, scenario)
            )
            try:
                async with asyncio.timeout(_PATIENCE):
                    output, _ = await process.communicate(scenario.input.encode())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        requests = tuple(received.request for received in upstream.requests if received.request is not None)
        return Outcome(process.returncode or 0, output.decode(), requests)


@contextmanager
def _prepared_program(path: Path, server: str) -> Generator[Path]:
    """Copy a program and its neighbours, with the address of the MCP server of this run."""
    with TemporaryDirectory() as folder:
        for source in path.parent.glob("*.py"):
            shutil.copy(source, folder)
        copy = Path(folder) / path.name
        copy.write_text(path.read_text(encoding="utf-8").replace(_DOCUMENTED_SERVER, server), encoding="utf-8")
        yield copy


def _arguments(scenario: Scenario, path: Path, *, ours: bool) -> list[str]:
    if scenario.runner == "python":
        return [str(path)]
    plain = ["-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(path.parent), "-p", "no:cacheprovider"]
    return [*plain, str(path)] if ours else [*plain, "-o", "asyncio_mode=auto", str(path)]


def _environment(upstream: Upstream, scenario: Scenario) -> dict[str, str]:
    """Direct all SDKs to the scripted model. The peers' programs need no change."""
    return {
        **{name: os.environ[name] for name in ("HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR") if name in os.environ},
        "PYTHONUTF8": "1",
        "OPENAI_BASE_URL": f"{upstream.url}/v1",
        "OPENAI_API_KEY": "key-of-the-test",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "GOOGLE_GEMINI_BASE_URL": upstream.url,
        "GEMINI_API_KEY": "key-of-the-test",
        "MCP_SERVER_TOKEN": scenario.token,
    }


@asynccontextmanager
async def _mcp_server(scenario: Scenario) -> AsyncGenerator[str]:
    """Serve adder.py over HTTP if the scenario needs a server; yield its address."""
    if not scenario.server:
        yield _DOCUMENTED_SERVER
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--http", f":{port}", "--store", "memory:", *(["--token-env", "TOKEN"] if scenario.token else [])]
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolwire", "mcp", "serve", str(HERE / "adder.py"), *options,
        env={**os.environ, "TOKEN": scenario.token}, stderr=PIPE,
    )  # fmt: skip
    try:
        await _wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        await server.communicate()


async def _wait_for_port(port: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


if __name__ == "__main__":
    outcome = asyncio.run(run_program(sys.argv[1], sys.argv[2], ours=sys.argv[3] == "toolwire"))
    print(outcome.output, end="")
    sys.exit(outcome.status)
