"""Run coding agents through the gateway, each with every kind of upstream: they read two files and print the contents.

python tests/clients/run.py [--agent NAME] [--upstream NAME] [--write]

The agents are in .clients/ (`make test-clients` installs them there). `--write` writes docs/clients-matrix.md.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests" / "integration" / "gateway")]

from agents import AGENTS, Agent  # noqa: E402
from scripted import Files, model_for  # noqa: E402
from serving import serving, upstream_rows  # noqa: E402
from shapes import FORMATS, WIRES  # noqa: E402

from toolwire.testing.upstream import Upstream  # noqa: E402

INSTALLED = ROOT / ".clients" / "node_modules"
PAGE = ROOT / "docs" / "clients-matrix.md"
UPSTREAMS = (*WIRES, "hermes")
SECONDS = 180.0
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


Table: TypeAlias = dict[tuple[str, str], Outcome | None]


async def attempt(agent: Agent, upstream: str, folder: Path) -> Outcome:
    """One run in an empty folder."""
    files, home = prepare_folder(folder)
    script = [model_for(agent, upstream, files)] * 20
    async with Upstream(*script) as provider, serving(settings(upstream, provider.url)) as gateway:
        agent.settle(home, gateway.url)
        began = time.perf_counter()
        said, problems = await run_agent(agent, gateway.url, home, files.folder)
        seconds = time.perf_counter() - began
    heard = " ".join(said.split())
    if files.sentence in heard:
        return Outcome(True, seconds, "")
    turns = [(turn.status, turn.error, turn.calls) for turn in gateway.turns]
    return Outcome(False, seconds, f"\n  {turns}\n  {heard[-600:]!r}\n  {problems[-1500:]!r}")


def prepare_folder(folder: Path) -> tuple[Files, Path]:
    """The files to read, and a home without settings."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    files = Files(work, f"word-{secrets.token_hex(4)}", f"word-{secrets.token_hex(4)}")
    files.write()
    return files, home


def settings(upstream: str, url: str) -> dict:
    emulated = upstream in FORMATS
    row = {"upstream": "openai_chat" if emulated else upstream, "model": "any"}
    return {"upstreams": upstream_rows(url), "models": {"*": row | ({"emulate": upstream} if emulated else {})}}


async def run_agent(agent: Agent, url: str, home: Path, work: Path) -> tuple[str, str]:
    environment = {
        "PATH": f"{INSTALLED / '.bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "TERM": "dumb",
        "NO_COLOR": "1",
        **agent.environment(url),
    }
    process = await asyncio.create_subprocess_exec(
        *agent.command,
        cwd=work,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said, problems = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        process.kill()
        said, problems = await process.communicate()
        problems += f"\nno end after {SECONDS} seconds".encode()
    return said.decode(errors="replace"), problems.decode(errors="replace")


def version_of(agent: Agent) -> str | None:
    described = INSTALLED / agent.package / "package.json"
    return json.loads(described.read_text())["version"] if described.exists() else None


def mark(outcome: Outcome | None) -> str:
    return "not run" if outcome is None else "works" if outcome.passed else "**fails**"


def page(table: Table) -> str:
    lines = ["| agent | protocol | " + " | ".join(TITLES[name] for name in UPSTREAMS) + " |"]
    lines.append("|---|---|" + "---|" * len(UPSTREAMS))
    for agent in AGENTS:
        marks = " | ".join(mark(table[agent.name, upstream]) for upstream in UPSTREAMS)
        lines.append(f"| {agent.name} {version_of(agent)} | {TITLES[agent.front]} | {marks} |")
    return f"{HEAD}\n" + "\n".join(lines) + "\n"


HEAD = """# Coding agents

`make test-clients` writes this page. Every agent runs without a terminal and with a fake key, and sends its requests to the gateway,
which uses an upstream with the protocol of the column. The model is a script: it calls the agent's tool for two files in one
turn, and then prints their contents. "Works" means that the agent ran both calls, that each result was sent for the right call, and
that the agent printed the right sentence at the end. The last column is a chat server without tools: calls are text there, in the
Hermes format.
"""


def run_all(agents: list[Agent], upstreams: list[str]) -> Table:
    table: Table = {}
    for agent in agents:
        installed = version_of(agent) is not None
        if not installed:
            print(f"{agent.name}: skipped, npm could not install {agent.package} into .clients/", flush=True)
        for upstream in upstreams:
            outcome = None
            if installed:
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                    outcome = asyncio.run(attempt(agent, upstream, Path(folder)))
                print(
                    f"{agent.name} -> {upstream}: {mark(outcome)}, {outcome.seconds:.1f} s{outcome.detail}", flush=True
                )
            table[agent.name, upstream] = outcome
    return table


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", choices=[agent.name for agent in AGENTS])
    parser.add_argument("--upstream", choices=UPSTREAMS)
    parser.add_argument("--write", action="store_true")
    wanted = parser.parse_args()
    agents = [agent for agent in AGENTS if wanted.agent in (None, agent.name)]
    upstreams = [name for name in UPSTREAMS if wanted.upstream in (None, name)]
    table = run_all(agents, upstreams)
    if wanted.write and None not in table.values() and len(table) == len(AGENTS) * len(UPSTREAMS):
        PAGE.write_text(page(table), "utf-8")
    elif wanted.write:
        print(f"{PAGE.name} stays as it is: not everything was run")
    return 1 if any(outcome is not None and not outcome.passed for outcome in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
