"""`toolwire test` on real files and servers, in real processes."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from places import ROOT
from toolwire.ir import ConfigError
from toolwire.mcp import ServerSpec
from toolwire.testing import TOOL_CHECKS, ToolTestSettings, check_python_tools, check_server_tools
from waiting import SAFETY, wait_until
from warm_command import WARM

EXAMPLES = ROOT / "examples"

# The check that finds each planted fault of examples/faulty_tools.py.
PLANTED = {
    "common_prefix": "crash",
    "avatar_url": "crash",
    "count_occurrences": "hang",
    "invoice_numbers": "output-size",
    "get_product": "output-schema",
    "ticket_reference": "nondeterministic",
    "search_products": "write",
    "label_ticket": "shared-state",
    "preview_receipt": "race",
    "add_credit": "double-effect",
    "read_example": "path-escape",
    "wait_for_build": "cancellation",
}


def run(*arguments, cwd=None):
    command = [*WARM, "test", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, encoding="utf-8")


def findings(file, *, tool=None, cases=5, **settings):
    """Test a file in this process, and return the findings as (tool, check)."""
    tools = () if tool is None else (tool,)
    report = check_python_tools(str(file), ToolTestSettings(tools=tools, cases=cases, unprotected=True, **settings))
    return {(finding.tool, finding.check) for finding in report.all_findings}


def write_tools(folder, text):
    file = folder / "tools.py"
    header = "import toolwire\nfrom toolwire import ToolError\nfrom toolwire.run import CallContext\n"
    file.write_text(header + text, encoding="utf-8")
    return file


@pytest.mark.finding("X11")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("tool", PLANTED)
def test_planted_fault_is_found(tool):
    limits = {"timeout": 2.0 if PLANTED[tool] == "hang" else SAFETY}
    limits["time_limit"] = 4.0 if tool == "wait_for_build" else SAFETY  # each of its calls takes a second
    found = findings(EXAMPLES / "faulty_tools.py", tool=tool, include_writes=True, cases=40, **limits)
    assert (tool, PLANTED[tool]) in found


@pytest.mark.finding("X11")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["portable.py", "conjugate.py", "trip_planner.py"])
def test_sound_example_has_no_finding(name):
    assert findings(EXAMPLES / name, include_writes=True, cases=25, timeout=SAFETY, time_limit=4.0) == set()


@pytest.mark.full
@pytest.mark.finding("X11")
def test_sound_tools_with_state_files_and_rich_types_have_no_finding():
    assert findings(ROOT / "tests/fixtures/sound_tools.py", include_writes=True, cases=40) == set()


def test_tools_with_effects_run_only_on_request(tmp_path):
    file = write_tools(tmp_path, '@toolwire.tool\ndef save(text: str) -> str:\n    """Save."""\n    raise ValueError\n')
    assert findings(file) == set()
    assert findings(file, include_writes=True) == {("save", "crash")}


def test_operations_of_read_tools_are_denied_and_reported(tmp_path):
    file = write_tools(
        tmp_path,
        """
import os, socket, subprocess
from pathlib import Path

@toolwire.tool(effect="read")
def remove(name: str) -> str:
    '''Remove.'''
    os.remove(__file__)
    return "removed"

@toolwire.tool(effect="read")
def connect(name: str) -> str:
    '''Connect.'''
    socket.create_connection(("127.0.0.1", 9), 0.1)
    return "connected"

@toolwire.tool(effect="pure")
def start(name: str) -> str:
    '''Start.'''
    return subprocess.run(["id"], capture_output=True, text=True).stdout

@toolwire.tool(effect="read")
def environment(name: str) -> str:
    '''Read the environment.'''
    if os.environ.get("SECRET_KEY") or Path.home() == Path("/root"):
        raise ValueError
    return os.getcwd()
""",
    )
    assert findings(file, cases=4) == {("remove", "write"), ("connect", "network"), ("start", "process")}
    assert file.exists()
    assert findings(file, tool="connect", allow_hosts=("127.0.0.1",)) == set()


def test_process_that_exits_is_a_crash_and_the_other_calls_go_on(tmp_path):
    file = write_tools(
        tmp_path,
        """
import os

@toolwire.tool(effect="read")
def quit(text: str) -> str:
    '''End the process for an empty text.'''
    if not text:
        os._exit(3)
    return text

@toolwire.tool(effect="read")
def stack(depth: int) -> int:
    '''Recurse.'''
    return stack.function(depth - 1) if depth > 0 else depth
""",
    )
    quit_result, stack_result = check_python_tools(str(file), ToolTestSettings(cases=20)).results
    assert "exit code 3" in quit_result.findings[0].message
    assert quit_result.findings[0].arguments == {"text": ""}
    assert quit_result.calls > 15
    assert "RecursionError" in stack_result.findings[0].message


def test_import_with_side_effects_is_reported(tmp_path):
    target = tmp_path / "written.txt"
    file = write_tools(
        tmp_path,
        f"""
try:
    open({str(target)!r}, "w").close()
except OSError:
    pass

@toolwire.tool(effect="read")
def double(number: int) -> int:
    '''Double.'''
    return 2 * number
""",
    )
    assert findings(file) == {("", "import-effect")}
    assert not target.exists()


def test_reproduction_command_shows_the_finding_again(tmp_path):
    file = write_tools(
        tmp_path, '@toolwire.tool(effect="read")\ndef first(text: str) -> str:\n    """First."""\n    return text[0]\n'
    )
    (result,) = check_python_tools(str(file), ToolTestSettings(cases=20)).results
    assert result.findings[0].arguments == {"text": ""}
    words = shlex.split(result.findings[0].reproduction)
    assert words[:2] == ["toolwire", "test"]
    done = run(*words[2:], "--json", "--junit", tmp_path / "report.xml")
    assert done.returncode == 1
    assert json.loads(done.stdout)["results"][0]["findings"][0]["message"].startswith("IndexError")
    assert "IndexError" in (tmp_path / "report.xml").read_text()
    assert findings(file, ignore=("crash",)) == set()


def test_tool_errors_and_declared_dependencies_are_no_faults(tmp_path):
    file = write_tools(
        tmp_path,
        """
@toolwire.tool(effect="read")
def strict(text: str) -> str:
    '''Refuse everything.'''
    raise ToolError("no")

@toolwire.tool(effect="read")
def query(text: str, context: CallContext) -> str:
    '''Use a dependency.'''
    return context.deps["greeting"] + text if isinstance(context.deps, dict) else context.deps.greet(text)

def make_deps():
    return {"greeting": "hello "}
""",
    )
    report = check_python_tools(str(file), ToolTestSettings(cases=5))
    assert not report.all_findings
    assert "the tool uses context.deps" in report.results[1].skipped
    assert findings(file, deps="make_deps") == set()


def test_report_is_readable_and_exit_code_shows_findings(tmp_path):
    file = write_tools(
        tmp_path,
        """
@toolwire.tool(effect="read")
def shout(text: str) -> str:
    '''Shout.'''
    if text == "":
        raise ValueError("\\x1b[31mempty")
    return text.upper()

@toolwire.tool
def save(text: str) -> str:
    '''Save.'''
    return text
""",
    )
    done = run(file, "--cases", "10")
    assert done.returncode == 1
    assert "✗  shout  read" in done.stdout
    assert "-  save   write          skipped: effect write" in done.stdout
    assert "ValueError: \\x1b[31mempty" in done.stdout
    assert done.stderr == "1 tool tested, 1 finding, seed 0\n"


def test_checks_are_listed():
    done = run("--list")
    assert done.returncode == 0
    first = [line.split()[0] for line in done.stdout.splitlines() if line[:1].isalpha()]
    assert first == ["check", *(check.id for check in TOOL_CHECKS)]


def test_wrong_usage_is_explained(tmp_path):
    file = write_tools(tmp_path, '@toolwire.tool\ndef save(text: str) -> str:\n    """Save."""\n    return text\n')
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(ConfigError, match="did you mean 'crash"):
        findings(file, ignore=("crahs",))
    with pytest.raises(ConfigError, match="no tool matches nope"):
        findings(file, tool="nope")
    with pytest.raises(ConfigError, match=r"cannot load .*broken.py: ZeroDivisionError"):
        findings(broken)
    done = run(file, "--arguments", "{}")
    assert done.returncode == 2
    assert "--arguments needs one --tool" in done.stderr


def test_server_is_tested_over_the_protocol(tmp_path):
    file = write_tools(
        tmp_path,
        """
import os
from pathlib import Path

@toolwire.tool(effect="read")
def read_file(path: str) -> str:
    '''Read a file.'''
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise ToolError(str(error))

@toolwire.tool(effect="read")
def leave(text: str) -> str:
    '''End the server for an empty text.'''
    if not text:
        os._exit(1)
    return text

@toolwire.tool(effect="read")
def sound(text: str) -> str:
    '''Return the text.'''
    return text
""",
    )
    command = [sys.executable, "-m", "toolwire", "mcp", "serve", str(file)]
    report = check_server_tools(
        ["server"], ServerSpec("server", *command[:1], tuple(command[1:])), ToolTestSettings(cases=20)
    )
    found = {(finding.tool, finding.check) for finding in report.all_findings}
    assert found == {("read_file", "path-escape"), ("leave", "server-exit")}


def test_server_that_makes_one_call_at_a_time_has_no_race(tmp_path):
    file = write_tools(
        tmp_path,
        """
import threading, time
lock = threading.Lock()

@toolwire.tool(effect="read")
def wait(text: str) -> str:
    '''Wait.'''
    with lock:
        time.sleep(0.4)
    return text
""",
    )
    command = [sys.executable, "-m", "toolwire", "mcp", "serve", str(file)]
    spec = ServerSpec("server", *command[:1], tuple(command[1:]))
    report = check_server_tools(["server"], spec, ToolTestSettings(cases=1, timeout=1.0))
    assert report.results[0].calls > 8
    assert not report.all_findings


def test_server_of_an_mcp_configuration_is_selected_by_name(tmp_path):
    entry = {"command": sys.executable, "args": ["-m", "toolwire", "mcp", "serve", str(EXAMPLES / "conjugate.py")]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"verbs": entry, "other": {"command": "none"}}}))
    assert "use --server verbs or other" in run(file).stderr
    done = run(file, "--server", "verbs", "--cases", "5")
    assert done.returncode == 0, done.stderr
    assert "✓  conjugate" in done.stdout


def processes_in(folder):
    """Return the ids of the processes whose working folder is below a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if link.readlink().is_relative_to(folder):
                found.append(link.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_no_process_stays_after_a_killed_command(tmp_path):
    file = write_tools(
        tmp_path,
        """
import time

@toolwire.tool(effect="read")
def wait(text: str) -> str:
    '''Never return.'''
    while True:
        time.sleep(0.05)
""",
    )
    command = [sys.executable, "-m", "toolwire", "test", str(file), "--timeout", "600"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        wait_until(lambda: processes_in(tmp_path))
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not processes_in(tmp_path))
