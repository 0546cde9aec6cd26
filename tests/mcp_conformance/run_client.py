"""Our client before the official conformance suite, and with other people's servers. Part of `make test-mcp`.

python tests/mcp_conformance/run_client.py             runs everything; the exit code says whether all that counts has passed
python tests/mcp_conformance/run_client.py --write     … and puts the table into docs/mcp-client.md

Node and what runs on it come from npm, into .node; servers in Python into an environment of their own there.
"""

import subprocess
import sys
import venv

import run as suite

SERVERS = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
IN_PYTHON = ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
OLDER = ("mcp-server-sqlite==2025.4.25", "mcp<2")  # it does not run on a newer SDK
PAGE = suite.ROOT / "docs" / "mcp-client.md"
BEGIN, END = "<!-- conformance: written by tests/mcp_conformance/run_client.py -->", "<!-- conformance: end -->"
VERSIONS = ("2026-07-28", "2025-11-25")


def main() -> int:
    suite._install()
    _install_servers()
    rows = [_run_suite(version) for version in VERSIONS]
    table = _table(rows)
    print(table)
    if "--write" in sys.argv:
        _write(table)
    peers = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", suite.HERE / "peers.py"],
        cwd=suite.ROOT,
        env=suite.ENVIRONMENT,
        check=False,
    )
    return 0 if all(not row["failed"] for row in rows) and peers.returncode == 0 else 1


def _install_servers() -> None:
    ready = suite.NODE / "ready-servers"
    wanted = "\n".join((*SERVERS, *IN_PYTHON, *OLDER))
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return
    npm = suite.shutil.which("npm")
    subprocess.run([npm, "install", "--silent", "--no-fund", "--no-audit", *SERVERS], cwd=suite.NODE, check=True)
    for name, packages in (("python", IN_PYTHON), ("older-python", OLDER)):
        venv.create(suite.NODE / name, with_pip=True, clear=True)
        subprocess.run([suite.NODE / name / "bin" / "pip", "install", "--quiet", *packages], check=True)
    ready.write_text(wanted, encoding="utf-8")


def _run_suite(version: str) -> dict:
    """One row: what the suite scores, and what it only shows."""
    program = suite.NODE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    client = f"{sys.executable} {suite.HERE / 'client.py'}"
    options = ("--requirements", version, "--timeout", "120000")
    done = suite._node(program, "client", "--command", client, *options, timeout=900)
    found = {one: (int(good), int(bad)) for one, good, bad in suite._RESULT.findall(done.stdout)}
    unscored = dict(suite._UNSCORED.findall(done.stdout))
    if not found:
        sys.exit(f"the suite said nothing of {version}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    scored = {one: counts for one, counts in found.items() if one not in unscored}
    failed = [one for one, (_, bad) in scored.items() if bad]
    hung = (done.stdout + done.stderr).count("Client timed out")
    if hung:
        failed.append(f"{hung} that did not come to an end")
    if failed:
        print(f"{version}: {', '.join(failed)} failed", file=sys.stderr)
    elif done.returncode:
        failed.append(f"exit code {done.returncode}")
    return {
        "version": version,
        "scored": len(scored),
        "checks": sum(good for good, _ in scored.values()),
        "failed": failed,
        "unscored": {one: found[one][1] == 0 for one in unscored if one in found},
    }


def _table(rows: list[dict]) -> str:
    lines = [
        f"Suite {suite.PACKAGES[1].rpartition('@')[2]}, over HTTP:",
        "",
        "| version | scored scenarios | checks passed | failed | not scored: passed | not scored: failed |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        good = [one for one, passed in row["unscored"].items() if passed]
        bad = [one for one, passed in row["unscored"].items() if not passed]
        counts = f"| {row['scored']} | {row['checks']} | {len(row['failed'])} |"
        lines.append(f"| {row['version']} {counts} {', '.join(good) or '–'} | {', '.join(bad) or '–'} |")
    return "\n".join(lines)


def _write(table: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
