"""Argument vectors and effects of calls."""

import pytest

from do_fixtures import load_fixture_commands
from tables import every_case
from toolwire.retrieve.commands.command import CommandOption, Operand, SystemCommand
from toolwire.retrieve.commands.command_tool import RefusedCall, declare_command, make_command_line, select_options
from toolwire.retrieve.commands.effects import EFFECTS, judge_effect, refusal_reason
from toolwire.retrieve.commands.read_only import READ_ONLY

COMMANDS = {command.name: command for command in load_fixture_commands()}
PROGRAM = SystemCommand(
    ("frob",),
    options=(
        CommandOption(("-a", "--all")),
        CommandOption(("--name",), "attached", "NAME"),
        CommandOption(("-n",), "separate", "COUNT", is_integer=True),
        CommandOption(("--color",), "optional", "WHEN", choices=("auto", "never")),
        CommandOption(("-U",), "attached", "n"),
        CommandOption(("--tag",), "separate", "TAG", repeats=True),
        CommandOption(("--hook",), "attached", "COMMAND"),
    ),
    operands=(Operand("source", True, True), Operand("format", prefix="+")),
)


def vector(command, **arguments):
    return list(make_command_line(command, arguments).vector)


@every_case(
    ("arguments", "expected"),
    [
        ({}, ["x"]),
        ({"all": True}, ["--all", "x"]),
        ({"all": False}, ["x"]),
        ({"name": "a b; c"}, ["--name=a b; c", "x"]),
        ({"name": "-x"}, ["--name=-x", "x"]),
        ({"n": 5}, ["-n", "5", "x"]),
        ({"n": -5}, ["-n", "-5", "x"]),
        ({"color": True}, ["--color", "x"]),
        ({"color": "never"}, ["--color=never", "x"]),
        ({"U": "3"}, ["-U3", "x"]),
        ({"tag": ["a", "b"]}, ["--tag", "a", "--tag", "b", "x"]),
        ({"format": "%Y"}, ["x", "+%Y"]),
    ],
)
def test_call_becomes_a_vector(arguments, expected):
    assert vector(PROGRAM, source=["x"], **arguments) == ["frob", *expected]


@every_case(
    ("arguments", "message"),
    [
        ({}, "missing"),
        ({"source": ["x"], "color": "blue"}, "color"),
        ({"source": ["x"], "n": "five"}, "integer"),
        ({"source": ["x"], "hook": "reboot"}, "hook"),
        ({"source": ["-x"]}, "looks like an option"),
        ({"source": ["x"], "tag": ["--all"]}, "looks like an option"),
        ({"source": [""]}, "empty"),
        ({"source": ["a\nb"]}, "cannot be seen"),
        ({"source": ["a" * 5000]}, "longer"),
        ({"source": ["x" * 900] * 3}, "too many"),
    ],
)
def test_unsafe_or_invalid_call_is_refused(arguments, message):
    with pytest.raises(RefusedCall, match=message):
        make_command_line(PROGRAM, arguments)


def test_operand_that_looks_like_an_option_follows_two_dashes():
    assert vector(COMMANDS["rm"], file=["-rf"]) == ["rm", "--", "-rf"]


def test_paths_of_git_follow_two_dashes():
    assert vector(COMMANDS["git log"], revision_range="main", path=["-x.py"]) == ["git", "log", "main", "--", "-x.py"]
    with pytest.raises(RefusedCall):
        vector(COMMANDS["git log"], revision_range="--output=x")


def test_home_is_expanded_in_paths_only():
    line = make_command_line(COMMANDS["grep"], {"patterns": "~/x", "file": ["~/notes"]}, home="/home/ann")
    assert line.vector == ("grep", "~/x", "/home/ann/notes")


def test_programs_of_the_read_only_table_are_never_refused_ones():
    assert [name for name in READ_ONLY if refusal_reason(name.split()[0])] == []
    for name in ("sudo", "bash", "python3.12", "xargs", "env", "awk", "perl5.36", "busybox"):
        assert refusal_reason(name)
        assert name not in EFFECTS


@every_case(
    ("words", "rest", "kinds", "is_read_only"),
    [
        ("ls", ["-l", "x"], ("read",), True),
        ("ls", ["--unlisted", "x"], ("unknown",), False),
        ("find", [".", "-name", "x"], ("read",), True),
        ("find", [".", "-delete"], ("delete",), False),
        ("find", [".", "-delete", "-unlisted"], ("delete", "unknown"), False),
        ("sort", ["--output=x", "y"], ("write",), False),
        ("uniq", ["x"], ("write",), False),
        ("git branch", [], ("write", "program"), False),
        ("git branch", ["--delete", "x"], ("write", "delete", "program"), False),
        ("git log", ["--oneline"], ("read", "program"), False),
        ("git frobnicate", [], ("write",), False),
        ("tail", ["--follow", "x"], ("read",), False),
        ("tar", ["--list", "--file=x"], ("read",), False),
        ("tar", ["--list", "--file=host:x"], ("write",), False),
        ("tar", ["--list", "--listed-incremental=x"], ("write",), False),
        ("tar", ["--extract"], ("write",), False),
        ("rm", ["x"], ("delete",), False),
        ("curl", ["x"], ("network",), False),
        ("curl", ["--silent", "x"], ("network",), False),
        ("curl", ["--output=x", "y"], ("write", "network"), False),
        ("curl", ["--cookie-jar=x", "y"], ("network", "unknown"), False),
        ("curl", ["--data-binary=@x", "y"], ("network", "unknown"), False),
        ("sed", ["1e id", "x"], ("write", "program"), False),
        ("ssh", ["x"], ("network", "program"), False),
        ("slogin", ["x"], ("network", "program"), False),
        ("egrep", ["-i", "x"], ("unknown",), False),
        ("gfind", [".", "-delete"], ("delete",), False),
        ("systemctl stop", ["x"], ("write",), False),
        ("pip list", ["--outdated"], ("write", "network"), False),
        ("frob", [], ("write",), False),
    ],
)
def test_effect_of_a_command_line(words, rest, kinds, is_read_only):
    options = [word.partition("=")[0] for word in rest if word.startswith("-")]
    effect = judge_effect(words.split(), [*words.split(), *rest], options)
    assert (effect.kinds, effect.is_read_only) == (kinds, is_read_only)
    assert effect.is_known == (words not in ("frob", "git frobnicate", "uniq") and "unknown" not in kinds)


def test_command_with_many_options_offers_those_of_the_request():
    options = [CommandOption((f"--option-{number}",), description=f"number {number}") for number in range(200)]
    wanted = CommandOption(("--pretty",), description="write the colours of the rainbow")
    command = SystemCommand(("frob",), options=(*options, wanted), operands=(Operand("file"),))
    names = select_options(command, "write it in the colours of a rainbow", 5)
    assert len(names) == 6
    assert {"pretty", "file"} <= set(names)
    assert set(declare_command(command, names).input_schema["properties"]) == set(names)


def test_option_with_the_name_of_an_operand_gets_another_name():
    properties = declare_command(COMMANDS["tar"]).input_schema["properties"]
    assert "f" in properties
    assert properties["file"]["type"] == "array"


@every_case(
    "name",
    """editor rvim vim.basic pager zless sensible-editor setarch linux64 prlimit choom runcon dbus-run-session systemd-inhibit
    logsave rtcwake scriptlive valgrind debugfs jrunscript cpan pdb3 prove memusage git-shell vipw wish""".split(),
)
def test_program_that_starts_others_is_refused_under_each_name(name):
    with pytest.raises(RefusedCall, match="refused"):
        make_command_line(SystemCommand((name,)), {})


def test_link_to_an_editor_is_refused_and_a_link_to_a_multiple_program_is_not():
    assert refusal_reason("write-text", "/usr/bin/vim.basic")
    assert refusal_reason("ls", "/bin/busybox") is None
    assert refusal_reason("ls", "/usr/bin/ls") is None


def test_operands_that_are_a_program_and_its_arguments_are_refused():
    operands = (Operand("resource"), Operand("command"), Operand("argument", repeats=True))
    with pytest.raises(RefusedCall, match="starts the program"):
        make_command_line(SystemCommand(("frobrun",), operands=operands), {"command": "sh"})
    line = make_command_line(SystemCommand(("docker", "exec"), operands=operands), {"command": "ls"})
    assert line.vector == ("docker", "exec", "ls")


@every_case(
    ("program", "names", "placeholder"),
    [
        ("slogin", ("-o",), "option"),
        ("podman", ("-v", "--volume"), "list"),
        ("tar", ("--checkpoint-act",), "WHAT"),
        ("tar", ("--use-compress",), "KIND"),
        ("tar", ("--checkpoint-action-x",), "WHAT"),
        ("agetty", ("--login-program",), "login_program"),
        ("ldattach", ("--intro-command",), "string"),
        ("gpg", ("--agent-program",), "file"),
        ("gpg", ("--exec-path",), "path"),
        ("gpgtar", ("--gpg",), "gpgcmd"),
        ("ld", ("-plugin",), "name"),
        ("opt", ("-load",), "file"),
    ],
)
def test_option_that_runs_a_program_is_withheld_under_each_spelling(program, names, placeholder):
    command = SystemCommand((program,), options=(CommandOption(names, "attached", placeholder),))
    assert declare_command(command).input_schema["properties"] == {}


def test_first_operand_of_tar_is_no_list_of_options():
    command = SystemCommand(
        ("tar",), options=(CommandOption(("-t", "--list")),), operands=(Operand("arg", repeats=True),)
    )
    with pytest.raises(RefusedCall, match="as options"):
        vector(command, arg=["cIf", "./evil.sh", "o.tar", "f"])
    assert vector(command, list=True, arg=["x"]) == ["tar", "--list", "x"]


def test_flag_that_a_page_declares_with_a_value_gets_no_letters():
    command = SystemCommand(("tar",), options=(CommandOption(("-c",), "optional", "MODE"),))
    with pytest.raises(RefusedCall, match="could be read as options"):
        vector(command, c="I./evil.sh")
