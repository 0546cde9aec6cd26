"""Run coding agents through the gateway, each with every kind of upstream: they read two notes and print the contents.

python tests/clients/run.py [--agent NAME] [--upstream NAME] [--workers N] [--notes N] [--write]

The agents are in .clients/ (`make test-clients` installs them there). `--write` writes docs/clients-matrix.md, after
runs with one and with two workers. `--notes 20` makes a session of 21 turns: each note is read in a turn of its own.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
sys.path[:0] = [str(Path(__file__).parent), str(TESTS), str(TESTS / "support")]

from agents import AGENTS, Agent  # noqa: E402
from scripted import Notes, model_for  # noqa: E402

from serving import WIRES  # noqa: E402
from shapes import FORMATS  # noqa: E402
from toolwire.testing.upstream import Upstream  # noqa: E402
from worker_gateway import worker_gateway  # noqa: E402

INSTALLED = Path(os.environ.get("TOOLWIRE_CLIENTS", ROOT / ".clients"))
PAGE = ROOT / "docs" / "clients-matrix.md"
UPSTREAMS = (*WIRES, "hermes")
SECONDS = 300.0  # an agent that takes longer hangs; the slowest needs about 30 s for two notes on two busy cores
TITLES = {
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
    "ollama": "Ollama",
    "hermes": "text (Hermes)",
}


class Outcome(NamedTuple):
    passed: bool
    seconds: float
    detail: str


Table: TypeAlias = dict[tuple[str, str, int], Outcome | None]


async def attempt(agent: Agent, upstream: str, folder: Path, *, notes: int = 2, workers: int = 1) -> Outcome:
    """Run an agent once in an empty folder, through `toolwire serve` with this number of workers."""
    home, work = make_folders(folder)
    written = Notes.write(work, notes)
    script = [model_for(agent, upstream, written, together=notes == 2)] * (4 * notes + 20)
    async with (
        Upstream(*script) as provider,
        worker_gateway(folder, settings_text(upstream, provider.url, workers), workers) as gateway,
    ):
        url = f"http://127.0.0.1:{gateway.port}"
        agent.settle(home, url)
        start = time.perf_counter()
        printed, errors = await run_agent(agent, url, home, work)
        seconds = time.perf_counter() - start
    text = " ".join(printed.split())
    if written.sentence in text:
        return Outcome(True, seconds, "")
    requests = [request.path for request in provider.requests]
    log = (folder / "log").read_text()
    return Outcome(False, seconds, f"\n  {requests}\n  {text[-600:]!r}\n  {errors[-1500:]!r}\n  {log[-1500:]!r}")


def make_folders(folder: Path) -> tuple[Path, Path]:
    """Return a home without settings and an empty work folder."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    return home, work


def settings_text(upstream: str, url: str, workers: int = 1) -> str:
    """Return settings with one upstream for every model, and a state that several workers share."""
    wire = "openai_chat" if upstream in FORMATS else upstream
    emulation = f'emulate = "{upstream}"\n' if upstream in FORMATS else ""
    return (
        f'[upstreams.provider]\nbase_url = "{url}"\nwire = "{wire}"\nretries = 0\n'
        f'[models."*"]\nupstream = "provider"\nmodel = "any"\n{emulation}'
    ) + '[state]\nurl = "state.db"\n' * (workers > 1)


def agent_environment(home: Path) -> dict[str, str]:
    path = f"{INSTALLED / 'node_modules' / '.bin'}:{INSTALLED / 'aider' / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1"}


async def run_agent(
    agent: Agent, url: str, home: Path, work: Path, on_exit: Callable[[int | None], object] = bool
) -> tuple[str, str]:
    """Run an agent until it ends, and return its output. `on_exit` is called with its exit code."""
    environment = {**agent_environment(home), **agent.environment(url)}
    process = await asyncio.create_subprocess_exec(
        *agent.command,
        cwd=work,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        process.kill()
        printed, errors = await process.communicate()
        errors += f"\nno end after {SECONDS} seconds".encode()
    on_exit(process.returncode)
    return printed.decode(errors="replace"), errors.decode(errors="replace")


def version_of(agent: Agent) -> str | None:
    """Return the version of an installed agent, from npm or pip, or None if it is not installed."""
    package = INSTALLED / "node_modules" / agent.package / "package.json"
    if package.exists():
        return json.loads(package.read_text())["version"]
    metadata = f"lib/python3*/site-packages/{agent.package.replace('-', '_')}-*.dist-info"
    return next((path.stem.rpartition("-")[2] for path in (INSTALLED / "aider").glob(metadata)), None)


def mark(outcomes: list[Outcome | None]) -> str:
    if None in outcomes:
        return "not run"
    return "works" if all(outcome is not None and outcome.passed for outcome in outcomes) else "**fails**"


def page(table: Table) -> str:
    lines = ["| agent | protocol | " + " | ".join(TITLES[name] for name in UPSTREAMS) + " |"]
    lines.append("|---|---|" + "---|" * len(UPSTREAMS))
    for agent in AGENTS:
        marks = [mark([table[agent.name, upstream, workers] for workers in (1, 2)]) for upstream in UPSTREAMS]
        lines.append(f"| {agent.name} {version_of(agent)} | {TITLES[agent.front]} | {' | '.join(marks)} |")
    return f"{HEAD}\n" + "\n".join(lines) + "\n"


HEAD = """# Coding agents

`make test-clients` writes this page. Every agent runs without a terminal and with a fake key, and sends its requests to `toolwire
serve`, once with one worker and once with two. The upstream has the protocol of the column. The model is a script: it calls
the agent's tool for two files, and then prints their contents. "Works" means that the agent ran both calls, that each result
was sent for the right call, and that the agent printed the right sentence at the end. aider has no tools: it puts the files into
its prompt. The last column is a chat server without tools: calls are text there, in the Hermes format.
"""


def run_all(agents: list[Agent], upstreams: list[str], workers: list[int], notes: int) -> Table:
    table: Table = {}
    for agent in agents:
        installed = version_of(agent) is not None
        if not installed:
            print(f"{agent.name}: skipped, {agent.package} is not installed in .clients/", flush=True)
        for upstream, count in [(upstream, count) for upstream in upstreams for count in workers]:
            outcome = None
            if installed:
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                    outcome = asyncio.run(attempt(agent, upstream, Path(folder), notes=notes, workers=count))
                state = f"{mark([outcome])}, {outcome.seconds:.1f} s{outcome.detail}"
                print(f"{agent.name} -> {upstream}, workers {count}: {state}", flush=True)
            table[agent.name, upstream, count] = outcome
    return table


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", choices=[agent.name for agent in AGENTS])
    parser.add_argument("--upstream", choices=UPSTREAMS)
    parser.add_argument("--workers", type=int, choices=(1, 2))
    parser.add_argument("--notes", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    wanted = parser.parse_args()
    agents = [agent for agent in AGENTS if wanted.agent in (None, agent.name)]
    upstreams = [name for name in UPSTREAMS if wanted.upstream in (None, name)]
    workers = [count for count in (1, 2) if wanted.workers in (None, count)]
    table = run_all(agents, upstreams, workers, wanted.notes)
    if wanted.write and None not in table.values() and len(table) == len(AGENTS) * len(UPSTREAMS) * 2:
        PAGE.write_text(page(table), "utf-8")
    elif wanted.write:
        print(f"{PAGE.name} is unchanged: not everything was run")
    return 1 if any(outcome is not None and not outcome.passed for outcome in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
