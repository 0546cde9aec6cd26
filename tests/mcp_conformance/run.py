"""The official conformance suite and the official inspector against our server. `make test-mcp`.

python tests/mcp_conformance/run.py             runs everything; the exit code says whether all that counts has passed
python tests/mcp_conformance/run.py --write     … and puts the table into docs/mcp.md

Node and the two programs come from npm, into .node (once). Every program runs as a process of its own.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODE = ROOT / ".node"
PACKAGES = (
    "node@22.23.3",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
PAGE = ROOT / "docs" / "mcp.md"
BEGIN, END = "<!-- conformance: written by tests/mcp_conformance/run.py -->", "<!-- conformance: end -->"
# (what it is called in the table, the suite's options, what fails although it should not, and why)
RUNS = (
    ("2026-07-28", ("--requirements", "2026-07-28")),
    ("2025-11-25", ("--requirements", "2025-11-25")),
    ("2025-06-18", ("--suite", "active", "--spec-version", "2025-06-18")),
    ("2025-03-26", ("--suite", "active", "--spec-version", "2025-03-26")),
)
CONJUGATE = ROOT / "examples" / "conjugate.py"
_RESULT = re.compile(r"^[✓✗] ([\w./-]+): (\d+) passed, (\d+) failed$", re.MULTILINE)
_UNSCORED = re.compile(r"^  [✓✗] ([\w./-]+) \(([\w-]+)\)$", re.MULTILINE)


def main() -> int:
    _install()
    with _serving(sys.executable, HERE / "everything.py") as port:
        rows = [_run_suite(name, options, port) for name, options in RUNS]
    good = all(row["scored_failures"] == 0 for row in rows)
    table = _table(rows)
    print(table)
    seen = _inspect()
    print(f"\ninspector: {seen} answers as expected")
    if "--write" in sys.argv:
        _write(table)
    return 0 if good else 1


def _install() -> None:
    ready = NODE / "ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == "\n".join(PACKAGES):
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("make test-mcp needs npm, which comes with Node.js")
    NODE.mkdir(exist_ok=True)
    (NODE / "package.json").write_text('{"private": true}', encoding="utf-8")
    subprocess.run([npm, "install", "--silent", "--no-fund", "--no-audit", *PACKAGES], cwd=NODE, check=True)
    ready.write_text("\n".join(PACKAGES), encoding="utf-8")


@contextmanager
def _serving(*command):
    """A server over HTTP; its port is its last argument."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([*map(str, command), _port_argument(command, port)], env=ENVIRONMENT)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _port_argument(command, port: int) -> str:
    return f":{port}" if command[-1] == "--http" else str(port)


def _wait_for(port: int, process) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit("the server did not start")


def _node(*arguments, **options):
    command = [NODE / "node_modules" / ".bin" / "node", *arguments]
    return subprocess.run(
        list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, check=False, **options
    )


def _run_suite(name: str, options, port: int) -> dict:
    suite = NODE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    done = _node(suite, "server", "--url", f"http://localhost:{port}/mcp", *options, timeout=600)
    found = {scenario: (int(good), int(bad)) for scenario, good, bad in _RESULT.findall(done.stdout)}
    if not found:
        sys.exit(f"the suite said nothing of {name}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    unscored = dict(_UNSCORED.findall(done.stdout))
    scored = {scenario: counts for scenario, counts in found.items() if scenario not in unscored}
    failing = [scenario for scenario, (_, bad) in scored.items() if bad]
    if failing:
        print(f"{name}: {', '.join(failing)} failed", file=sys.stderr)
    return {
        "name": name,
        "scenarios": len(scored),
        "checks": sum(good for good, _ in scored.values()),
        "scored_failures": len(failing) + (done.returncode != 0 and not failing),
        "unscored": {one: found[one] for one in unscored if one in found},
        "reasons": unscored,
    }


def _table(rows: list[dict]) -> str:
    suite = PACKAGES[1].rpartition("@")[2]
    lines = [
        f"Suite {suite}, over HTTP:",
        "",
        "| version | scored scenarios | checks passed | failed | not scored: passed | not scored: failed |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        good = [one for one, (_, bad) in row["unscored"].items() if not bad]
        bad = [one for one, (_, failed) in row["unscored"].items() if failed]
        counts = f"| {row['scenarios']} | {row['checks']} | {row['scored_failures']} |"
        lines.append(f"| {row['name']} {counts} {', '.join(good) or '–'} | {', '.join(bad) or '–'} |")
    return "\n".join(lines)


def _write(table: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


EAT_CALL = ("--method", "tools/call", "--tool-name", "conjugate", "--tool-arg", "verb=eat", "tense=past_simple")


def _inspect() -> int:
    """The inspector's own command line, both ways, both eras: (options, what has to stand in the answer)"""
    asked = (
        (("--method", "tools/list", "--strict"), '"name": "conjugate"'),
        ((*EAT_CALL, "person=3sg"), '"text": "ate"'),
        (EAT_CALL, '"isError": true'),
    )
    serve = (sys.executable, "-m", "toolwire", "mcp", "serve", CONJUGATE, "--store", "memory:")
    count = 0
    with _serving(*serve, "--http") as port:
        for target in (serve, (f"http://127.0.0.1:{port}/mcp",)):
            for era in ("legacy", "modern"):
                for options, expected in asked:
                    _run_inspector(target, (*options, "--protocol-era", era), expected)
                    count += 1
    return count


def _run_inspector(target, options, expected: str) -> None:
    inspector = NODE / "node_modules" / ".bin" / "mcp-inspector"
    path = ("-e", f"PYTHONPATH={ROOT / 'src'}")
    done = _node(inspector, "--cli", *path, *target, *options, timeout=120)
    if expected not in done.stdout:
        shown = " ".join(map(str, (*target, *options)))
        sys.exit(f"the inspector saw something else for {shown}:\n{done.stdout}{done.stderr}")
    json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
