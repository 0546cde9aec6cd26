"""`toolwire test` confines the tools: nothing outside the temporary folder changes, and the run survives."""

import os
import socket
import subprocess
import sys

import pytest

from toolwire.ir import ConfigError
from toolwire.mcp import ServerSpec
from toolwire.testing import ToolTestSettings, check_python_tools, check_server_tools
from toolwire.testing.tool_tests import landlock, python_tests, worker

needs_landlock = pytest.mark.skipif(not landlock.landlock_version(), reason="needs Landlock")
HEADER = "import ctypes, os, shutil, signal, socket, sqlite3, tempfile\nfrom pathlib import Path\nimport toolwire\n"


def make_victim(folder):
    """Create files that a tool tries to change, and return their folder."""
    victim = folder / "victim"
    (victim / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (victim / name).write_text("original")
    return victim


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.read_text() if path.is_file() else "", path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


def write_file(folder, text, name="tools.py"):
    file = folder / name
    file.write_text(HEADER + text, encoding="utf-8")
    return file


def tool_text(name, body, effect="read"):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"\n@toolwire.tool(effect={effect!r})\ndef {name}(text: str) -> str:\n    '''Test.'''\n{lines}\n    return text\n"


def run_tests(file, **settings):
    return check_python_tools(str(file), ToolTestSettings(**{"cases": 3, "timeout": 10.0, **settings}))


def checks_by_tool(report):
    return {result.tool: {finding.check for finding in result.findings} for result in report.results}


@pytest.fixture
def without_landlock(monkeypatch):
    for module in (python_tests, worker):
        monkeypatch.setattr(module, "landlock_version", lambda: 0)


RESTRICTED = """
import os, signal, socket, sys
from toolwire.testing.tool_tests.landlock import restrict_process
inside, outside, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
restrict_process([inside], allow_network=False)
def attempt(name, action):
    try:
        action()
    except OSError as error:
        print(name, type(error).__name__)
    else:
        print(name, "done")
attempt("write inside", lambda: open(f"{inside}/new", "w").close())
attempt("write outside", lambda: open(f"{outside}/new", "w").close())
attempt("truncate outside", lambda: os.truncate(f"{outside}/a.txt", 0))
attempt("remove outside", lambda: os.remove(f"{outside}/a.txt"))
attempt("move outside", lambda: os.rename(f"{outside}/a.txt", f"{inside}/a.txt"))
attempt("link outside", lambda: os.link(f"{outside}/a.txt", f"{inside}/b.txt"))
attempt("command", lambda: os.system(f"touch {outside}/command 2>/dev/null"))
attempt("signal", lambda: os.kill(os.getppid(), 0))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", port)))
attempt("read", lambda: open(f"{outside}/a.txt").close())
"""


@needs_landlock
def test_kernel_denies_changes_outside_the_folders(tmp_path):
    victim, inside = make_victim(tmp_path), tmp_path / "inside"
    inside.mkdir()
    before = contents(victim)
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", RESTRICTED, inside, victim, str(server.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert contents(victim) == before
    expected = {"write inside": "done", "read": "done", "command": "done"}
    version = landlock.landlock_version()
    denied = ["write outside", "remove outside", "move outside", "link outside"]
    denied += ["truncate outside"] * (version >= 3) + ["connect"] * (version >= 4) + ["signal"] * (version >= 6)
    for name in denied:
        assert results[name] in ("PermissionError", "OSError"), name
    assert {name: results[name] for name in expected} == expected


@needs_landlock
def test_server_writes_below_the_temporary_folder_only(tmp_path):
    victim = make_victim(tmp_path)
    before = contents(victim)
    body = f"shutil.rmtree({str(victim)!r}, ignore_errors=True)\nPath('inside.txt').write_text(text)"
    file = write_file(tmp_path, tool_text("clean", body, "write"))
    command = (sys.executable, "-m", "toolwire", "mcp", "serve", str(file))
    spec = ServerSpec("server", command[0], command[1:], {"PYTHONPATH": os.pathsep.join(sys.path)})
    report = check_server_tools(["server"], spec, ToolTestSettings(cases=3, include_writes=True))
    assert report.protection == "landlock"
    assert report.results[0].calls > 2
    assert not report.all_findings
    assert contents(victim) == before


def test_tools_with_effects_need_permission_without_landlock(tmp_path, without_landlock):
    file = write_file(tmp_path, tool_text("save", "Path('x.txt').write_text(text)", "write"))
    with pytest.raises(ConfigError, match="no Landlock"):
        run_tests(file, include_writes=True)
    assert run_tests(file).protection == "hook"
    report = run_tests(file, include_writes=True, unprotected=True)
    assert checks_by_tool(report) == {"save": set()}


def test_run_survives_a_tool_that_kills_the_process_that_starts_tools(tmp_path, without_landlock):
    kill = "ctypes_kill = ctypes.CDLL(None).kill\n"
    file = write_file(
        tmp_path,
        kill
        + tool_text("first", "pass")
        + tool_text("culprit", "ctypes_kill(os.getppid(), 9)")
        + tool_text("other", "pass")
        + tool_text("crashing", "return text[0]"),
    )
    report = run_tests(file, cases=12)
    assert checks_by_tool(report) == {"first": set(), "culprit": {"crash"}, "other": set(), "crashing": {"crash"}}
    (finding,) = report.results[1].findings
    assert "killed the process that starts the tools" in finding.message
