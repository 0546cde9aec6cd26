"""Run the README's quickstart with Claude Code and Ollama as it is written, against a mock of an Ollama server.

python tests/clients/quickstart.py

The mock has Ollama's usual port, a context of 4,096 tokens by default, and cuts prompts as the server does. The model reads
a file in each of 20 turns, and then answers. Every prompt must arrive whole, and the model may be reloaded twice.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from ollama_server import OllamaServer  # noqa: E402
from shapes import Call, ModelAnswer  # noqa: E402
from toolwire.ir.request import Request  # noqa: E402

CLIENTS = Path(os.environ.get("TOOLWIRE_CLIENTS", ROOT / ".clients")) / "node_modules"
OLLAMA_PORT, GATEWAY_PORT = 11434, 4141
TURNS = 20
MAX_RELOADS = 2
SECONDS = 300.0  # an agent that takes longer hangs
FILE = "The quick brown fox jumps over the lazy dog.\n" * 40  # 450 tokens, so that the prompt grows by 9,000


def read_quickstart() -> tuple[str, str, str]:
    """Return the settings, the command that starts the gateway, and the command that starts the agent."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(
        r"```toml toolwire\.toml\n(.*?)```\n```sh\npip install .*?\n(.*?)\n(ANTHROPIC_.*?)\n```", readme, re.DOTALL
    )
    assert found, "README.md has no quickstart with an agent"
    return found[1], found[2], found[3]


def answer_for(folder: Path) -> Callable[[Request], ModelAnswer]:
    """Return a model that reads another file in each turn."""
    paths = [folder / f"{number}.txt" for number in range(TURNS)]

    def answer(request: Request) -> ModelAnswer:
        if not any(tool.name == "Read" for tool in request.tools):
            return ModelAnswer("A title")  # Claude Code asks for a title, without tools
        if not paths:
            return ModelAnswer("Hello.")
        path = paths.pop(0)
        return ModelAnswer("", (Call(f"call_{path.stem}", "Read", {"file_path": str(path)}),))

    return answer


async def run(folder: Path) -> list[str]:
    """Run the quickstart in an empty folder, and return the problems."""
    settings, serve, agent = read_quickstart()
    (folder / "toolwire.toml").write_text(settings)
    for number in range(TURNS):
        (folder / f"{number}.txt").write_text(FILE)
    (folder / "home").mkdir()
    path = f"{CLIENTS / '.bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder / "home"), "TERM": "dumb", "NO_COLOR": "1"}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    async with OllamaServer(answer_for(folder), port=OLLAMA_PORT) as ollama:
        gateway = await start(serve, folder, environment)
        try:
            await wait_for_port(GATEWAY_PORT)
            printed = await stop(await start(agent, folder, environment), SECONDS)
        finally:
            log = await stop(gateway, 0.0)
    cut = [number for number, prompt in enumerate(ollama.prompts) if not prompt.is_whole]
    turns, reloads = len(ollama.prompts), len(ollama.loads) - 1
    largest = max((prompt.tokens for prompt in ollama.prompts), default=0)
    print(f"quickstart: {turns} requests, {largest} tokens in the largest prompt, contexts {ollama.loads}", flush=True)
    problems = {
        f"the agent printed {printed[-600:]!r}; gateway: {log[-1500:]!r}": "Hello." not in printed,
        f"only {turns} requests": turns <= TURNS,
        f"prompts {cut} did not arrive whole": bool(cut),
        f"{reloads} reloads": reloads > MAX_RELOADS,
    }
    return [problem for problem, is_real in problems.items() if is_real]


async def stop(process: asyncio.subprocess.Process, seconds: float) -> str:
    """Return the output of a process, which may still run for so long."""
    output = asyncio.ensure_future(process.communicate())
    await asyncio.wait([output], timeout=seconds)
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)
    return (await output)[0].decode(errors="replace")


async def wait_for_port(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


async def start(command: str, folder: Path, environment: dict[str, str]) -> asyncio.subprocess.Process:
    """Start a command line of the README in a process group of its own."""
    return await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


def main() -> int:
    if not (CLIENTS / "@anthropic-ai" / "claude-code").exists():
        print("quickstart: skipped, Claude Code is not installed in .clients/")
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        problems = asyncio.run(run(Path(folder)))
    for problem in problems:
        print(f"quickstart: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
