"""`toolwire test` confines the tools: nothing outside the temporary folder changes, and the run survives."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

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
    # Only the process that forked this one is killed: later the parent is another process.
    kill = "native_kill, parent = ctypes.CDLL(None).kill, os.getppid()\n"
    file = write_file(
        tmp_path,
        kill
        + tool_text("first", "pass")
        + tool_text("culprit", "if os.getppid() == parent:\n    native_kill(parent, 9)")
        + tool_text("other", "pass"),
    )
    report = run_tests(file, cases=3)
    assert checks_by_tool(report) == {"first": set(), "culprit": {"crash"}, "other": set()}
    (finding,) = report.results[1].findings
    assert "killed the process that starts the tools" in finding.message


def test_only_arguments_that_kill_the_process_that_starts_tools_again_are_named(tmp_path, without_landlock):
    kill = "import threading, time\nfrom typing import Literal\nnative_kill, parent = ctypes.CDLL(None).kill, os.getppid()\n"
    culprit = tool_text("culprit", "if text == 'd' and os.getppid() == parent:\n    native_kill(parent, 9)")
    # it kills while another call is made
    later = "threading.Timer(0.1, native_kill, (parent, 9)).start()"
    delayed = tool_text("delayed", f"if text == 'd' and os.getppid() == parent:\n    {later}\ntime.sleep(0.02)")
    file = write_file(
        tmp_path, kill + (culprit + delayed).replace("text: str", "text: Literal['c', 'd', 'e', 'f', 'g']")
    )
    report = run_tests(file, cases=8)
    (known,), (unknown,) = (result.findings for result in report.results)
    assert (known.check, known.arguments) == ("crash", {"text": "d"})
    assert (unknown.check, unknown.arguments) == ("crash", None)
    assert "--seed" in unknown.reproduction


def outside_tools(victim):
    """Return tools that change files outside of the temporary folder, each in another way."""
    setup = f"""
VICTIM = {str(victim)!r}
folder = os.open(VICTIM, os.O_RDONLY)
"""
    bodies = {
        "remove_tree": "shutil.rmtree(VICTIM, ignore_errors=text == 'a')",
        "remove_at": "os.unlink('a.txt', dir_fd=folder)",
        "remove_folder_at": "os.unlink('sub/b.txt', dir_fd=folder)\nos.rmdir('sub', dir_fd=folder)",
        "create_at": "os.close(os.open('new.txt', os.O_CREAT | os.O_WRONLY, dir_fd=folder))",
        "rename_at": "os.rename('a.txt', 'stolen.txt', src_dir_fd=folder)",
        "through_link": "Path('lnk').unlink(missing_ok=True)\nos.symlink(VICTIM + '/a.txt', 'lnk')\nopen('lnk', 'w').close()",
        "hard_link": "os.link(VICTIM + '/a.txt', 'hard')\nopen('hard', 'w').close()",
        "change_mode": "opened = os.open(VICTIM + '/a.txt', os.O_RDONLY)\nos.fchmod(opened, 0o700)",
        "make_fifo": "os.mkfifo(VICTIM + '/fifo')",
        "database": "sqlite3.connect(VICTIM + '/db.sqlite').execute('create table t (x)')",
        "change_database": "c = sqlite3.connect(VICTIM + '/old.sqlite')\nc.execute('create table t (x)')\nc.commit()",
    }
    return setup + "".join(tool_text(name, body, "write") for name, body in bodies.items())


@pytest.mark.parametrize("protection", [pytest.param("landlock", marks=needs_landlock), "hook"])
def test_changes_outside_are_denied_and_reported(tmp_path, protection, request):
    if protection == "hook":
        request.getfixturevalue("without_landlock")
    victim = make_victim(tmp_path)
    with contextlib.closing(sqlite3.connect(victim / "old.sqlite")) as database:
        database.execute("pragma user_version = 7")
    before = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    modes = {path: path.stat().st_mode for path in before}
    file = write_file(tmp_path, outside_tools(victim))
    report = run_tests(file, include_writes=True, unprotected=True, cases=2)
    assert report.protection == protection
    assert {path: path.read_bytes() for path in victim.rglob("*") if not path.is_dir()} == before
    assert {path: path.stat().st_mode for path in before} == modes
    assert {name for name, checks in checks_by_tool(report).items() if checks != {"write"}} == set()


def test_processes_signals_and_native_functions_are_denied_and_reported(tmp_path):
    bodies = {
        "spawn": "multiprocessing.get_context('spawn').Process(target=print).start()",
        "signal_parent": "os.kill(os.getppid(), 9)",
        "signal_group": "os.killpg(os.getpgid(0), 9)",
        "signal_by_descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
        "native": "ctypes.CDLL(None).system(b'true')",
        "native_loaded_before": "library.system(b'true')",
    }
    header = "import multiprocessing\nlibrary = ctypes.CDLL(None)\n"
    file = write_file(tmp_path, header + "".join(tool_text(name, body) for name, body in bodies.items()))
    report = run_tests(file, cases=2)
    assert checks_by_tool(report) == {name: {"process"} for name in bodies}
    messages = {result.tool: result.findings[0].message for result in report.results}
    assert messages["signal_parent"].startswith("it sends signal 9 to process ")
    assert messages["native"] == "it loads a native library: the C library"


def test_temporary_files_and_restored_folders_are_no_fault(tmp_path):
    bodies = {
        "temporary": "with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory() as folder:\n"
        "    file.write(b'x')\n    Path(folder, 'y').write_text(text)",
        "pool": "from multiprocessing.pool import ThreadPool\nwith ThreadPool(2) as pool:\n    pool.map(len, ['a', 'b'])",
        "reads_database": "sqlite3.connect(DATABASE).execute('pragma user_version').fetchone()",
    }
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.sqlite")) as database:
        database.execute("pragma user_version = 7")
    header = f"DATABASE = {str(tmp_path / 'shop.sqlite')!r}\n"
    file = write_file(tmp_path, header + "".join(tool_text(name, body) for name, body in bodies.items()))
    assert checks_by_tool(run_tests(file)) == {name: set() for name in bodies}


def test_denied_operation_is_one_finding_and_counts_calls(tmp_path):
    bodies = {
        "consequence": "for number in range(5):\n    try:\n        open(f'{VICTIM}/{number}', 'w')\n"
        "    except OSError:\n        pass\nraise ValueError(text)",
        "leave": "os.chdir('/')",
        "shared_memory": "from multiprocessing.shared_memory import SharedMemory\nSharedMemory('toolwire-x', True, 8)",
    }
    header = f"VICTIM = {str(make_victim(tmp_path))!r}\n"
    file = write_file(tmp_path, header + "".join(tool_text(name, body) for name, body in bodies.items()))
    report = run_tests(file, cases=4)
    expected = {"consequence": {"write"}, "leave": {"shared-state"}, "shared_memory": {"write"}}
    assert checks_by_tool(report) == expected
    consequence = report.results[0]
    assert consequence.findings[0].count <= consequence.calls
    assert not Path("/dev/shm/toolwire-x").exists()


def test_unprotected_tools_with_effects_never_get_a_parent_folder(tmp_path, without_landlock):
    body = "received.append(os.path.normpath(os.path.join(os.getcwd(), path.split(chr(0))[0])))"
    lines = f"""
received = []

@toolwire.tool(effect="write")
def delete_folder(path: str) -> list[str]:
    '''Delete a folder.'''
    {body}
    if os.getcwd().startswith(received[-1]) and os.getcwd() != received[-1]:
        raise ValueError(received[-1])
    return []

@toolwire.tool(effect="read")
def read_folder(path: str) -> list[str]:
    '''Read a folder.'''
    {body}
    if received[-1] == "/":
        raise ValueError("the root")
    return []
"""
    report = run_tests(write_file(tmp_path, lines), include_writes=True, unprotected=True, cases=100)
    messages = {result.tool: [finding.message for finding in result.findings] for result in report.results}
    assert "ValueError: the root" in messages["read_folder"]
    assert [text for text in messages["delete_folder"] if "ValueError" in text] == []
