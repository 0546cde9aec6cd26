"""Read a command from the text that it prints for `--help`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .command import COMMAND_NAME, CommandOption, SystemCommand
from .option_text import first_sentence, read_option
from .synopsis import read_usage, usage_lines

__all__ = ["read_help"]

_MAX_LINES = 3_000
_OPTION = re.compile(r"\s{1,12}(-{1,2}\S(?:\S|\s(?!\s))*+)(?:\s{2,}+(\S.*))?+")
_ENTRY = re.compile(r"\s{1,8}([a-z][a-z0-9-]*)\*?:?\s{2,}(\S.*)")
_COMMANDS = re.compile(r"(?: ++|(?!(?:sub)?commands?\b)\w++)*+(?:sub)?commands?\b[\w ]*+:?", re.IGNORECASE)
_USAGE = re.compile(r"usage:\s*", re.IGNORECASE)


def read_help(text: str, words: Sequence[str], *, origin: str = "--help") -> list[SystemCommand]:
    """Return the command and the subcommands that the text lists. The text is untrusted."""
    lines = [line.rstrip()[:400] for line in text.expandtabs(8).splitlines()[:_MAX_LINES]]
    summary = _summary(lines)
    usages = [read_usage(line) for line in usage_lines([_USAGE.sub("", line.strip()) for line in _usage(lines)], words)]
    operands = usages[0].operands if usages else ()
    own = SystemCommand(
        tuple(words), summary or f"{' '.join(words)} command", "", tuple(_options(lines)), operands, origin
    )
    nested = [
        SystemCommand((*words, name), first_sentence(about), own.summary, (), (), origin)
        for name, about in _subcommands(lines)
        if COMMAND_NAME.fullmatch(name)
    ]
    return [own, *nested]


def _usage(lines: Sequence[str]) -> Iterator[str]:
    """Return the lines of the usage, up to an empty line."""
    started = False
    for line in lines:
        started = started or _USAGE.match(line.strip()) is not None
        if started and (not line.strip() or _OPTION.fullmatch(line)):
            return
        if started:
            yield line


def _summary(lines: Sequence[str]) -> str:
    """Return the first line of prose: not a usage, an option or a heading."""
    in_usage = False
    for line in lines[:60]:
        text = line.strip()
        in_usage = bool(text) and (in_usage or _USAGE.match(text) is not None)
        if (
            text
            and not in_usage
            and not line[0].isspace()
            and not text.startswith(("-", "["))
            and not text.endswith(":")
            and " " in text
        ):
            return first_sentence(text)
    return ""


def _options(lines: Sequence[str]) -> Iterator[CommandOption]:
    seen: set[str] = set()
    for number, line in enumerate(lines):
        found = _OPTION.fullmatch(line)
        if found is None:
            continue
        about = found[2] or (lines[number + 1].strip() if number + 1 < len(lines) else "")
        option = read_option(found[1], "" if about.startswith("-") else about)
        if option is not None and seen.isdisjoint(option.names):
            seen.update(option.names)
            yield option


def _subcommands(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return the entries of the lists whose heading names commands."""
    in_list = False
    for line in lines:
        if line and not line[0].isspace():
            in_list = _COMMANDS.fullmatch(line.strip()) is not None
        found = _ENTRY.fullmatch(line) if in_list else None
        if found is not None:
            yield found[1], found[2]
