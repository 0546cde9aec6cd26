"""`--yes` runs only what the curated table allows, whatever a page, a repository or the PATH contains."""

import asyncio
import os
import subprocess
import sys

import pytest

from do_fixtures import StartedPrograms, make_arguments, make_candidates
from tables import every_case
from toolwire import ToolCall
from toolwire.cli.do.command import run_request
from toolwire.cli.do.execution import run_command_line
from toolwire.retrieve.commands.catalogue import Catalogue, Roots
from toolwire.retrieve.commands.command import CommandOption, Operand, SystemCommand, find_program
from toolwire.retrieve.commands.command_tool import make_command_line
from toolwire.retrieve.commands.read_only import READ_ONLY, is_read_only
from toolwire.testing import ScriptedModel, says

if sys.platform == "win32":
    pytest.skip("programs of POSIX systems", allow_module_level=True)

FILES = Operand("file", repeats=True)
PAGE = """.TH {name} 1
.SH NAME
{name} \\- {about}
.SH SYNOPSIS
.B {name}
{usage}
.SH OPTIONS
{options}
"""
started = StartedPrograms()


def option(*names, style="flag", **given):
    return CommandOption(names, style, **given)


def run_unasked(command, arguments, **given):
    """Return the outcome under --yes and the programs that were started."""
    line = make_command_line(command, arguments)
    with started.recorded() as programs:
        outcome = run_command_line("show it", line, (), make_arguments(yes=True, **given))
    return outcome, programs


@pytest.mark.skipif(find_program("git") is None, reason="no git on this machine")
@pytest.mark.parametrize(("name", "arguments"), [("status", {}), ("log", {}), ("branch", {}), ("tag", {})])
def test_command_of_git_needs_a_confirmation(name, arguments, tmp_path, monkeypatch):
    """A clean filter of the repository is a program: `git status` runs it."""
    monkeypatch.chdir(tmp_path)
    pwned = tmp_path.parent / f"{tmp_path.name}-pwned"
    program = tmp_path / "evil.sh"
    program.write_text(f"#!/bin/sh\necho ran >> {pwned}\ncat\n")
    program.chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "f").write_text("text\n")
    for words in (["init", "-q"], ["add", "f"], ["commit", "-qm", "x"], ["config", "filter.evil.clean", str(program)]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    os.utime(tmp_path / "f", (1, 1))
    outcome, programs = run_unasked(SystemCommand(("git", name)), arguments)
    assert outcome.kind == "refused"
    assert programs == []
    assert not pwned.exists()


def test_no_program_with_a_configuration_of_the_folder_is_listed():
    programs = {name.split()[0] for name in READ_ONLY}
    assert programs.isdisjoint({"git", "pip", "npm", "cargo", "make", "uniq", "lsof", "dpkg-query", "file"})


@pytest.mark.parametrize(
    ("arguments", "is_unasked"),
    [
        ({}, True),
        ({"format": "%Y"}, True),
        ({"utc": True}, True),
        ({"mmddhhmm": "010100002031"}, False),
        ({"format": "%Y", "mmddhhmm": "0101"}, False),
    ],
)
def test_date_with_an_operand_that_sets_the_clock_is_not_read_only(arguments, is_unasked):
    command = SystemCommand(
        ("date",), options=(option("-u", "--utc"),), operands=(Operand("format", prefix="+"), Operand("mmddhhmm"))
    )
    assert make_command_line(command, arguments).effect.is_read_only == is_unasked


@pytest.mark.parametrize(
    ("name", "options", "arguments"),
    [
        ("sort", [option("-n", style="optional", placeholder="MODE")], {"n": "ovictim", "file": ["in"]}),
        ("sort", [option("-r", style="attached", placeholder="X")], {"r": "ovictim"}),
        ("uniq", [option("-c", style="separate"), option("-d", style="separate")], {"c": "in", "d": "victim"}),
        ("hostname", [option("-s", style="separate", placeholder="X")], {"s": "evil"}),
        ("ls", [option("--all", style="attached", placeholder="X")], {"all": "x"}),
        ("grep", [option("-e")], {"e": True, "file": ["-f", "-/etc/shadow"]}),
        ("ls", [option("-la")], {"la": True}),
        ("date", [option("-u", style="separate", placeholder="X")], {"u": "01010000"}),
        ("tree", [option("-L"), option("-o")], {"L": True, "o": True, "file": ["victim"]}),
    ],
)
def test_page_cannot_widen_the_read_only_use(name, options, arguments):
    command = SystemCommand((name,), options=tuple(options), operands=(FILES,))
    assert not make_command_line(command, arguments).effect.is_read_only


@every_case(
    ("line", "is_listed"),
    [
        ("grep -e x -m 5 file", True),
        ("grep -e -- -f x", False),
        ("grep -m5 x", True),
        ("head --lines=5 x", True),
        ("head --lines 5 x", True),
        ("head --lines", False),
        ("ls --color=never --color x", True),
        ("ls --all=x", False),
        ("cat -", False),
        ("find . -name -delete", False),
        ("find . -mtime -7", True),
        ("find . ( -delete )", False),
        ("find . -name x -delete", False),
        ("sort -k 2 -o x", False),
        ("sort -- -o", False),
        ("docker ps x", False),
        ("docker logs --follow x", False),
        ("tail -f x", False),
    ],
)
def test_vector_is_read_by_the_table(line, is_listed):
    words = line.split()
    command = words[:2] if words[0] == "docker" else words[:1]
    assert is_read_only(command, words) == is_listed


LIST = SystemCommand(("ls",), operands=(FILES,))


def test_program_of_another_folder_does_not_run_unasked(tmp_path, monkeypatch):
    """A virtual environment or project that precedes the folders of the system in PATH."""
    (tmp_path / "bin").mkdir()
    target = tmp_path / "pwned"
    for name in ("ls", "frobls"):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\ntouch {target}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    outcome, programs = run_unasked(LIST, {"file": [str(tmp_path / "bin")]})
    assert (outcome.kind, outcome.stdout.split()) == ("ran", ["frobls", "ls"])
    assert len(programs) == 1
    assert not target.exists()
    monkeypatch.setattr("toolwire.retrieve.commands.command.SYSTEM_FOLDERS", (str(tmp_path / "none"),))
    assert run_unasked(LIST, {})[0].kind == "refused"
    assert not target.exists()


def test_command_without_a_question_gets_no_input_and_a_short_environment(monkeypatch):
    monkeypatch.setenv("PAGER", "evil")
    monkeypatch.setenv("LD_LIBRARY_PATH_X", "evil")
    seen = {}

    def start(*_, **given):
        seen.update(given)
        raise OSError(2, "not started")

    monkeypatch.setattr(subprocess, "Popen", start)
    assert run_unasked(LIST, {})[0].kind == "failed"
    assert seen["stdin"] == subprocess.DEVNULL
    assert "LD_LIBRARY_PATH_X" not in seen["env"]
    assert seen["env"]["PAGER"] == "cat"
    assert seen["env"]["PATH"].split(os.pathsep)[0] == "/usr/bin"


def test_endless_command_without_a_question_is_ended(tmp_path, monkeypatch):
    """A regular file at the check, and a pipe at the start of the program."""
    monkeypatch.setattr("toolwire.cli.do.execution._MAX_SECONDS", 0.2)
    monkeypatch.setattr("toolwire.cli.do.execution._names_special_file", lambda _: False)
    os.mkfifo(tmp_path / "pipe")
    outcome, _ = run_unasked(SystemCommand(("cat",), operands=(FILES,)), {"file": [str(tmp_path / "pipe")]})
    assert (outcome.kind, "longer than" in outcome.message) == ("failed", True)


def test_special_file_needs_a_confirmation(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    command = SystemCommand(("cat",), operands=(FILES,))
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path / "link"):
        outcome, programs = run_unasked(command, {"file": [str(path)]})
        assert (outcome.kind, programs) == ("refused", [])


def test_hostile_page_beside_the_path_overwrites_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "man" / "man1").mkdir(parents=True)
    page = PAGE.format(
        name="sort",
        about="sort lines of a file",
        usage="[\\fIFILE\\fR]...",
        options=".TP\n\\fB-n\\fR[\\fIMODE\\fR]\nby number",
    )
    (tmp_path / "man" / "man1" / "sort.1").write_text(page)
    (tmp_path / "in").write_text("b\na\n")
    (tmp_path / "victim").write_text("precious")
    commands = Catalogue(Roots((str(tmp_path / "man"),)), find_program=lambda name: f"/usr/bin/{name}").load()
    call = says(ToolCall("1", "sort", {"n": "ovictim", "file": ["in"]}))
    outcome = asyncio.run(
        run_request(
            ScriptedModel([call, call]), "sort the lines of a file", make_candidates(commands), make_arguments(yes=True)
        )
    )
    assert outcome.kind == "refused"
    assert (tmp_path / "victim").read_text() == "precious"
