"""Read commands from man pages: name, summary, options, operands, and the subcommands that a page lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from .command import COMMAND_NAME, CommandOption, Operand, SystemCommand
from .option_text import first_sentence, read_option
from .roff import PageEntry, PageSection, read_sections
from .synopsis import SynopsisLine, mark_variables, read_usage, usage_lines

__all__ = ["is_alias", "read_man_page"]

_MAX_OPTIONS = 400
_MAX_SUBCOMMANDS = 80
_MAX_SHARED = 8_000  # options of all subcommands of a page
_MAX_DESCRIPTION = 600
_MAX_OPERANDS = 6
_WITHOUT_OPTIONS = frozenset(
    "AUTHOR AUTHORS BUGS COPYRIGHT EXAMPLE EXAMPLES ENVIRONMENT FILES HISTORY NOTES STANDARDS DIAGNOSTICS NAME SYNOPSIS".split()
) | {"SEE ALSO", "EXIT STATUS", "REPORTING BUGS", "RETURN VALUE", "ENVIRONMENT VARIABLES"}
_COMMAND_SECTION = re.compile(r".*\b(?:SUB)?COMMANDS?\b|DESCRIPTION|ACTIONS|OPERATIONS")
_SUBCOMMAND = re.compile(r"([a-z](?:[a-z0-9]|-(?=[a-z0-9]))*+)(?=\s|,|$)")
_BRACES = re.compile(r"\{((?:[^{}]++|\{[^{}]*+\})*+)\}")
_ALIAS = re.compile(r"\.so\s+(?:man\d\w*/)?([A-Za-z0-9._+-]+)")


def is_alias(source: str) -> str | None:
    """Return the file name of the page that a page consists of (`.so man1/grep.1`)."""
    lines = [line for line in source[:2_000].splitlines() if line.strip() and not line.startswith(('.\\"', "'\\\""))]
    found = _ALIAS.match(lines[0]) if lines and len(lines) <= 2 else None
    return None if found is None else found.group(1)


def read_man_page(source: str, words: Sequence[str], *, origin: str = "") -> list[SystemCommand]:
    """Return the command of a page and its subcommands. `words`: the command in the name of the file."""
    sections = read_sections(source, name=" ".join(words))
    summary = _summary(sections)
    if not summary:
        return []
    options = tuple(_options(sections))
    usages = [read_usage(line) for line in usage_lines(_synopsis_lines(sections), words)]
    plain = [usage for usage in usages if not usage.literals]
    description = _description(sections)
    described = dict(_subcommands(sections, words))
    for name, usage in _alternatives(_synopsis_lines(sections)):
        if name in described and not described[name][1].operands:
            described[name] = (described[name][0], usage)
    for usage in usages:
        if usage.literals:
            name = " ".join(usage.literals)
            described[name] = (described[name][0] if name in described else "", usage)
    own = SystemCommand(tuple(words), summary, description, options, _merge(plain), origin)
    listed = list(described.items())[:_MAX_SUBCOMMANDS]
    shared = replace(own, options=options[: _MAX_SHARED // max(1, len(listed))])
    return [own, *(_subcommand(shared, name.split(), text, usage) for name, (text, usage) in listed)]


def _subcommand(own: SystemCommand, literals: Sequence[str], text: str, usage: SynopsisLine) -> SystemCommand:
    detail = first_sentence(text)
    label = " ".join(literals).replace("-", " ")
    summary = detail or f"{label}: {own.summary}"
    return SystemCommand(
        (*own.words, *literals), summary, f"{own.summary}. {text[:_MAX_DESCRIPTION]}".strip(), own.options,
        usage.operands, own.source,
    )  # fmt: skip


def _summary(sections: Iterable[PageSection]) -> str:
    """Return the text after the dash of the NAME section."""
    for section in sections:
        if section.title == "NAME":
            text = " ".join(f"{entry.tag} {entry.text}".strip() for entry in section.entries)
            _, dash, summary = text.partition(" - ")
            if not dash:
                _, dash, summary = text.partition(" -- ")
            return summary.strip(" -")[:300]
    return ""


def _description(sections: Iterable[PageSection]) -> str:
    """Return the first paragraphs of the description."""
    for section in sections:
        if section.title == "DESCRIPTION":
            texts = [entry.text for entry in section.entries if not entry.tag and entry.text]
            return " ".join(texts[:2])[:_MAX_DESCRIPTION]
    return ""


def _synopsis_lines(sections: Iterable[PageSection]) -> Iterator[str]:
    for section in sections:
        if section.title == "SYNOPSIS":
            for entry in section.entries:
                yield from entry.lines


def _options(sections: Iterable[PageSection]) -> Iterator[CommandOption]:
    """Return the options of all sections but those that cannot declare any; each spelling once."""
    seen: set[str] = set()
    for section in sections:
        if section.title in _WITHOUT_OPTIONS:
            continue
        for entry in section.entries:
            option = read_option(entry.tag, entry.text) if entry.tag.startswith("-") else None
            if option is None or not seen.isdisjoint(option.names):
                continue
            seen.update(option.names)
            yield option
            if len(seen) > _MAX_OPTIONS:
                return


def _subcommands(
    sections: Sequence[PageSection], words: Sequence[str]
) -> Iterator[tuple[str, tuple[str, SynopsisLine]]]:
    """Return the subcommands that a page describes, with their operands: `list-units [PATTERN...]`.

    The description of a page may list values instead, so that its words must be part of the synopsis.
    """
    if len(words) > 2:
        return
    synopsis = frozenset(re.findall(r"[\w-]+", " ".join(_synopsis_lines(sections))))
    for section in sections:
        if not _COMMAND_SECTION.fullmatch(section.title):
            continue
        entries = [entry for entry in section.entries if _is_subcommand(entry)]
        if len(entries) < 2:
            continue
        for entry in entries:
            found = _SUBCOMMAND.match(entry.tag)
            assert found is not None
            if section.title == "DESCRIPTION" and found.group(1) not in synopsis:
                continue
            yield found.group(1), (entry.text, read_usage(entry.tag[found.end() :].split(",")[0]))


def _alternatives(lines: Iterable[str]) -> Iterator[tuple[str, SynopsisLine]]:
    """Return the alternatives of a synopsis that begin with a word: `{update | install PACKAGE...}`."""
    text = mark_variables(" ".join(lines)[:4_000], ())
    for group in _BRACES.findall(text):
        for alternative in _split_alternatives(group):
            found = _SUBCOMMAND.match(alternative.strip())
            if found is not None:
                yield found.group(1), read_usage(alternative.strip()[found.end() :])


def _split_alternatives(group: str) -> list[str]:
    """Split a text at the bars outside brackets."""
    alternatives, depth = [""], 0
    for piece in re.split(r"([\[\](){}|])", group):
        depth += (piece in ("[", "(", "{")) - (piece in ("]", ")", "}"))
        if piece == "|" and depth <= 0:
            alternatives.append("")
        else:
            alternatives[-1] += piece
    return alternatives


def _is_subcommand(entry: PageEntry) -> bool:
    tag = entry.tag
    if not tag or not entry.text or len(tag) > 200 or not COMMAND_NAME.match(tag):
        return False
    found = _SUBCOMMAND.match(tag)
    if found is None:
        return False
    rest = tag[found.end() :].strip()
    return not rest or rest[0] in "[<,{-" or rest.split()[0].strip(".,]").isupper()


def _merge(usages: Sequence[SynopsisLine]) -> tuple[Operand, ...]:
    """Return the operands of all usages in an order that fits each of them. One is required if no usage lacks it."""
    merged: list[str] = []
    for usage in usages:
        names = [operand.name for operand in usage.operands]
        for number, name in enumerate(names):
            if name not in merged:
                later = [merged.index(other) for other in names[number + 1 :] if other in merged]
                merged.insert(min(later, default=len(merged)), name)
    return tuple(_merge_operand(name, usages) for name in merged[:_MAX_OPERANDS])


def _merge_operand(name: str, usages: Sequence[SynopsisLine]) -> Operand:
    same = [operand for usage in usages for operand in usage.operands if operand.name == name]
    return replace(
        same[0],
        is_required=len(same) == len(usages) and all(one.is_required for one in same),
        repeats=any(one.repeats for one in same),
        after_dashes=any(one.after_dashes for one in same),
    )
