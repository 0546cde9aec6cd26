"""The command `toolwire test`: exit codes, notes, reproductions, and the removal of temporary files."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from toolwire.testing import ToolTestSettings, check_python_tools
from toolwire.testing.tool_tests import landlock
from waiting import SAFETY, wait_until
from warm_command import WARM

COMMAND = [sys.executable, "-m", "toolwire", "test"]


def run(*arguments):
    return subprocess.run([*WARM, "test", *map(str, arguments)], capture_output=True, text=True, check=False)


def write_tools(folder, text):
    file = folder / "tools.py"
    file.write_text("import toolwire\n" + text, encoding="utf-8")
    return file


SHOUT = '@toolwire.tool(effect="read")\ndef shout(text: str) -> str:\n    """Shout."""\n    return text.upper()\n'


def test_arguments_that_the_schema_rejects_are_named(tmp_path):
    done = run(write_tools(tmp_path, SHOUT), "--tool", "shout", "--arguments", '{"textx": 1}')
    assert "the schema rejects these arguments: " in done.stdout


def test_run_without_a_tested_tool_is_no_success(tmp_path):
    done = run(write_tools(tmp_path, SHOUT.replace('(effect="read")', "")))
    assert done.returncode == 2
    assert "no tool was tested" in done.stderr


def test_report_file_is_checked_before_the_tests(tmp_path):
    target = tmp_path / "missing" / "report.xml"
    done = run(write_tools(tmp_path, SHOUT), "--junit", target)
    assert done.returncode == 2
    assert f"cannot write {target}" in done.stderr
    assert "tools tested" not in done.stderr


def test_temporary_folders_are_removed_after_a_termination(tmp_path):
    text = SHOUT.replace("    return", "    import time\n    time.sleep(600)\n    return")
    file, temp = write_tools(tmp_path, text), tmp_path / "temp"
    temp.mkdir()
    environment = {**os.environ, "TMPDIR": str(temp)}
    process = subprocess.Popen([*COMMAND, str(file), "--timeout", "600"], env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: list(temp.glob("toolwire-test-*/work/notes.txt")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(SAFETY) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert list(temp.glob("toolwire-test-*")) == []


def test_slow_tool_is_marked_and_gets_paths_first(tmp_path):
    text = """
import time

@toolwire.tool(effect="read")
def read_file(path: str) -> str:
    '''Read a file.'''
    time.sleep(0.2)
    try:
        return open(path).read()
    except (OSError, ValueError) as error:
        raise toolwire.ToolError(str(error))

@toolwire.tool(effect="read")
def slow(text: str) -> str:
    '''Wait.'''
    time.sleep(0.2)
    return text
"""
    done = run(write_tools(tmp_path, text), "--time-limit", "5", "--jobs", "2")
    assert "✗ read_file: path-escape" in done.stdout
    assert "!  slow " in done.stdout


def test_order_of_a_set_is_no_fault(tmp_path):
    text = """
@toolwire.tool(effect="pure")
def different(items: list[str]) -> set[str]:
    '''Return the different items.'''
    return set(items)

@toolwire.tool(effect="pure")
def in_any_order(items: list[str]) -> list[str]:
    '''Return the different items as a list.'''
    return list({*items, "a", "b", "c"})
"""
    report = check_python_tools(str(write_tools(tmp_path, text)), ToolTestSettings(cases=20))
    found = [{finding.check for finding in result.findings} for result in report.results]
    assert found == [set(), {"nondeterministic"}]


def test_reproduction_of_a_race_between_different_calls_shows_it(tmp_path):
    text = """
import threading, time
first, second = threading.Lock(), threading.Lock()

@toolwire.tool(effect="read")
def transfer(direction: bool) -> str:
    '''Transfer.'''
    one, other = (first, second) if direction else (second, first)
    with one:
        time.sleep(0.05)
        with other:
            return "done"
"""
    settings = ToolTestSettings(cases=6, timeout=1.0)
    (result,) = check_python_tools(str(write_tools(tmp_path, text)), settings).results
    (finding,) = result.findings
    assert finding.check == "race"
    done = run(*shlex.split(finding.reproduction)[2:], "--timeout", "1", "--json")
    assert [one["check"] for one in json.loads(done.stdout)["results"][0]["findings"]] == ["race"]


@pytest.mark.skipif(landlock.landlock_version() < 4, reason="needs Landlock with network rules")
def test_connection_of_native_code_is_denied_and_reported(tmp_path):
    pytest.importorskip("psycopg")
    text = """
import psycopg

@toolwire.tool(effect="read")
def fetch(text: str) -> str:
    '''Fetch.'''
    psycopg.connect("postgresql://127.0.0.1:9/x")
    return text
"""
    (result,) = check_python_tools(str(write_tools(tmp_path, text)), ToolTestSettings(cases=3)).results
    assert {finding.check for finding in result.findings} == {"network"}
