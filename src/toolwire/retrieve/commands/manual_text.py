"""Read the text of manuals: sections by their indentation, options and operands by their spelling.

The lines of a rendered page are so long that nearly no paragraph is broken. A heading has no indentation, and a tag such
as `-a, --all` precedes deeper text or a gap in its line. mandoc ignores the width; its continued lines have the
indentation of their paragraph, which `read_sections` joins.

An option: `-a, --all`, `--color[=WHEN]`, `-n, --lines=NUM`. A synopsis: `cp [OPTION]... SOURCE... DIRECTORY`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from .command import CommandOption, Operand, OptionStyle, property_name

_NAME = re.compile(r"--?[A-Za-z0-9@#?](?:[A-Za-z0-9_.+]|-(?=[A-Za-z0-9]))*")
_SEPARATOR = re.compile(r"(?<!\s)\s*+(?:,|\||/|\bor\b)\s*+(?=--?\w)")
_PLACEHOLDER = re.compile(r"[A-Za-z][\w.:@+/-]*")
_CHOICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_INTEGERS = re.compile(r"(?:num|number|count|depth|port|cols|columns|pid|lines|limit|int|integer)", re.IGNORECASE)
_REPEATS = re.compile(r"(?:multiple|several|many) times\b|more than once\b|repeated(?:ly)?\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[a-z0-9)\]>'\"][.;:])\s+(?=[A-Z(\"'`-])")
_MAX_NAMES = 6  # spellings of one option; most have two
_MAX_CHOICES = 24  # values in braces; a longer list is a description, not an enumeration
_MAX_DESCRIPTION = 160  # characters; one line of a description in a model's prompt, times all offered options


def read_option(tag: str, description: str) -> CommandOption | None:
    """Return the option that a tag describes, or None for any other tag.

    `--no-x` is left out beside `--x`. The value of a long spelling takes precedence.
    """
    names: list[str] = []
    value: tuple[OptionStyle, str] = ("flag", "")
    for part in _SEPARATOR.split(tag.strip()[:400])[: 2 * _MAX_NAMES]:
        part = part.replace("[no-]", "")
        found = _NAME.match(part)
        if found is None:
            continue
        names.append(found.group())
        style, text = _read_value(part[found.end() :])
        if style != "flag" and (value[0] == "flag" or found.group().startswith("--")):
            value = style, text
    names = [
        name for name in names if name.replace("--no-", "--", 1) == name or name.replace("--no-", "--", 1) not in names
    ]
    if not names:
        return None
    style, text = value
    choices = _read_choices(text)
    placeholder = _PLACEHOLDER.search(text)
    label = placeholder.group() if placeholder else ""
    return CommandOption(
        tuple(dict.fromkeys(names))[:_MAX_NAMES],
        style,
        label[:40],
        first_sentence(description),
        choices,
        _is_integer(label, text, names),
        style != "flag" and (text in ("", "[]") or _REPEATS.search(description[:600]) is not None),
    )


def _is_integer(label: str, default: str, names: list[str]) -> bool:
    """Return True for a number. `find -size n` takes more than numbers, so that `n` needs a long option."""
    has_long = any(name.startswith("--") for name in names)
    is_number = _INTEGERS.fullmatch(label) is not None or (has_long and label.lower() == "n")
    return is_number or re.fullmatch(r"-?\d+", default) is not None


def _read_value(rest: str) -> tuple[OptionStyle, str]:
    """Return the style and the text of the value after an option's name.

    Text after a space is a value only if it looks like a placeholder or is short; else it is a description.
    """
    text = rest.strip()
    if not text or text[0] in ",;:.":
        return "flag", ""
    if text.startswith("[="):
        inner = text[2:].split("]")[0]
        return ("flag", "") if inner in ("true", "false") else ("optional", inner)
    if text.startswith("="):
        return "attached", text[1:].strip()
    if not rest[0].isspace():
        is_optional = text.startswith("[")
        return ("optional" if is_optional else "attached", text.strip("[]<>"))
    if text.startswith("["):
        return "optional", text.strip("[]")
    word = text.split()[0]
    is_value = word.startswith(("<", "{", "(", '"')) or word.isupper() or len(text.split()) <= 2
    return ("separate", text) if is_value else ("flag", "")


def _read_choices(text: str) -> tuple[str, ...]:
    """Return the values that a placeholder lists, as in `short|full|auto`."""
    inner = text.strip("{}()[]<>")
    parts = [part.strip("<>\"' ") for part in re.split(r"[|,]", inner)]
    is_list = 1 < len(parts) <= _MAX_CHOICES and all(_CHOICE.fullmatch(part) for part in parts)
    return tuple(parts) if is_list and "<" not in inner and not inner.isupper() else ()


def first_sentence(text: str, limit: int = _MAX_DESCRIPTION) -> str:
    """Return the first sentence of a description, shortened at a word."""
    sentence = _SENTENCE.split(text[: 4 * limit].strip(), maxsplit=1)[0]
    if len(sentence) <= limit:
        return sentence
    return sentence[:limit].rsplit(" ", 1)[0].rstrip(",;:") + "…"


_TOKEN = re.compile(r"\.\.\.|…|<[^<>]{1,80}>|[\[\]{}()|]|[^\s\[\]{}()|<>]+")
_OPTIONS = re.compile(r"(?:general |global |log |common )?-*(?:options?|flags?|opts?|args-for-\w+)", re.IGNORECASE)
_LITERAL = re.compile(r"[a-z][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_-]*")
_PLAIN = re.compile(r"(?:[a-z][a-z0-9_-]*|[A-Z][A-Z0-9_-]*)(?:\.\.\.)?")
_OTHER_COMMAND = re.compile(r"[a-z][\w.-]*+(?: ++[\[{<(-]|$)")  # the usage of another command of the page
_SIMPLIFIED = (
    (re.compile(r"\\"), ""),
    (re.compile(r"--\[no-\]"), "--"),
    (re.compile(r"(?<![\w-])(-[\w-]++)\[=?[^\[\]]{0,200}\]"), r"\1=x"),  # --color[=WHEN]
    (
        re.compile(r"(?<![\w-])(-[\w-]++)=(?:\([^()]{0,200}\)|<[^<>]{0,80}>|\{[^{}]{0,200}\})"),
        r"\1=x",
    ),  # --mirror=(fetch|push)
    (re.compile(r"<([^<>\s]*)>\s*\.\.\."), r"<\1> ..."),
    (re.compile(r"\bURLs\b"), "<url> ..."),
    (re.compile(r"\{([a-z][a-z0-9_-]*)\}"), r"<\1>"),
    (re.compile(r"\+FORMAT\b"), "<+format>"),
)
_PLURALS = frozenset({"files", "paths", "directories", "args", "arguments", "urls", "names", "hosts", "packages"})
_MAX_TOKENS = 4_000  # as many as _MAX_USAGE characters can have
_MAX_OPERANDS = 6  # of one line; more is a misread synopsis
_MAX_USAGE = 4_000  # characters of a synopsis; bounds the patterns that read it
_MAX_LINES = 40  # usages of one command, such as the list of all subcommands


class SynopsisLine:
    """One line of a synopsis: literal words after the command, and operands."""

    def __init__(self, literals: tuple[str, ...], operands: tuple[Operand, ...]) -> None:
        self.literals = literals
        self.operands = operands


def usage_lines(lines: Iterable[str], words: Sequence[str]) -> list[str]:
    """Return the usages of a synopsis without the words of the command. A usage begins with these words."""
    starts = (" ".join(words), "-".join(words))
    usages: list[str] = []
    continues = False
    for line in lines:
        plain = line.strip()
        start = next((start for start in starts if re.match(rf"{re.escape(start)}(?![\w-])", plain)), None)
        if start is not None:
            usages.append(plain[len(start) :].strip())
            continues = True
        elif not plain or _OTHER_COMMAND.match(plain):
            continues = False
        elif continues and len(usages[-1]) < _MAX_USAGE:
            usages[-1] += f" {plain}"
    return usages[:_MAX_LINES]


def read_usage(text: str) -> SynopsisLine:
    """Return the literals and operands of one usage, read up to `_MAX_USAGE` characters."""
    text = text[:_MAX_USAGE]
    for pattern, replacement in _SIMPLIFIED:
        text = pattern.sub(replacement, text)
    pieces = _TOKEN.findall(text)[:_MAX_TOKENS]
    reader = _UsageReader(has_variables=any(map(_is_variable, pieces)), choices=_choice_groups(pieces))
    for position, piece in enumerate(pieces):
        reader.read(position, piece, is_repeated=pieces[position + 1 : position + 2] == ["..."])
    return SynopsisLine(tuple(reader.literals), tuple(reader.operands[:_MAX_OPERANDS]))


def _choice_groups(pieces: Sequence[str]) -> frozenset[int]:
    """Return the positions of the braces that list alternatives."""
    opened: list[int] = []
    groups: set[int] = set()
    for position, piece in enumerate(pieces):
        if piece in "[{(":
            opened.append(position)
        elif piece in "]})" and opened:
            opened.pop()
        elif piece == "|" and opened and pieces[opened[-1]] == "{":
            groups.add(opened[-1])
    return frozenset(groups)


def _is_variable(piece: str) -> bool:
    name = piece.strip("<>.")
    return not _OPTIONS.fullmatch(name) and (piece.startswith("<") or _VARIABLE.fullmatch(name) is not None)


class _UsageReader:
    """The state while a usage is read: nesting, and the operand that a following `...` repeats."""

    def __init__(self, *, has_variables: bool, choices: frozenset[int]) -> None:
        self.literals: list[str] = []
        self.operands: list[Operand] = []
        self._has_variables = has_variables
        self._choices = choices
        self._groups: list[bool] = []  # per open bracket: its words are not operands
        self._after_option = False  # the next word is the value of an option
        self._follows_bar = False
        self._after_dashes = False
        self._may_repeat = False
        self._only_words = True  # no operand or option so far: words are literals

    def read(self, position: int, piece: str, *, is_repeated: bool) -> None:
        """Read the next piece of a usage line: a bracket, a bar, an option or a name."""
        if piece in ("...", "…"):
            self._repeat()
        elif piece in "[{(":
            self._groups.append(position in self._choices or any(self._groups))
            self._follows_bar = self._after_option = False
        elif piece in "]})":
            del self._groups[-1:]
            self._after_option = False
        elif piece == "|":
            self._follows_bar = True
            self._after_option = False
        elif piece == "--":
            self._after_dashes = True
        elif piece.startswith("-"):
            self._read_option(piece)
        else:
            self._read_word(piece, is_repeated=is_repeated)

    def _read_option(self, piece: str) -> None:
        """Skip the value: the words that follow in the same brackets, or the next word outside of brackets."""
        if self._groups:
            self._groups[-1] = True
        else:
            self._after_option = "=" not in piece
            self._only_words = False
        self._may_repeat = False

    def _read_word(self, piece: str, *, is_repeated: bool) -> None:
        """Read a name as the value of an option (ignored), a literal of the command, or an operand.

        After a bar it is an alternative of the name before, and is ignored. No literal is repeated or follows `--`.
        """
        name, repeats = piece.strip("<>").rstrip("."), piece.endswith("...")
        follows_bar, self._follows_bar = self._follows_bar, False
        is_value, self._after_option = self._after_option or any(self._groups), False
        may_repeat, self._may_repeat = self._may_repeat, False
        if is_value or follows_bar or _OPTIONS.fullmatch(name):
            self._may_repeat = may_repeat and follows_bar
        elif self._has_variables and _LITERAL.fullmatch(piece) and not (is_repeated or self._after_dashes):
            if self._only_words and not self._groups:
                self.literals.append(piece)
        elif piece.startswith("<") or _PLAIN.fullmatch(piece):
            label = property_name(re.split(r"[,=:|]", name.lstrip("+"))[0]).lower()
            self._add_operand(label, "+" if name.startswith("+") else "", repeats=repeats)

    def _add_operand(self, label: str, prefix: str, *, repeats: bool) -> None:
        """Add an operand, required outside of brackets; the same name again makes the last operand repeatable."""
        self._only_words = False
        names = [operand.name for operand in self.operands]
        if label and label not in names:
            self.operands.append(
                Operand(label, not self._groups, repeats or label in _PLURALS, self._after_dashes, prefix)
            )
            self._may_repeat = True
        elif label and names[-1] == label:  # `FILE [FILE]...`
            self._may_repeat = True
            self._repeat()

    def _repeat(self) -> None:
        if self.operands and self._may_repeat:
            last = self.operands[-1]
            self.operands[-1] = replace(last, repeats=True)
        self._may_repeat = False


_MAX_PAGE_LINES = 30_000  # of a page; several times the lines of the longest ones
_MAX_LINE = 4_000  # characters; bounds the patterns that read a line
_MAX_ENTRIES = 2_000  # of a page; several times the options of the longest ones
_MAX_ENTRY = 2_000  # characters; only the first sentence of an entry is used
_MAX_TAG = 200  # characters; a longer text is a paragraph
_SUBSECTION = 3  # columns before the title of a subsection; text has five (mdoc) or seven
_GAP = re.compile(r"(-\S*+(?: \S++)*+|[a-z][a-z0-9-]*+)\s{2,}+(\S.*)")
_FULL_TAG = re.compile(
    r"(-\S{5,6}|-\S{3,4} [A-Za-z]|[a-z][a-z0-9-]{5}) (\S++ \S.*)"
)  # one space before the column of the text
_OPTION_START = re.compile(r"-{1,2}[A-Za-z0-9@#?$!]")
_PROSE_END = re.compile(r":$|(?<!\.)\.$")


class PageEntry(Struct):
    """A paragraph, or an entry of a list with its tag, such as `-a, --all`. `lines`: its lines as they are."""

    indent: int
    tag: str = ""
    text: str = ""
    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Append a line of text, up to a limit."""
        if text and len(self.text) < _MAX_ENTRY:
            self.text = f"{self.text} {text}".strip()


class PageSection(Struct):
    """A section with its entries; subsections are part of it."""

    title: str
    entries: list[PageEntry] = field(default_factory=list)


class _Line(Struct):
    indent: int
    text: str
    follows_blank: bool


def read_sections(text: str) -> list[PageSection]:
    """Return the sections of a rendered page. Lines beyond a limit are not read."""
    lines = list(_significant_lines(text))
    sections: list[PageSection] = []
    entry: PageEntry | None = None
    count = 0
    for number, line in enumerate(lines):
        if line.indent == 0:
            sections.append(PageSection(line.text.upper()[:80]))
            entry = None
        elif not sections:
            continue
        elif line.indent <= _SUBSECTION and sections[-1].title != "SYNOPSIS":
            entry = None
        else:
            new = _next_entry(line, lines[number + 1] if number + 1 < len(lines) else None, entry)
            if new is not None and count < _MAX_ENTRIES:
                count += 1
                sections[-1].entries.append(new)
                entry = new
            if entry is not None and sections[-1].title == "SYNOPSIS":
                entry.lines += ["", line.text] if line.follows_blank else [line.text]
    return sections


def _significant_lines(text: str) -> Iterator[_Line]:
    """Yield the lines that are not empty."""
    is_blank = True
    for line in text.split("\n", _MAX_PAGE_LINES)[:_MAX_PAGE_LINES]:
        full = line[:_MAX_LINE].expandtabs(8).rstrip()
        body = full.lstrip()
        if body:
            yield _Line(len(full) - len(body), body, is_blank)
        is_blank = not body


def _next_entry(line: _Line, following: _Line | None, entry: PageEntry | None) -> PageEntry | None:
    """Return the entry that a line begins, or None for a line that continues `entry`, which gets its text."""
    tag, text = _split_tag(line, following)
    if tag:
        if entry is not None and entry.tag and not entry.text and entry.indent == line.indent:
            entry.tag = f"{entry.tag}, {tag}"[:_MAX_LINE]  # tags that share the next description
            entry.add(text)
            return None
        if entry is None or not entry.tag or line.indent <= entry.indent or tag.startswith("-"):
            return PageEntry(line.indent, tag, text)
    if entry is not None and (line.indent > entry.indent or not (entry.tag or line.follows_blank)):
        if entry.tag or line.indent == entry.indent:  # deeper text of a paragraph is an example
            entry.add(line.text)
        return None
    return PageEntry(line.indent, "", line.text)


def _split_tag(line: _Line, following: _Line | None) -> tuple[str, str]:
    """Return the tag that a line consists of or begins with, and the text after it; "" for a line without a tag."""
    text = line.text
    found = _GAP.fullmatch(text)
    if found is not None and len(found[1]) <= _MAX_TAG:
        return found[1], found[2]
    is_option = _OPTION_START.match(text) is not None
    is_joined = following is not None and not following.follows_blank
    if following is None or not (is_joined and following.indent > line.indent):
        full = _FULL_TAG.fullmatch(text)
        if full is not None and (is_option or full[2][0].isupper()):
            return full[1], full[2]
    if following is None or len(text) > _MAX_TAG or _PROSE_END.search(text):
        return "", ""
    if following.indent > line.indent and (is_joined or is_option):
        return text, ""
    shares_text = is_option and following.indent == line.indent and following.text.startswith("-")
    return (text, "") if shares_text else ("", "")
