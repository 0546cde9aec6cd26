"""Every `toolwire` command in the pages and in the help texts is accepted by the parser of the command line."""

import argparse
import re
import shlex

import pytest

from doc_blocks import FENCE
from places import ROOT
from tables import every_case
from toolwire.cli.main import _make_parser

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/tutorials/*.md"),
        *ROOT.glob("docs/operations/*.md"),
        *ROOT.glob("docs/migrate/*.md"),
    ]
)
ASSIGNMENTS = re.compile(r"^(?:[A-Z_]+=\S* )+")


def commands_of_page(text):
    blocks = FENCE.findall(text)
    lines = [line for language, _, block in blocks if language == "sh" for line in block.splitlines()]
    lines += [
        line
        for language, _, block in blocks
        if language == "console"
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    ]
    lines += re.findall(r"^    (toolwire .*)$", FENCE.sub("", text), re.MULTILINE)
    found = (ASSIGNMENTS.sub("", line.strip()) for line in lines)
    return [line for line in found if line.startswith("toolwire ")]


def commands_of_help(parser):
    """Return the examples of a parser and of its commands."""
    lines = re.findall(r"^ *(toolwire (?!COMMAND).*)$", parser.epilog or "", re.MULTILINE)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                lines += commands_of_help(command)
    return lines


def arguments_of(line):
    """Return the arguments of an example, without the explanation after two spaces or in a comment."""
    shown = re.split(r"\s{2,}(?![-\"'])|\s+#\s", line)[0].removesuffix(" &")
    found = []
    for token in shlex.split(shown)[1:]:
        if token in ("|", ">", "&&", "2>"):
            break
        found.append(token)
    return found


def accepted(line):
    arguments = arguments_of(line)
    try:
        _make_parser(arguments).parse_args(arguments)
    except SystemExit as stop:
        return not stop.code
    return True


@every_case("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_the_page_are_accepted(page):
    assert [line for line in commands_of_page(page.read_text(encoding="utf-8")) if not accepted(line)] == []


def commands_of_parser(parser, prefix=""):
    """Yield the commands that can be run: those without subcommands, and those that work without one."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if prefix and (not groups or parser.get_default("run") is not None):
        yield prefix
    for group in groups:
        for name, command in group.choices.items():
            yield from commands_of_parser(command, f"{prefix} {name}".strip())


@pytest.mark.finding("LE9")
def test_page_of_commands_lists_every_command():
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    table = page.partition("|---|---|\n")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(commands_of_parser(_make_parser([])))


def test_examples_of_the_help_texts_are_accepted():
    lines = commands_of_help(_make_parser([]))
    assert len(lines) > 50
    assert [line for line in dict.fromkeys(lines) if not accepted(line)] == []


def test_unknown_option_is_refused():
    assert not accepted("toolwire run tools.py 'a prompt' --no-such-option")
