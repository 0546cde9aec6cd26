"""Read commands from their manuals: man pages, completion files of bash and zsh, and the text of `--help`.

Completion files are programs: they are read as text, never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from .command import COMMAND_NAME, CommandOption, Operand, SystemCommand
from .manual_text import (
    PageEntry,
    PageSection,
    SynopsisLine,
    first_sentence,
    read_option,
    read_sections,
    read_usage,
    usage_lines,
)

# Read commands from man pages: name, summary, options, operands, and the subcommands that a page lists.


_MAX_OPTIONS = 400  # bounds the work for one page; a page with more is most likely misread
_MAX_SUBCOMMANDS = 80  # of one page; each becomes a candidate of the index
_MAX_SHARED = 8_000  # options of all subcommands of a page
_MAX_DESCRIPTION = 600  # characters; the encoder reads 128 tokens, about 500 characters
_MAX_OPERANDS = 6  # of one command; more is a misread synopsis
_WITHOUT_OPTIONS = frozenset(
    "AUTHOR AUTHORS BUGS COPYRIGHT EXAMPLE EXAMPLES ENVIRONMENT FILES HISTORY NOTES STANDARDS DIAGNOSTICS NAME SYNOPSIS".split()
) | {"SEE ALSO", "EXIT STATUS", "REPORTING BUGS", "RETURN VALUE", "ENVIRONMENT VARIABLES"}
_COMMAND_SECTION = re.compile(r".*\b(?:SUB)?COMMANDS?\b|DESCRIPTION|ACTIONS|OPERATIONS")
_SUBCOMMAND = re.compile(r"([a-z](?:[a-z0-9]|-(?=[a-z0-9]))*+)(?=\s|,|$)")
_BRACES = re.compile(r"\{((?:[^{}]++|\{[^{}]*+\})*+)\}")


def read_man_page(text: str, words: Sequence[str], *, origin: str = "") -> list[SystemCommand]:
    """Return the command of a rendered page and its subcommands, which share options; none without a summary."""
    sections = read_sections(text)
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
    """Return the text after the dash of the NAME section. Return "" if there is none."""
    for section in sections:
        if section.title == "NAME":
            text = " ".join(f"{entry.tag} {entry.text}".strip() for entry in section.entries)
            _, dash, summary = text.partition(" - ")
            if not dash:
                _, dash, summary = text.partition(" -- ")
            return summary.strip(" -")[:300]
    return ""


def _description(sections: Iterable[PageSection]) -> str:
    """Return the first paragraphs of the description. Return "" if there are none."""
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
    """Yield the options of all sections but those that cannot declare any; each spelling once, up to `_MAX_OPTIONS`."""
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
    """Yield the subcommands that a page describes, with their operands: `list-units [PATTERN...]`.

    The description of a page may list values instead, so that its names must be part of the synopsis.
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
    """Yield the alternatives of a synopsis that begin with a word: `{update | install PACKAGE...}`."""
    text = " ".join(lines)[:4_000]
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
    """Return whether a page's entry describes a subcommand: a name, then nothing or its arguments."""
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


_MAX_COMPLETED_OPTIONS = 300  # of a completion, which may list the options of all subcommands together
_MAX_NAMES = 8  # programs of one completion file; some are written for dozens of aliases
_MAX_COMPLETED_OPERANDS = 3  # of a completion, whose operands have no names; more is guesswork
_MAX_BASH = 20_000  # characters: a larger file completes several subcommands, with options of their own
_STRING = re.compile(r"'([^'\n]{0,2000}(?:\n[^'\n]{0,500}){0,30})'|\"([^\"\n]{0,2000}(?:\n[^\"\n]{0,500}){0,30})\"")
_WORD_LIST = re.compile(r"compgen\s{1,8}-W\s{0,8}$|(?:opts|options|flags)\w{0,40}\+?=\(?\s{0,8}$", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}[A-Za-z0-9](?:[A-Za-z0-9_]|-(?=[A-Za-z0-9]))*=?")
_COMPLETE = re.compile(r"^[ \t]*+(?:complete|compdef)\b([^\n#&|;]{0,300})", re.MULTILINE)
_COMPDEF = re.compile(r"#compdef\s+([^\n]{1,300})")
_COMPLETION_BRACES = re.compile(r"\{(-[^{}\s]{1,200})\}")
_SPEC = re.compile(
    r"""(?P<name>\*?-{1,2}[A-Za-z0-9][\w.-]*(?:[=+]-?)?)?
        (?:\[(?P<about>(?:[^\[\]\\]|\\.){0,300})\])?
        (?P<rest>:.{0,400})?""",
    re.VERBOSE | re.DOTALL,
)
_CHOICES = re.compile(r":\(([\w. +-]{1,400})\)")


def read_bash_completion(source: str, name: str) -> list[SystemCommand]:
    """Return the commands of a file, with the options in its lists; none without options."""
    if len(source) > _MAX_BASH:
        return []
    options: dict[str, CommandOption] = {}
    for found in _STRING.finditer(source):
        before = source[max(0, found.start() - 60) : found.start()]
        if _WORD_LIST.search(before) is None:
            continue
        for word in (found[1] or found[2] or "").split():
            if _OPTION.fullmatch(word) and len(options) < _MAX_COMPLETED_OPTIONS:
                spelled = word.rstrip("=")
                options.setdefault(spelled, CommandOption((spelled,), "attached" if word.endswith("=") else "flag"))
    names = [name, *_completed_names(source)]
    return [_make_command(one, list(options.values()), ()) for one in dict.fromkeys(names) if options][:_MAX_NAMES]


def _completed_names(source: str) -> Iterator[str]:
    """Yield the commands that the file completes: `complete -F _ping ping ping6`."""
    for found in _COMPLETE.finditer(source):
        words = found[1].split()
        skips = False
        for word in words:
            if skips or word.startswith("-"):
                skips = word in ("-F", "-o", "-W", "-C", "-A", "-G", "-X", "-P", "-S")
            elif COMMAND_NAME.fullmatch(word):
                yield word


def read_zsh_completion(source: str, name: str) -> list[SystemCommand]:
    """Return the commands of a `#compdef` file, with options and operands of its `_arguments`; none without options."""
    heading = _COMPDEF.match(source)
    named = [word for word in (heading[1].split() if heading else [name]) if COMMAND_NAME.fullmatch(word)]
    options: dict[str, CommandOption] = {}
    operands: dict[str, Operand] = {}
    for spec in _specifications(source):
        found = _SPEC.fullmatch(spec[1])
        if not spec[0] and spec[1][0] != "-" and spec[1][:2] != "*-":
            operand = _read_operand(spec[1])
            if operand is not None and len(operands) < _MAX_COMPLETED_OPERANDS:
                operands.setdefault(operand.name, operand)
        elif found is not None and len(options) < _MAX_COMPLETED_OPTIONS:
            option = _read_spec(spec[0], found)
            if option is not None:
                options.setdefault(option.name, option)
    if not options:
        return []
    return [_make_command(one, list(options.values()), tuple(operands.values())) for one in named[:_MAX_NAMES]]


def _specifications(source: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the quoted specifications with the spellings before them: `{-a,--all}'[show all]'`."""
    for found in _STRING.finditer(source):
        text = found[1] if found[1] is not None else found[2]
        if text.startswith("(") and text.endswith(")"):
            continue  # a list of options that exclude each other
        text = re.sub(r"^\([^()]*\)", "", text)
        before = source[max(0, found.start() - 220) : found.start()]
        braces = _COMPLETION_BRACES.search(before[before.rfind("{") :]) if before.endswith("}") else None
        spellings = tuple(part for part in braces[1].split(",") if part) if braces else ()
        if spellings or text.startswith(("-", "*-", "*:", "1:", ":")):
            yield spellings, text


def _read_spec(spellings: tuple[str, ...], found: re.Match[str]) -> CommandOption | None:
    """Return the option of a zsh specification, or None for another form.

    A trailing = means that the value is attached.
    """
    given = spellings or ((found["name"] or "").lstrip("*"),)
    names = tuple(name.rstrip("=+-") for name in given)
    if not all(_OPTION.fullmatch(name) for name in names):
        return None
    rest = found["rest"] or ""
    listed = _CHOICES.search(rest)
    choices = tuple(listed[1].split())[:24] if listed else ()
    has_equals = any(name.endswith(("=", "=-")) for name in given)
    label = rest[1:].partition(":")[0].strip()
    return CommandOption(
        tuple(dict.fromkeys(names))[:6],
        ("attached" if has_equals else "separate") if rest else "flag",
        label[:40] if rest else "",
        first_sentence((found["about"] or "").replace("\\\\", "")),
        choices,
    )


def _read_operand(spec: str) -> Operand | None:
    """Read `*:file:_files` and `1:name:…`."""
    place, _, rest = spec.partition(":")
    label = re.sub(r"\W+", "_", rest.lstrip(":").partition(":")[0]).strip("_").lower()
    return Operand(label[:40], repeats=place.startswith("*")) if label and place in ("*", "1", "") else None


def _make_command(name: str, options: list[CommandOption], operands: tuple[Operand, ...]) -> SystemCommand:
    given = operands or (Operand("arguments", repeats=True),)
    return SystemCommand((name,), f"{name} command", "", tuple(options), given, "completion")


_MAX_LINES = 3_000  # of a help text; the output itself is limited by bytes in `cli/do/command_help.py`
_HELP_OPTION = re.compile(r"\s{1,12}(-{1,2}\S(?:\S|\s(?!\s))*+)(?:\s{2,}+(\S.*))?+")
_ENTRY = re.compile(r"\s{1,8}([a-z][a-z0-9-]*)\*?:?\s{2,}(\S.*)")
_COMMANDS = re.compile(r"(?: ++|(?!(?:sub)?commands?\b)\w++)*+(?:sub)?commands?\b[\w ]*+:?", re.IGNORECASE)
_USAGE = re.compile(r"usage:\s*", re.IGNORECASE)


def read_help(text: str, words: Sequence[str], *, origin: str = "--help") -> list[SystemCommand]:
    """Return the command and the subcommands that the text lists. The text is untrusted."""
    lines = [line.rstrip()[:400] for line in text.expandtabs(8).splitlines()[:_MAX_LINES]]
    summary = _help_summary(lines)
    usages = [read_usage(line) for line in usage_lines([_USAGE.sub("", line.strip()) for line in _usage(lines)], words)]
    operands = usages[0].operands if usages else ()
    own = SystemCommand(
        tuple(words), summary or f"{' '.join(words)} command", "", tuple(_help_options(lines)), operands, origin
    )
    nested = [
        SystemCommand((*words, name), first_sentence(about), own.summary, (), (), origin)
        for name, about in _help_subcommands(lines)
        if COMMAND_NAME.fullmatch(name)
    ]
    return [own, *nested]


def _usage(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the usage, up to an empty line."""
    started = False
    for line in lines:
        started = started or _USAGE.match(line.strip()) is not None
        if started and (not line.strip() or _HELP_OPTION.fullmatch(line)):
            return
        if started:
            yield line


def _help_summary(lines: Sequence[str]) -> str:
    """Return the first line of prose: not a usage, an option or a heading.

    Return "" if the first 60 lines have none.
    """
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


def _help_options(lines: Sequence[str]) -> Iterator[CommandOption]:
    """Yield the options in a --help text, each once. A description may be on the next line."""
    seen: set[str] = set()
    for number, line in enumerate(lines):
        found = _HELP_OPTION.fullmatch(line)
        if found is None:
            continue
        about = found[2] or (lines[number + 1].strip() if number + 1 < len(lines) else "")
        option = read_option(found[1], "" if about.startswith("-") else about)
        if option is not None and seen.isdisjoint(option.names):
            seen.update(option.names)
            yield option


def _help_subcommands(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the entries of the lists whose heading names commands."""
    in_list = False
    for line in lines:
        if line and not line[0].isspace():
            in_list = _COMMANDS.fullmatch(line.strip()) is not None
        found = _ENTRY.fullmatch(line) if in_list else None
        if found is not None:
            yield found[1], found[2]
