"""Run coding agents and programs with `toolwire with`, in one line each, on a scripted model.

python tests/clients/wrapped.py [--client NAME]

Each client runs in an empty home and folder, without settings of its own. The model calls the client's tool for two
files, and then prints their contents. Checked after each run:

- the client printed the right sentence, and its exit code is 0
- no process is left, and no file except the recording and those that the client writes without toolwire, too
- no file contains the key of the run; only its owner can read the recording
- the receipt is the sum of the gateway's records in the recording, and of the answers that the model gave
- the same with settings in the home that lead elsewhere, and the file of these settings is unchanged
- Ctrl-C while the model is silent ends the client with the same exit code as without toolwire
"""

import argparse
import asyncio
import json
import os
import re
import secrets
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from run import (  # adds the folders of the imports below
    AGENTS,
    SECONDS,
    TESTS,
    Agent,
    agent_environment,
    make_folders,
    run_agent,
    settings_text,
    version_of,
)

# isort: split

from agents import PROMPT
from scripted import Notes, model_for

sys.path.insert(0, str(TESTS / "cli"))
from chat_terminal import CTRL_C, Terminal

from shapes import USAGE
from toolwire.testing.upstream import PartialReply, Upstream
from waiting import until
from worker_gateway import worker_gateway

SDK_PROGRAM = Path(__file__).with_name("sdk_program.py")
TOOLWIRE = (sys.executable, "-P", "-m", "toolwire")
MARK = "TOOLWIRE_TEST_RUN"
KEY = re.compile(rb"sk-tw-[\w-]{43}")
COMMANDS = {
    "Claude Code": ("claude", "-p", PROMPT, "--allowedTools", "Read"),
    "Codex": ("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", PROMPT),
    "Gemini CLI": ("gemini", "-p", PROMPT, "--skip-trust"),
    "Qwen Code": ("qwen", "-p", PROMPT),
    "opencode": ("opencode", "run", PROMPT),
    "aider": (
        *("aider", "--no-git", "--yes-always", "--no-analytics", "--no-check-update", "--no-show-model-warnings"),
        *("--message", PROMPT, "note-01.txt", "note-02.txt"),
    ),
}
# Settings of a user that lead elsewhere: the client must reach the model all the same, and the file must not change.
MISLEADING = {
    "Claude Code": (
        ".claude/settings.json",
        '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN": "real"}}',
    ),
    "Codex": (
        ".codex/config.toml",
        'model = "other"\nmodel_provider = "mine"\n\n[model_providers.mine]\nname = "mine"\nwire_api = "responses"\n',
    ),
    "Gemini CLI": (".gemini/settings.json", '{"security": {"auth": {"selectedType": "oauth-personal"}}}'),
    # in the newest form, into which these clients bring older settings
    "Qwen Code": (
        ".qwen/settings.json",
        '{\n  "security": {\n    "auth": {\n      "selectedType": "qwen-oauth"\n    }\n  },\n  "$version": 4\n}',
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        '{\n  "$schema": "https://opencode.ai/config.json","model": "anthropic/claude-sonnet-5"}',
    ),
}
VARIABLES = {
    "aider": {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # otherwise it is downloaded
    "Claude Code": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},  # as in the run without toolwire
}


def sdk_agent(name: str) -> Agent:
    command = (sys.executable, str(SDK_PROGRAM), name, PROMPT)
    return Agent(f"Python, {name}", "", "", command, lambda url: {}, lambda path: ("read_file", {"path": path.name}))


CLIENTS = [
    *(agent._replace(command=COMMANDS[agent.name]) for agent in AGENTS if agent.name in COMMANDS),
    *map(sdk_agent, ("openai", "openai-responses", "anthropic", "google")),
]


class Sums(NamedTuple):
    """Compare a receipt with its recording and with the model's own counts."""

    turns: int
    failed: int
    calls: int
    input: int
    output: int
    losses: int


async def check(agent: Agent, folder: Path, settings: tuple[str, str] | None) -> tuple[list[str], Sums | None]:
    """Run a client once, and return the problems and the sums of its receipt. `settings`: a file in the home."""
    home, work = make_folders(folder)
    (folder / "tmp").mkdir()
    name, text = settings or (".unused", "")
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)
    notes, mark = Notes.write(work, 2), secrets.token_hex(8)
    recording = folder / "session.jsonl"
    async with Upstream(*[model_for(agent, "openai_chat", notes)] * 28) as provider:
        options = ("-m", "scripted", "--base-url", provider.url, "--record", str(recording))
        wrapped = agent._replace(
            command=(*TOOLWIRE, "with", *options, "--", *agent.command),
            environment=lambda url: {MARK: mark, "TMPDIR": str(folder / "tmp"), **VARIABLES.get(agent.name, {})},
        )
        code, printed, errors = await run_wrapped(wrapped, home, work)
        answered = len(provider.requests)
    receipt, recorded = read_receipt(errors), read_recording(recording)
    left = files_with_the_key(folder)
    problems = {
        f"exit code {code}: {printed[-800:]!r} {errors[-1500:]!r}": code != 0,
        f"the client printed {printed[-400:]!r}": notes.sentence not in " ".join(printed.split()),
        f"the receipt is {receipt}, the recording {recorded}": receipt != recorded,
        f"the model answered {answered} times: {receipt}": receipt is None
        or (receipt.turns - receipt.failed, receipt.input, receipt.output)
        != (answered, answered * USAGE[0], answered * USAGE[1]),
        f"the mode of the recording is {recording.stat().st_mode & 0o777:o}": recording.stat().st_mode & 0o777 != 0o600,
        f"files with the key: {left}": bool(left),
        f"{name} is now {(home / name).read_text()}": settings is not None and (home / name).read_text() != text,
        f"processes left: {processes_of(mark)}": bool(processes_of(mark)),
    }
    found = [problem for problem, is_real in problems.items() if is_real]
    return found, receipt


async def run_wrapped(agent: Agent, home: Path, work: Path) -> tuple[int | None, str, str]:
    codes: list[int | None] = []
    printed, errors = await run_agent(agent, "", home, work, codes.append)
    return codes[0], printed, errors


def files_with_the_key(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and KEY.search(path.read_bytes())]


def files_in(folder: Path) -> set[str]:
    """List the files below a folder, with random and counted parts of their names replaced."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    names = (name.replace(folder.parent.name, "#") for name in names)  # Claude Code names folders by their paths
    # npm, which opencode starts and does not wait for, may be interrupted at any point
    return {
        re.sub(r"[0-9A-Za-z]*[0-9][0-9A-Za-z_-]*", "#", name) for name in names if "/.npm/_cacache/" not in f"/{name}"
    }


async def files_without_toolwire(agent: Agent, folder: Path) -> set[str]:
    """Run the client as it is, with settings for a gateway, and return the files that it leaves."""
    home, work = make_folders(folder)
    (folder / "tmp").mkdir()
    notes = Notes.write(work, 2)
    plain = next((one for one in AGENTS if one.name == agent.name), agent)
    async with (
        Upstream(*[model_for(agent, "openai_chat", notes)] * 28) as provider,
        worker_gateway(folder, settings_text("openai_chat", provider.url), 1) as gateway,
    ):
        url = f"http://127.0.0.1:{gateway.port}"
        plain.settle(home, url)
        environment = {**plain.environment(url), "TMPDIR": str(folder / "tmp")}
        await run_agent(plain._replace(environment=lambda _: environment), url, home, work)
    return {name for part in ("home", "work", "tmp") for name in (f"{part}/{file}" for file in files_in(folder / part))}


def read_receipt(errors: str) -> Sums | None:
    """Return the sums in a receipt, which is the end of standard error; None without one."""
    text = errors.rpartition("\ntoolwire\n")[2] if "\ntoolwire\n" in errors else errors.removeprefix("toolwire\n")
    rows = dict(re.findall(r"^  (\w+) +(.*)$", text, re.MULTILINE))
    tokens = re.match(r"([\d,]+) in.*?, ([\d,]+) out", rows.get("tokens", ""))
    if "turns" not in rows or tokens is None:
        return None
    failed = re.search(r"([\d,]+) failed", rows["turns"])
    first = {name: re.match(r"[\d,]+", rows[name])[0] for name in ("turns", "calls", "losses")}
    numbers = (first["turns"], failed[1] if failed else "0", first["calls"], *tokens.groups(), first["losses"])
    return Sums(*(int(number.replace(",", "")) for number in numbers))


def read_recording(file: Path) -> Sums:
    """Return the sums of the gateway's records of all exchanges."""
    events = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    ends = [event for event in events if event.get("event") == "outcome"]
    usages = [end.get("usage") or {} for end in ends]
    return Sums(
        len(ends),
        sum(end.get("error") is not None for end in ends),
        sum(len(end.get("calls", ())) for end in ends),
        sum(usage.get("input") or 0 for usage in usages),
        sum(usage.get("output") or 0 for usage in usages),
        sum(event.get("event") == "loss" for event in events),
    )


def processes_of(mark: str) -> list[str]:
    """Return the commands of the processes that have inherited the mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            pass  # it has ended, or belongs to another user
    return found


async def interrupted(agent: Agent, folder: Path, *, wrapped: bool) -> tuple[int | None, str, list[str]]:
    """Press Ctrl-C on a terminal while the client waits for the model, until it ends.

    Return its exit code, the output, and the processes that are left.
    """
    home, work = make_folders(folder)
    Notes.write(work, 2)
    mark = secrets.token_hex(8)
    plain = next((one for one in AGENTS if one.name == agent.name), agent)
    async with Upstream(*[PartialReply(then="stall")] * 28) as provider, AsyncExitStack() as stack:
        if wrapped:
            command: tuple[str, ...] = (*TOOLWIRE, "with", "-m", "scripted", "--base-url", provider.url, "--")
            command, environment = (*command, *agent.command), {}
        else:
            settings = settings_text("openai_chat", provider.url)
            gateway = await stack.enter_async_context(worker_gateway(folder, settings, 1))
            url = f"http://127.0.0.1:{gateway.port}"
            plain.settle(home, url)
            command, environment = plain.command, plain.environment(url)
            if not plain.package:  # a program with an SDK has no settings but variables
                environment = sdk_environment(url)
        environment = {**agent_environment(home), **environment, **VARIABLES.get(agent.name, {}), MARK: mark}
        ours, theirs = os.openpty()
        process = await asyncio.create_subprocess_exec(
            *command, cwd=work, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
            preexec_fn=lambda: os.login_tty(0),
        )  # fmt: skip
        os.close(theirs)
        terminal = Terminal(process, ours)
        try:
            async with asyncio.timeout(SECONDS):
                await until(lambda: provider.requests or process.returncode is not None)
                while process.returncode is None:
                    terminal.type(CTRL_C)
                    await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=3)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            asyncio.get_running_loop().remove_reader(ours)
            os.close(ours)
    left = processes_of(mark)
    return process.returncode, terminal.written, left


def sdk_environment(url: str) -> dict[str, str]:
    """Return the variables of all SDKs for a gateway."""
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "not-a-key")
    return {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "GOOGLE_GEMINI_BASE_URL": url, **keys}


def interrupt_client(agent: Agent) -> bool:
    """Compare Ctrl-C with and without toolwire."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as first,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as second,
    ):
        code, printed, left = asyncio.run(interrupted(agent, Path(first), wrapped=True))
        expected, _, _ = asyncio.run(interrupted(agent, Path(second), wrapped=False))
    expected = expected if expected is None or expected >= 0 else 128 - expected
    problems = {
        f"exit code {code}, without toolwire {expected}: {printed[-800:]!r}": code != expected,
        f"no receipt: {printed[-800:]!r}": "turns" not in printed,
        f"processes left: {left}": bool(left),
    }
    found = [problem for problem, is_real in problems.items() if is_real]
    print(f"Ctrl-C, {agent.name}: {'FAILS' if found else 'as without toolwire'}, exit code {code}", flush=True)
    for problem in found:
        print(f"  {problem}", flush=True)
    return not found


def run_client(agent: Agent, settings: tuple[str, str] | None = None) -> bool:
    """Run a client, and return whether it works. Its files are compared if it has no settings."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as first,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as second,
    ):
        folder = Path(first)
        problems, receipt = asyncio.run(check(agent, folder, settings))
        written = {f"{part}/{file}" for part in ("home", "work", "tmp") for file in files_in(folder / part)}
        written -= {"home/.unused"}
        extra = written - asyncio.run(files_without_toolwire(agent, Path(second))) if settings is None else set()
    problems += [f"files that the client alone does not write: {sorted(extra)}"] if extra else []
    state = "works" if not problems else "FAILS"
    where = "" if settings is None else " with settings that lead elsewhere"
    print(f"with {agent.name}{where}: {state}, {receipt}, {len(written)} files of its own", flush=True)
    for problem in problems:
        print(f"  {problem}", flush=True)
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=[agent.name for agent in CLIENTS])
    wanted = parser.parse_args().client
    ok = True
    for agent in CLIENTS:
        if wanted not in (None, agent.name):
            continue
        if agent.package and version_of(agent) is None:
            print(f"with {agent.name}: skipped, {agent.package} is not installed in .clients/")
            continue
        ok &= run_client(agent)
        if agent.name in MISLEADING:
            ok &= run_client(agent, MISLEADING[agent.name])
        if agent.name != "aider":  # it ends by itself after the first Ctrl-C, and another one changes its exit code
            ok &= interrupt_client(agent)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
