"""Read manuals with the programs of the system: `lexgrog` for names and summaries, `man` for the text of a page.

Both get a fixed environment: no MANOPT, pager, width or language of the user. A page is untrusted. `man` reads it from a
file without a name, after its type and size were checked; its output is cut off at a size, and its processes are ended
after some seconds, because troff has loops. groff starts no program for a page (its safer mode).

The lines are so long that nearly no paragraph is broken. The indentation gives the structure: a heading has none, and a
tag such as `-a, --all` precedes deeper text or a gap in its line. mandoc ignores the width; its continued lines have the
indentation of their paragraph, which `read_sections` joins.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from .command import SYSTEM_FOLDERS

_PAGE_SECONDS = 10.0  # to render a page; the longest pages, such as bash(1), take 0.5 seconds
_MAX_RENDERED = 2_000_000  # bytes of a rendered page; bash(1) has 400,000
_NAMES_SECONDS = 30.0  # for _BATCH pages, which take 0.1 seconds
_MAX_NAMES = 4_000_000  # bytes of the names and summaries of _BATCH pages
_BATCH = 500  # pages of one process; below the limit of 128 KiB of arguments that any POSIX system with `man` has
_WIDTH = 10_000  # characters of a line: more than a paragraph has; groff accepts it
_ENVIRONMENT = {
    "PATH": os.pathsep.join(SYSTEM_FOLDERS),
    "HOME": "/",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "MANPAGER": "cat",
    "MANWIDTH": str(_WIDTH),
}


def read_summaries(program: str, pages: Sequence[Path], deadline: float) -> dict[Path, str]:
    """Return the summaries of pages; none for a page without one. `program`: the file of `lexgrog`."""
    found: dict[Path, str] = {}
    for start in range(0, len(pages), _BATCH):
        if time.monotonic() > deadline:
            break
        batch = {str(page): page for page in pages[start : start + _BATCH]}
        output = _run([program, *batch], subprocess.DEVNULL, _NAMES_SECONDS, _MAX_NAMES)
        for line in output.splitlines():
            name, separator, rest = line.partition(': "')
            path = batch.get(name)
            title, dash, summary = rest.removesuffix('"').partition(" - ")
            if path is None or not (separator and dash):
                continue
            if path not in found or path.name.startswith(f"{title}."):  # a page may describe several commands
                found[path] = summary.strip()[:300]
    return found


def render_page(program: str, source: bytes, folder: Path) -> str:
    """Return the text of a page, as `man` shows it. `folder`: a man path for pages that it includes (`.so`)."""
    with tempfile.TemporaryFile() as file:
        file.write(source)
        file.seek(0)
        output = _run([program, "-l", "/dev/stdin"], file.fileno(), _PAGE_SECONDS, _MAX_RENDERED, MANPATH=str(folder))
    return _FORMATTING.sub("", output).translate(_ASCII)


_FORMATTING = re.compile(r".\x08|\x1b\[[0-9;]{0,20}m|\x1b\]8;[^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_ASCII = str.maketrans({**dict.fromkeys("‐‑‒–—−", "-"), **dict.fromkeys("‘’", "'"), **dict.fromkeys("“”", '"')})


def _run(vector: list[str], source: int, seconds: float, limit: int, **variables: str) -> str:
    """Return the beginning of a program's output, and end the program and its children.

    A program that cannot start has no output. Its messages and exit code are ignored: `lexgrog` fails if one page of
    many has no name.
    """
    if sys.platform == "win32":
        return ""
    try:
        process = subprocess.Popen(  # noqa: S603  # a list of arguments: a program of the system, and names of files
            vector,
            env={**_ENVIRONMENT, **variables},
            cwd="/",
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""

    def end() -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout as output:
            return output.read(limit).decode("utf-8", "replace")
    finally:
        timer.cancel()
        timer.join()
        end()  # the group still exists: its leader was not waited for
        process.wait()


_MAX_LINES = 30_000  # of a page; several times the lines of the longest ones
_MAX_LINE = 4_000  # characters; bounds the patterns that read a line
_MAX_ENTRIES = 2_000  # of a page; several times the options of the longest ones
_MAX_ENTRY = 2_000  # characters; only the first sentence of an entry is used
_MAX_TAG = 200  # characters; a longer text is a paragraph
_SUBSECTION = 3  # columns before the title of a subsection; text has five (mdoc) or seven
_GAP = re.compile(r"(-\S*+(?: \S++)*+|[a-z][a-z0-9-]*+)\s{2,}+(\S.*)")
_FULL_TAG = re.compile(r"(-\S{5,6}|-\S{3,4} [A-Za-z]|[a-z][a-z0-9-]{5}) (\S++ \S.*)")  # one space before the column of the text
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
    for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]:
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
