"""Read the structure of a man page (macros `man` and `mdoc`): sections with paragraphs and tagged entries.

Lines become plain text without fonts, sizes and other escapes: `.Op Fl p Ar port` becomes `[-p <port>]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct, field

ITALIC_START, ITALIC_END = "\x02", "\x03"  # around the variables of a synopsis


_ESCAPE = re.compile(
    r"""\\(?:
        (?P<comment>["\#].*)
      | f(?P<font>\[[^\]]{0,20}\]|\(..|.)
      | (?P<string>\*)(?:\[(?P<long_string>[^\]]{0,40})\]|\((?P<string2>..)|(?P<string1>.))
      | (?:\[(?P<long>[^\]]{0,40})\]|\((?P<two>..))
      | [mMFgkn](?:\[[^\]]{0,40}\]|\(..|[+-]?.)
      | s(?:\[[^\]]{0,10}\]|\([+-]?..|[+-]?\d{1,2})
      | [whvlLDXZRSHoNxbB]'[^']{0,200}'
      | z
      | (?P<one>.)
    )""",
    re.VERBOSE,
)
_CHARACTERS = {
    **dict.fromkeys(("aq", "cq"), "'"),
    "oq": "`",
    **dict.fromkeys(("dq", "lq", "rq"), '"'),
    "em": "-",
    "en": "-",
    "mi": "-",
    "hy": "-",
    "ha": "^",
    "ti": "~",
    "la": "<",
    "ra": ">",
    "rs": "\\",
    "bu": "*",
    "ga": "`",
    "at": "@",
    "sh": "#",
    "Do": "$",
    "lB": "[",
    "rB": "]",
    "lC": "{",
    "rC": "}",
    "ba": "|",
    "bv": "|",
    "sl": "/",
    "pl": "+",
    "eq": "=",
    "Bq": '"',
    "fo": "<",
    "fc": ">",
    "co": "(C)",
    "Aq": "'",
    "L'": "",
    "nq": "'",
    "->": "->",
    "<-": "<-",
    "R": "",
    "S": "",
}
_ONE = {"-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "t": " ", "'": "'", "`": "`", ".": ".", "_": "_"}
_ITALIC = ("I", "[I]", "2", "(CI", "[CI]")
_SPACES = re.compile(r"[ \t]+")
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|(\S+)')


def plain_text(line: str, *, marks_italic: bool = False) -> str:
    """Return a line without escapes. `marks_italic`: put ITALIC_START and ITALIC_END around italic text."""
    parts: list[str] = []
    position, is_italic = 0, False
    for found in _ESCAPE.finditer(line):
        parts.append(line[position : found.start()])
        position = found.end()
        font = found["font"]
        if font is not None and marks_italic:
            if (font in _ITALIC) != is_italic:
                parts.append(ITALIC_END if is_italic else ITALIC_START)
                is_italic = not is_italic
        else:
            parts.append(_replacement(found))
    parts.append(line[position:])
    if is_italic:
        parts.append(ITALIC_END)
    text = "".join(parts).replace(ITALIC_START + ITALIC_END, "")
    return _SPACES.sub(" ", text).strip()


def _replacement(found: re.Match[str]) -> str:
    if found["one"] is not None:
        return _ONE.get(found["one"], "")
    name = found["long"] or found["two"] or found["long_string"] or found["string2"] or found["string1"]
    return _CHARACTERS.get(name, "") if name else ""


def split_arguments(line: str) -> list[str]:
    """Split the arguments of a macro; quotes keep spaces, and an escaped space separates nothing."""
    text = line.replace(r"\ ", "\0").replace(r"\(dq", "\\[dq]")
    found = [plain or quoted.replace('""', '"') for quoted, plain in _ARGUMENT.findall(text)]
    return [one.replace("\0", " ") for one in found]


_ENCLOSURES = {"Op": "[]", "Oo": "[", "Oc": "]", "Bq": "[]", "Pq": "()", "Dq": '""', "Sq": "''", "Qq": '""', "Aq": "<>"}
_PLAIN = {"Cm", "Ic", "Em", "Sy", "Pa", "Ev", "Dv", "Va", "Li", "Xr", "No", "Tn", "Ql", "Er", "Cd", "Ad", "Lk", "Nd"}
MDOC_MACROS = frozenset({"Fl", "Ar", "Nm", "Ns", "Pf", "Sm", "Ap", "Xo", "Xc", *_ENCLOSURES, *_PLAIN})
_CLOSING = frozenset(".,;:)]?!")


def mdoc_text(line: str, name: str) -> str:
    """Return the text of a line that consists of macros and their arguments. `name`: the value of `.Nm`."""
    parts: list[str] = []
    closing: list[str] = []
    macro, joins, words_of_macro = "", False, 0
    for word in [*split_arguments(line), ""]:
        if word in MDOC_MACROS or not word:
            parts += _default_text(macro, words_of_macro, name)
            if word == "Ns" and parts:
                joins = True
                continue
            macro, words_of_macro = word, 0
            if word in _ENCLOSURES:
                pair = _ENCLOSURES[word]
                parts.append(pair[0])
                closing += pair[1:]
            continue
        words_of_macro += 1
        if macro == "Nd" and words_of_macro == 1:
            parts.append("-")
        text = _style(plain_text(word), macro)
        if parts and (joins or word in _CLOSING):
            parts[-1] += text
        else:
            parts.append(text)
        joins = macro == "Pf" and words_of_macro == 1
    return _join([*parts, *reversed(closing)])


def _default_text(macro: str, words: int, name: str) -> list[str]:
    """Return the text of a macro that has no arguments."""
    if words:
        return []
    return {"Nm": [name] if name else [], "Ar": ["<file>", "..."], "Fl": ["-"]}.get(macro, [])


def _style(word: str, macro: str) -> str:
    if macro == "Fl" and word not in _CLOSING and word != "|":
        return f"-{word}"
    if macro == "Ar" and word not in ("...", "|") and word not in _CLOSING:
        return f"<{word}>"
    return word


def _join(parts: list[str]) -> str:
    text = " ".join(part for part in parts if part)
    for opening in "([":
        text = text.replace(f"{opening} ", opening)
    for end in ")],":
        text = text.replace(f" {end}", end)
    return text.strip()


# A page is data: nothing is formatted by a program, and conditions and definitions of macros are skipped.


MAX_LINES = 30_000  # of a page; MAX_FILE bytes in lines of about 33 characters
_MAX_LINE = 4_000  # characters; bounds the patterns that read a line
_MAX_ENTRIES = 2_000  # of a page; several times the options of the longest ones
_MAX_ENTRY = 2_000  # characters; only the first sentence of an entry is used
_FONTS = {"B", "I", "BI", "BR", "IB", "IR", "RB", "RI", "SB", "SM", "R", "MR"}
_PARAGRAPHS = {"PP", "P", "LP", "sp", "Pp", "HP", "br"}
_INDENTED = re.compile(r"(?:\t| {2,})\S")


class PageEntry(Struct):
    """A paragraph, or an entry of a list with its tag, such as `-a, --all`. `lines`: lines of text without filling."""

    tag: str = ""
    text: str = ""
    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Append a line of text, up to a limit."""
        if len(self.text) < _MAX_ENTRY:
            self.text = f"{self.text} {text}".strip()


class PageSection(Struct):
    """A section with its entries; subsections are part of it."""

    title: str
    entries: list[PageEntry] = field(default_factory=list)


def read_sections(source: str, *, name: str = "") -> list[PageSection]:
    """Return the sections of a page. Lines beyond a limit are not read."""
    reader = _PageReader(name)
    for line in _significant_lines(source):
        reader.read(line)
    return reader.sections


def _significant_lines(source: str) -> Iterator[str]:
    """Yield the lines without comments, definitions of macros and conditional blocks."""
    ends: str | None = None
    depth = 0
    for line in source.split("\n", MAX_LINES)[:MAX_LINES]:
        line = line[:_MAX_LINE].rstrip("\r")
        if ends is not None:
            ends = None if line.startswith(ends) else ends
            continue
        control = line[1:].lstrip() if line[:1] in (".", "'") else None
        if depth or (control is not None and control.startswith(("if ", "ie ", "el ", "el\\", "while "))):
            depth = max(0, depth + line.count("\\{") - line.count("\\}"))
        elif control is None:
            yield line
        elif control.startswith(("de ", "de1 ", "ig", "am ")):
            words = control.split()
            ends = f".{words[2]}" if len(words) > 2 and words[0] != "ig" else ".."
        elif not control.startswith('\\"'):
            yield line


class _PageReader:
    """The state while a page is read: the section, the entry, and the meaning of the next line."""

    def __init__(self, name: str) -> None:
        self.sections: list[PageSection] = []
        self._entry: PageEntry | None = None
        self._name = name
        self._wants_tag = 0  # lines that belong to the tag
        self._is_literal = False
        self._count = 0

    def read(self, line: str) -> None:
        """Read a line of a man page: text or a macro. Unknown macros are ignored."""
        if line[:1] not in (".", "'"):
            self._add_text(line)
            return
        macro, _, rest = line[1:].strip().partition(" ")
        handler = _HANDLERS.get(macro)
        if handler is not None:
            handler(self, rest.strip())
        elif macro in _FONTS:
            self._add_plain(self._join_fonts(macro, split_arguments(rest)))
        elif macro in _PARAGRAPHS:
            self._end_paragraph(macro)
        elif macro in MDOC_MACROS:
            self._add_plain(mdoc_text(line[1:], self._name))

    @property
    def _is_synopsis(self) -> bool:
        return bool(self.sections) and self.sections[-1].title == "SYNOPSIS"

    def _join_fonts(self, macro: str, words: list[str]) -> str:
        """Return the text of a font macro; `BI` and similar alternate the fonts of the words, without spaces."""
        if len(macro) == 1 or macro in ("SM", "SB", "MR"):
            text = " ".join(words)
            return (
                f"{ITALIC_START}{plain_text(text)}{ITALIC_END}"
                if macro == "I" and self._is_synopsis
                else self._plain(text)
            )
        parts = [
            f"{ITALIC_START}{plain_text(word)}{ITALIC_END}"
            if self._is_synopsis and macro[number % 2] == "I"
            else self._plain(word, strip=False)
            for number, word in enumerate(words)
        ]
        return "".join(parts)

    def _plain(self, text: str, *, strip: bool = True) -> str:
        plain = plain_text(text, marks_italic=self._is_synopsis)
        if strip:
            return plain
        return f"{' ' * text.startswith(' ')}{plain}{' ' * (text.endswith(' ') and text != ' ')}"

    def _add_text(self, line: str) -> None:
        if not line.strip():
            if not self._is_literal:
                self._end_paragraph("PP")
            return
        entry = self._entry
        if _INDENTED.match(line) and entry is not None and not entry.tag and _is_tag(entry.text):
            entry.tag, entry.text = entry.text, ""  # pages written from Markdown indent the description
        self._add_plain(self._plain(line))

    def _add_plain(self, text: str) -> None:
        """Add text to the current entry, as its tag if a macro asked for one. Examples are left out."""
        if not self.sections or not text:
            return
        if self._wants_tag:
            self._wants_tag -= 1
            entry = self._open_entry()
            entry.tag = f"{entry.tag}, {text}" if entry.tag else text
            return
        entry = self._entry or self._open_entry()
        if self._is_synopsis:
            entry.lines.append(text)
        if self._is_synopsis or not self._is_literal:
            entry.add(text)

    def _open_entry(self) -> PageEntry:
        """Return the entry that gets a tag: the last one if it has no text yet, else a new one."""
        entry = self._entry
        if entry is None or entry.text:
            entry = self._entry = PageEntry()
            self._count += 1
            if self.sections and self._count < _MAX_ENTRIES:
                self.sections[-1].entries.append(entry)
        return entry

    def _end_paragraph(self, macro: str) -> None:
        entry = self._entry
        if macro == "br":  # a line break, which does not end the entry
            if entry is not None and self._is_synopsis:
                entry.lines.append("")
            return
        self._wants_tag = 0
        if entry is not None and entry.tag and macro in ("sp", "Pp"):
            return  # a second paragraph of the entry
        self._entry = None

    def start_section(self, rest: str) -> None:
        title = plain_text(" ".join(split_arguments(rest))).upper()[:80]
        self.sections.append(PageSection(title, []))
        self._entry, self._wants_tag, self._is_literal = None, 0, False

    def start_subsection(self, _: str) -> None:
        self._entry, self._wants_tag = None, 0

    def start_tagged(self, _: str) -> None:
        self._entry, self._wants_tag = None, 1

    def add_tag(self, _: str) -> None:
        self._wants_tag = 1

    def start_item(self, rest: str) -> None:
        """`.IP tag`: an item of a list. Successive tags without text share the description."""
        words = split_arguments(rest)
        tag = plain_text(words[0]) if words else ""
        if not _is_tag(tag) and not (tag and tag[0].isalpha()):
            self._end_paragraph("sp")
            return
        previous = self._entry
        if previous is None or previous.text or not previous.tag:
            self._entry = None
        entry = self._open_entry()
        entry.tag = f"{entry.tag}, {tag}" if entry.tag else tag

    def start_mdoc_item(self, rest: str) -> None:
        self._entry = self._entry if self._entry is not None and self._entry.tag and not self._entry.text else None
        entry = self._open_entry()
        tag = mdoc_text(rest, self._name)
        entry.tag = f"{entry.tag}, {tag}" if entry.tag else tag

    def indent(self, _: str) -> None:
        """`.RS`: the paragraph before it is a tag, if it is short (pages written from DocBook and AsciiDoc)."""
        entry = self._entry
        if entry is not None and not entry.tag and not self._is_literal and len(entry.text) < 200:
            entry.tag, entry.text = entry.text, ""

    def dedent(self, _: str) -> None:
        if self._entry is not None and self._entry.text:
            self._entry = None

    def start_literal(self, _: str) -> None:
        self._is_literal = True

    def end_literal(self, _: str) -> None:
        self._is_literal = False


def _is_tag(text: str) -> bool:
    return text.startswith("-") and len(text) < 300


_HANDLERS: dict[str, Callable[[_PageReader, str], None]] = {
    "SH": _PageReader.start_section,
    "Sh": _PageReader.start_section,
    "SS": _PageReader.start_subsection,
    "Ss": _PageReader.start_subsection,
    "TP": _PageReader.start_tagged,
    "TQ": _PageReader.add_tag,
    "IP": _PageReader.start_item,
    "It": _PageReader.start_mdoc_item,
    "RS": _PageReader.indent,
    "RE": _PageReader.dedent,
    "nf": _PageReader.start_literal,
    "EX": _PageReader.start_literal,
    "fi": _PageReader.end_literal,
    "EE": _PageReader.end_literal,
}
