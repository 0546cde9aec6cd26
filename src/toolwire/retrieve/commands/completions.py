"""Read options from completion files of bash and zsh. The files are programs: they are read as text, never run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .command import COMMAND_NAME, CommandOption, Operand, SystemCommand
from .option_text import first_sentence

__all__ = ["read_bash_completion", "read_zsh_completion"]

_MAX_OPTIONS = 300
_MAX_NAMES = 8
_MAX_OPERANDS = 3
_MAX_BASH = 20_000  # characters: a larger file completes several subcommands, with options of their own
_STRING = re.compile(r"'([^'\n]{0,2000}(?:\n[^'\n]{0,500}){0,30})'|\"([^\"\n]{0,2000}(?:\n[^\"\n]{0,500}){0,30})\"")
_WORD_LIST = re.compile(r"compgen\s{1,8}-W\s{0,8}$|(?:opts|options|flags)\w{0,40}\+?=\(?\s{0,8}$", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}[A-Za-z0-9](?:[A-Za-z0-9_]|-(?=[A-Za-z0-9]))*=?")
_COMPLETE = re.compile(r"^[ \t]*+(?:complete|compdef)\b([^\n#&|;]{0,300})", re.MULTILINE)
_COMPDEF = re.compile(r"#compdef\s+([^\n]{1,300})")
_BRACES = re.compile(r"\{(-[^{}\s]{1,200})\}")
_SPEC = re.compile(
    r"""(?P<name>\*?-{1,2}[A-Za-z0-9][\w.-]*(?:[=+]-?)?)?
        (?:\[(?P<about>(?:[^\[\]\\]|\\.){0,300})\])?
        (?P<rest>:.{0,400})?""",
    re.VERBOSE | re.DOTALL,
)
_CHOICES = re.compile(r":\(([\w. +-]{1,400})\)")


def read_bash_completion(source: str, name: str) -> list[SystemCommand]:
    """Return the command of a file, with the options in its word lists. Completions have no descriptions."""
    if len(source) > _MAX_BASH:
        return []
    options: dict[str, CommandOption] = {}
    for found in _STRING.finditer(source):
        before = source[max(0, found.start() - 60) : found.start()]
        if _WORD_LIST.search(before) is None:
            continue
        for word in (found[1] or found[2] or "").split():
            if _OPTION.fullmatch(word) and len(options) < _MAX_OPTIONS:
                spelled = word.rstrip("=")
                options.setdefault(spelled, CommandOption((spelled,), "attached" if word.endswith("=") else "flag"))
    names = [name, *_completed_names(source)]
    return [_make_command(one, list(options.values()), ()) for one in dict.fromkeys(names) if options][:_MAX_NAMES]


def _completed_names(source: str) -> Iterator[str]:
    """Return the commands that the file completes: `complete -F _ping ping ping6`."""
    for found in _COMPLETE.finditer(source):
        words = found[1].split()
        skips = False
        for word in words:
            if skips or word.startswith("-"):
                skips = word in ("-F", "-o", "-W", "-C", "-A", "-G", "-X", "-P", "-S")
            elif COMMAND_NAME.fullmatch(word):
                yield word


def read_zsh_completion(source: str, name: str) -> list[SystemCommand]:
    """Return the commands of a `#compdef` file, with the options and operands of its `_arguments` specifications."""
    heading = _COMPDEF.match(source)
    named = [word for word in (heading[1].split() if heading else [name]) if COMMAND_NAME.fullmatch(word)]
    options: dict[str, CommandOption] = {}
    operands: dict[str, Operand] = {}
    for spec in _specifications(source):
        found = _SPEC.fullmatch(spec[1])
        if not spec[0] and spec[1][0] != "-" and spec[1][:2] != "*-":
            operand = _read_operand(spec[1])
            if operand is not None and len(operands) < _MAX_OPERANDS:
                operands.setdefault(operand.name, operand)
        elif found is not None and len(options) < _MAX_OPTIONS:
            option = _read_spec(spec[0], found)
            if option is not None:
                options.setdefault(option.name, option)
    if not options:
        return []
    return [_make_command(one, list(options.values()), tuple(operands.values())) for one in named[:_MAX_NAMES]]


def _specifications(source: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the quoted specifications with the spellings before them: `{-a,--all}'[show all]'`."""
    for found in _STRING.finditer(source):
        text = found[1] if found[1] is not None else found[2]
        if text.startswith("(") and text.endswith(")"):
            continue  # a list of options that exclude each other
        text = re.sub(r"^\([^()]*\)", "", text)
        before = source[max(0, found.start() - 220) : found.start()]
        braces = _BRACES.search(before[before.rfind("{") :]) if before.endswith("}") else None
        spellings = tuple(part for part in braces[1].split(",") if part) if braces else ()
        if spellings or text.startswith(("-", "*-", "*:", "1:", ":")):
            yield spellings, text


def _read_spec(spellings: tuple[str, ...], found: re.Match[str]) -> CommandOption | None:
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
