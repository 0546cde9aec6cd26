"""Run the code blocks of a page in the working folder, and compare their output with the page.

```python        runs; the blocks of a page share their names. A ```text block directly after it is its output.
```python a/b.py the same, and an excerpt of that file of the repository.
```python needs NAME   runs if the package NAME (or each of several) is installed; else it and its output are skipped.
```python b.py   a file of that name, for the commands after it; ```json, ```jsonl, ```toml and ```yaml the same.
```console       each command after `$ ` runs (toolwire, python, curl); its output follows: standard output, then standard
                 error. A command that ends with ` &` runs until the end of the page; its first lines of output follow.
                 In an output, `…` is any text in a line, and a line that is only `…` is any number of lines.
```sh            `make` targets and other commands; the targets must exist.

`make release` runs `python tests/support/doc_blocks.py README.md` in an environment without pytest.
"""

import asyncio
import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from places import ROOT

FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = ("toolwire", "python", "curl")
FILES = ("json", "jsonl", "toml", "yaml")
START_LIMIT = 300  # seconds until a server has printed its first lines


def run_page(page: Path) -> int:
    """Run the blocks of a page, and return the number of blocks that ran or were written."""
    with contextlib.ExitStack() as servers:
        servers.callback(close_event_loop)
        servers.enter_context(closing_stores())
        names: dict[str, object] = {"__name__": "docs"}
        printed: str | None = None
        count = 0
        for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
            before, printed = printed, None
            count += 1
            if language == "python" and title.endswith(".py") and "/" not in title:
                Path(title).write_text(text, encoding="utf-8")
            elif language == "python" and title.startswith("needs "):
                if all(map(is_installed, title.split()[1:])):
                    printed = run_python(text, names, page)
                else:
                    count -= 1
            elif language == "python":
                assert not title or text in (ROOT / title).read_text(encoding="utf-8"), f"{title} has no such lines"
                printed = run_python(text, names, page)
            elif language == "text" and before is not None:
                check_output(before, text, "the block above")
            elif language == "console":
                run_console(text, servers)
            elif language in FILES and title:
                Path(title).write_text(json.dumps(json.loads(text)) if language == "json" else text, encoding="utf-8")
            elif language == "sh":
                check_targets(text)
            else:
                count -= 1
    return count


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even its parent package
        return False


def close_event_loop() -> None:
    """Close the event loop that a synchronous function of another library left in this thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            asyncio.get_event_loop().close()
        except RuntimeError:  # there is none
            return
    asyncio.set_event_loop(None)


@contextlib.contextmanager
def closing_stores() -> Iterator[None]:
    """Close the SQLite stores of a page at its end, as the end of a program does."""
    from toolwire.net.stores import sqlite_connection

    with mock.patch.object(sqlite_connection, "_CONNECTIONS", set()) as connections:
        try:
            yield
        finally:
            for connection in connections:
                connection.close()


def run_python(text: str, names: dict[str, object], page: Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, str(page), "exec"), names)
    close_event_loop()  # before the next block replaces it
    return out.getvalue()


def run_console(text: str, servers: contextlib.ExitStack) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):  # continued on the next line
            more, _, expected = expected.partition("\n")
            command = command.removesuffix("\\") + more
        if command.endswith(" &"):
            start_server(command.removesuffix(" &"), expected, servers)
            continue
        assert command.split()[0] in COMMANDS, f"a page runs {', '.join(COMMANDS)}, not {command.split()[0]}"
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, check=False, env=environment(), timeout=300
        )
        newline = "" if not done.stdout or done.stdout.endswith("\n") else "\n"
        check_output(done.stdout + newline + done.stderr, expected, command)


def environment() -> dict[str, str]:
    """Return what a user has: no keys, no settings, a home folder of its own, and the programs of this environment."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR") if name in os.environ}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        **kept,
        "PATH": path,
        "HOME": str(Path.cwd()),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
    }


def start_server(command: str, expected: str, servers: contextlib.ExitStack) -> None:
    """Start a process, wait for its first lines, and stop it at the end of the page."""
    log = servers.enter_context(tempfile.NamedTemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115 - the stack closes it
    process = subprocess.Popen(shlex.split(command), stdout=log, stderr=subprocess.STDOUT, env=environment())
    servers.callback(process.wait)
    servers.callback(process.terminate)
    assert expected.strip("…\n"), f"the page must show a line of the output of {command}, to wait for it"
    deadline = time.monotonic() + START_LIMIT
    while True:
        output = Path(log.name).read_text(encoding="utf-8")
        if re.match(pattern(expected), output):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            check_output(output, expected, command)
            return
        time.sleep(0.05)


def check_output(output: str, expected: str, command: str) -> None:
    if output != expected and not re.fullmatch(pattern(expected), output):
        raise AssertionError(f"the output of {command} differs\n--- page\n{expected}\n--- program\n{output}")


def pattern(expected: str) -> str:
    lines = [
        r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*?") for line in expected.splitlines(True)
    ]
    return "".join(lines)


def check_targets(text: str) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    unknown = set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) - known
    assert not unknown, f"no such target: {unknown}"


if __name__ == "__main__":
    paths = [Path(argument).resolve() for argument in sys.argv[1:]]
    for path in paths:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            print(f"{path.name}: {run_page(path)} blocks")
