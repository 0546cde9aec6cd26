"""Commands from man pages, completion files and help texts."""

import gzip
import os
from pathlib import Path

import pytest

from do_fixtures import VECTORS, StartedPrograms, load_fixture_commands, render
from hash_encoder import HashEncoder
from tables import every_case
from toolwire.retrieve.commands.catalogue import Catalogue, Roots, find_roots
from toolwire.retrieve.commands.command import find_program, find_system_program
from toolwire.retrieve.commands.command_index import CommandIndex, search_text
from toolwire.retrieve.commands.machine import read_page
from toolwire.retrieve.commands.manual_text import read_option, read_usage
from toolwire.retrieve.commands.manuals import read_bash_completion, read_help, read_man_page, read_zsh_completion

started = StartedPrograms()
COMMANDS = {command.name: command for command in load_fixture_commands()}


@every_case(
    ("tag", "names", "style", "placeholder"),
    [
        ("-a, --all", ("-a", "--all"), "flag", ""),
        ("--color[=WHEN]", ("--color",), "optional", "WHEN"),
        ("-n, --lines=[-]NUM", ("-n", "--lines"), "attached", "NUM"),
        ("-s <signal>", ("-s",), "separate", "signal"),
        ("-name pattern", ("-name",), "separate", "pattern"),
        ("-a, --all[=false]", ("-a", "--all"), "flag", ""),
        ("--no-decorate, --decorate[=short|full]", ("--decorate",), "optional", "short"),
        ("-f | --force", ("-f", "--force"), "flag", ""),
        ("-U<n>, --unified=<n>", ("-U", "--unified"), "attached", "n"),
        ("-x, --extract, --get", ("-x", "--extract", "--get"), "flag", ""),
    ],
)
def test_option_is_read_from_its_tag(tag, names, style, placeholder):
    option = read_option(tag, "")
    assert (option.names, option.style, option.placeholder) == (names, style, placeholder)


def test_values_of_an_option_are_typed():
    assert read_option("--when=always|never|auto", "").choices == ("always", "never", "auto")
    assert read_option("--max-depth=N", "").is_integer
    assert not read_option("-size n", "").is_integer
    assert read_option("-e, --regexp=PATTERN", "May be given several times.").repeats
    assert not read_option("-n, --max-count=<number>", "show at most this many").repeats


@pytest.mark.parametrize(
    ("usage", "literals", "operands"),
    [
        ("[OPTION]... SOURCE DEST", (), [("source", True, False), ("dest", True, False)]),
        ("[OPTION]... [FILE]...", (), [("file", False, True)]),
        ("[-H] [-L] [-D debugopts] [starting-point...] [expression]", (), [("starting_point", False, True), ("expression", False, False)]),
        ("[options] <pid> [...]", (), [("pid", True, True)]),
        ("add [-t <branch>] [--[no-]tags] [--mirror=(fetch|push)] <name> <URL>", ("add",), [("name", True, False), ("url", True, False)]),
        ("[--color[=<when>]] [<pattern>...]", (), [("pattern", False, True)]),
        ("[-c count] [hop...] {destination}", (), [("hop", False, True), ("destination", True, False)]),
        ("{start|stop} NAME", (), [("name", True, False)]),
    ],
)  # fmt: skip
def test_operands_are_read_from_the_usage(usage, literals, operands):
    found = read_usage(usage)
    assert found.literals == literals
    assert [(one.name, one.is_required, one.repeats) for one in found.operands] == operands


@pytest.mark.parametrize(
    ("name", "summary", "option", "operands"),
    [
        ("ls", "show the names of files in directories", "--human-readable", ["file"]),
        ("find", "look for files in a tree of directories", "-name", ["starting_point", "expression"]),
        ("git log", "show the history", "--max-count", ["revision_range", "path"]),
        ("docker logs", "Fetch the output of a container", "--tail", ["container"]),
        ("ssh", "log in to another machine", "-p", ["destination", "command", "argument"]),
        ("systemctl restart", "Stop units and start them again.", "--type", ["unit"]),
    ],
)
def test_page_of_each_kind_of_macros_is_read(name, summary, option, operands):
    command = COMMANDS[name]
    assert command.summary == summary
    assert option in {one.name for one in command.options}
    assert [one.name for one in command.operands] == operands


def test_options_of_all_fixture_pages_have_descriptions():
    assert len(COMMANDS) > 40
    assert [(c.name, o.name) for c in COMMANDS.values() for o in c.options if not o.description] == []


def test_definitions_and_examples_are_not_options():
    page = """.TH tool 1
.de XX
.TP
\\-\\-defined
..
.SH NAME
tool \\- do things
.if t \\{\\
.TP
\\-\\-conditional
.\\}
.SH OPTIONS
.TP
\\-\\-really
text
.SH EXAMPLES
.TP
\\-\\-looks\\-real
text
"""
    (command,) = read_man_page(render(page), ["tool"])
    assert [option.name for option in command.options] == ["--really"]


@pytest.mark.parametrize(
    "text", ["", "\x00" * 100, "NAME", "       -a\n" * 1000, "\x08" * 5000, " " * 30_000, "[" * 3000, "\x1b]8;" * 500]
)
def test_broken_page_is_no_command(text):
    assert read_man_page(text, ["tool"]) == []
    assert len(read_man_page(f"NAME\n     tool - x\nSYNOPSIS\n     tool\n{text}", ["tool"])) == 1


PLAIN = """TOOL(1)          TOOL(1)

NAME
     tool - do things

SYNOPSIS
     tool [-x] file ...
     other [-y]

OPTIONS
     -a, --all
             Take all.

             -b is not declared here.

     -c      Count the words
             of a file.
     -d
     --depth n
             Go down.
     --six6 Use the one column.

     As in this example:

           -e     no option
"""


def test_tags_are_found_by_the_indentation_of_their_text():
    (command,) = read_man_page(PLAIN, ["tool"])
    assert [(one.names, one.description) for one in command.options[:4]] == [
        (("-a", "--all"), "Take all."),
        (("-c",), "Count the words of a file."),
        (("-d", "--depth"), "Go down."),
        (("--six6",), "Use the one column."),
    ]
    assert [(one.name, one.repeats) for one in command.operands] == [("file", True)]


def test_text_of_the_program_man_has_no_formatting_and_plain_dashes():
    page = ".TH tool 1\n.SH NAME\ntool \\- \\fBbold\\fR \\fIitalic\\fR \\(lqquoted\\(rq\n.SH OPTIONS\n.TP\n-a\u2010b\ntext\n"
    text = render(page)
    assert 'tool - bold italic "quoted"' in text
    assert "-a-b" in text


def test_endless_page_is_cut_off_or_ended(monkeypatch):
    page = ".TH tool 1\n.SH NAME\ntool \\- x\n{}\n"
    monkeypatch.setattr("toolwire.retrieve.commands.machine._MAX_RENDERED", 10_000)
    assert 1_000 < len(render(page.format(".nf\n.while 1 text of the page"))) <= 10_000
    monkeypatch.setattr("toolwire.retrieve.commands.machine._PAGE_SECONDS", 0.5)
    with pytest.raises(TimeoutError):
        render(page.format(".while 1 .nr x 1"))


def test_page_that_was_not_rendered_is_read_at_the_next_start(tmp_path, monkeypatch):
    (tmp_path / "man" / "man1").mkdir(parents=True)
    (tmp_path / "man" / "man1" / "ls.1").write_bytes((VECTORS / "man" / "man1" / "ls.1").read_bytes())

    def load():
        roots = Roots((str(tmp_path / "man"),))
        return Catalogue(roots, cache=tmp_path / "cache", find_program=lambda name: name).load()

    def fail(*_):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr("toolwire.retrieve.commands.catalogue.render_page", fail)
        assert [one.is_summary for one in load()] == [True]
    assert [one.is_summary for one in load()] == [False]


def test_page_that_is_found_is_read_once(tmp_path):
    (tmp_path / "man" / "man1").mkdir(parents=True)
    page = VECTORS / "man" / "man1" / "factor.1"
    (tmp_path / "man" / "man1" / "factor.1").write_bytes(page.read_bytes())

    def load():
        return Catalogue(Roots((str(tmp_path / "man"),)), cache=tmp_path / "cache", find_program=lambda name: name)

    catalogue = load()
    (found,) = catalogue.load()
    assert (found.is_summary, found.options, bool(found.summary)) == (True, (), True)
    ((command,),) = catalogue.read([found])
    assert (command.is_summary, command.summary) == (False, found.summary)
    catalogue = load()
    assert catalogue.load() == [found]
    with started.recorded() as programs:
        assert catalogue.read([found]) == [[command]]
    assert programs == []
    ((searched, _),) = CommandIndex([found], reader=catalogue.read).search(found.summary, 3)
    assert searched == command


def test_manuals_are_not_read_without_their_program(monkeypatch):
    monkeypatch.setattr("toolwire.retrieve.commands.catalogue.find_system_program", lambda name: None)
    catalogue = Catalogue(Roots((str(VECTORS / "man"),)))
    assert catalogue.load() == []
    assert "man was not found" in catalogue.problem


def test_manuals_are_found_by_name_without_lexgrog(monkeypatch):
    monkeypatch.setattr(
        "toolwire.retrieve.commands.catalogue.find_system_program",
        lambda name: None if name == "lexgrog" else find_system_program(name),
    )
    catalogue = Catalogue(Roots((str(VECTORS / "man"),)), find_program=lambda name: name if name == "factor" else None)
    (found,) = catalogue.load()
    assert (found.name, found.summary) == ("factor", "factor command")
    assert "lexgrog" in catalogue.problem
    ((command,),) = catalogue.read([found])
    assert command.summary != found.summary


def test_zsh_completion_is_a_command():
    source = """#compdef frob gfrob -value-
_arguments -s \\
  '(-c --count)'{-c,--count}'[write the number]' \\
  '--when=[choose a time]:when:(now later)' \\
  '-n+[repeat]:number:' \\
  '*:file:_files'
"""
    frob, gfrob = read_zsh_completion(source, "frob")
    assert (frob.name, gfrob.name) == ("frob", "gfrob")
    assert [(o.names, o.style, o.choices) for o in frob.options] == [
        (("-c", "--count"), "flag", ()),
        (("--when",), "attached", ("now", "later")),
        (("-n",), "separate", ()),
    ]
    assert frob.options[0].description == "write the number"
    assert [(one.name, one.repeats) for one in frob.operands] == [("file", True)]


def test_bash_completion_is_a_command():
    source = "_frob() {\n COMPREPLY=($(compgen -W '--all --name= -x word $(reboot)' -- \"$cur\"))\n}\ncomplete -F _frob frob fr\n"
    frob, short = read_bash_completion(source, "frob")
    assert (frob.name, short.name) == ("frob", "fr")
    assert [(o.name, o.style) for o in frob.options] == [("--all", "flag"), ("--name", "attached"), ("-x", "flag")]


def test_help_text_is_a_command():
    text = """Manage things of a cluster.

Usage: frob [OPTIONS] COMMAND

Options:
  -n, --namespace string   the namespace
  -v, --verbose            write more

Commands:
  get       List things
  delete    Remove things
"""
    own, get, delete = read_help(text, ["frob"])
    assert (own.summary, get.words, get.summary) == ("Manage things of a cluster.", ("frob", "get"), "List things")
    assert [(o.name, o.style) for o in own.options] == [("--namespace", "separate"), ("--verbose", "flag")]
    assert delete.name == "frob delete"


def test_cache_reads_only_changed_pages(tmp_path):
    folder = tmp_path / "man" / "man1"
    folder.mkdir(parents=True)
    page = (VECTORS / "man" / "man1" / "ls.1").read_text()
    (folder / "ls.1").write_text(page)
    with gzip.open(folder / "cp.1.gz", "wt") as file:
        file.write((VECTORS / "man" / "man1" / "cp.1").read_text())
    read = []
    catalogue = Catalogue(Roots((str(tmp_path / "man"),)), cache=tmp_path / "cache", find_program=lambda name: name)
    first = catalogue.load(lambda done, total: read.append((done, total)))
    assert read == [(0, 2), (1, 2), (2, 2)]  # both are common
    read.clear()
    assert catalogue.load(lambda done, total: read.append((done, total))) == first
    assert read == []
    (folder / "ls.1").write_text(page.replace("show the names", "write the names"))
    os.utime(folder / "ls.1", ns=(1, 1))
    changed = catalogue.load(lambda done, total: read.append((done, total)))
    assert read == [(0, 1), (1, 1)]
    assert next(one for one in changed if one.name == "ls").summary.startswith("write the names")
    for file in (tmp_path / "cache").iterdir():
        assert file.stat().st_mode & 0o077 == 0
        file.write_bytes(b"damaged")
    assert len(catalogue.load()) == 2


def test_index_of_the_same_commands_is_loaded(tmp_path):
    commands = list(COMMANDS.values())
    CommandIndex(commands, cache=tmp_path)
    (file,) = tmp_path.glob("*.index")
    before = file.stat().st_mtime_ns
    index = CommandIndex(commands, cache=tmp_path)
    assert file.stat().st_mtime_ns == before
    assert "docker ps" in [command.name for command, _ in index.search("list all my running containers", 3)]
    CommandIndex(commands[:5], cache=tmp_path)
    assert len(list(tmp_path.glob("*.index"))) == 1


def test_encoder_is_used_for_common_commands_only(tmp_path):
    encoder = HashEncoder()
    index = CommandIndex(list(COMMANDS.values()), encoder=encoder, cache=tmp_path)
    assert 20 < len(encoder.texts) < len(COMMANDS)
    assert len(list(tmp_path.glob("*.index"))) == 2
    assert "docker ps" in [command.name for command, _ in index.search("list all my running containers", 3)]


def test_relative_folders_of_the_path_are_ignored(tmp_path, monkeypatch):
    program = tmp_path / "frob"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert find_program("frob", {"PATH": f".{os.pathsep}{os.pathsep}"}) is None
    assert find_program("frob", {"PATH": str(tmp_path)}) == str(program)
    assert find_program("../frob", {"PATH": str(tmp_path)}) is None


def test_values_of_a_request_are_not_searched():
    assert search_text('show "rm -rf" in /etc/passwd and script.sh, 20 times, http://x.y/z').split() == [
        *("show", "in", "and", "file", ",", "times,", "url"),
    ]  # fmt: skip


def test_real_pages_of_this_machine_are_read():
    """The pages of common programs have names, options and operands, where they are installed."""
    roots = find_roots()
    pages = [Path(root, "man1", f"{name}.1.gz") for root in roots.man for name in ("ls", "cp", "grep", "tar", "find")]
    if not all(any(page.name == f"{name}.1.gz" and page.is_file() for page in pages) for name in ("ls", "cp", "grep")):
        pytest.skip("no man pages on this machine")
    found = {
        page.name: read_man_page(render(read_page(page)), [page.name.split(".")[0]])[0]
        for page in pages
        if page.is_file()
    }
    assert {"-a", "-l", "-R"} <= {name for option in found["ls.1.gz"].options for name in option.names}
    assert found["cp.1.gz"].operands[0].name == "source"
    assert [one.name for one in found["grep.1.gz"].operands] == ["patterns", "file"]
