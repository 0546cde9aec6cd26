"""`toolwire do --learn` runs a program that the user names, restricted."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolwire.cli.do.command_help import learn_command
from toolwire.ir.errors import ConfigError
from toolwire.testing.tool_tests.landlock import landlock_version
from waiting import SAFETY

if sys.platform == "win32":
    pytest.skip("programs of POSIX systems", allow_module_level=True)

HELP = """
import os, socket, sys
print("Frobnicate things.")
print(f"  --home TEXT  {os.environ['HOME']}")
print(f"  --names TEXT  {sorted(os.environ)}")
print(f"  --stdin TEXT  {sys.stdin.read()!r}")
print(f"  --arguments TEXT  {sys.argv[1:]}")
"""
WRITE = """
import os, sys
print("Frobnicate things.")
for path in (sys.argv[0] + ".written", os.environ["HOME"] + "/inside"):
    try:
        open(path, "w").close()
        print(f"  --wrote{path[-3:]}  yes")
    except OSError:
        pass
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    def install(source):
        program = tmp_path / "frob"
        program.write_text(f"#!{sys.executable} -I\n{source}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        monkeypatch.setattr("toolwire.cli.do.command_help._TIMEOUT", SAFETY)
        return program

    return install


def test_program_gets_no_input_no_keys_and_an_empty_home(install, tmp_path):
    install(HELP)
    (command,) = learn_command("frob")
    about = {option.name: option.description for option in command.options}
    assert "toolwire-help-" in about["--home"]
    assert "OPENAI_API_KEY" not in about["--names"]
    assert (about["--stdin"], about["--arguments"]) == ("''", "['--help']")
    assert not list(tmp_path.parent.glob("toolwire-help-*"))


@pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")
def test_program_writes_only_to_its_home(install):
    program = install(WRITE)
    (command,) = learn_command("frob")
    assert [option.name for option in command.options] == ["--wroteide"]
    assert not program.with_name("frob.written").exists()


@pytest.mark.parametrize(
    ("source", "seconds", "message"),
    [("import time; time.sleep(600)", 1.0, "did not end within 1 seconds"), ("", SAFETY, "printed nothing")],
)
def test_program_that_hangs_or_is_silent_is_an_error(source, seconds, message, install, monkeypatch):
    install(source)
    monkeypatch.setattr("toolwire.cli.do.command_help._TIMEOUT", seconds)
    with pytest.raises(ConfigError, match=message):
        learn_command("frob")


def test_size_of_the_output_is_limited(install):
    """The program fails, and its text is not a help."""
    install("import os\nwhile True: os.write(1, b'x' * 65536)")
    (command,) = learn_command("frob")
    assert command.options == ()


@pytest.mark.parametrize(
    "name", ["", "sh", "sudo", "python3", "a b c d e", "frob; reboot", "frob --x", "/bin/ls", "nope"]
)
def test_name_that_is_no_plain_command_is_refused(name, install):
    install(HELP)
    with pytest.raises(ConfigError):
        learn_command(name)


SURVIVOR = """
import os, subprocess, sys, time
print("Frobnicate things.")
child = subprocess.Popen(["/bin/sh", "-c", "sleep 300 & sleep 300"], start_new_session=True)
print(f"  --child TEXT  {child.pid}")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_CHILD_SUBREAPER")
def test_process_in_a_session_of_its_own_is_ended(install):
    install(SURVIVOR)
    own = subprocess.Popen(["/bin/sleep", "300"])
    try:
        (command,) = learn_command("frob")
        (option,) = command.options
        assert not Path(f"/proc/{option.description}").exists()
        assert sleeping_processes(option.description) == []
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def sleeping_processes(session):
    """Return the processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == session:
            found.append(entry)
    return found


def test_third_word_could_be_an_operand_and_is_refused(install):
    install(HELP)
    assert learn_command("frob get")[0].name == "frob get"
    with pytest.raises(ConfigError, match="takes the name of a command"):
        learn_command("frob run image")


def test_missing_landlock_is_reported(install, monkeypatch, capsys):
    monkeypatch.setattr("toolwire.testing.tool_tests.landlock.landlock_version", lambda: 0)
    install(HELP)
    learn_command("frob")
    assert "no Landlock" in capsys.readouterr().err
