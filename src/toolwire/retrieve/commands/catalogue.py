"""Find the commands of this machine: read manuals and completions within limits, and cache the result.

    catalogue = Catalogue(find_roots())
    commands = catalogue.load(progress)
    catalogue.read(commands[:6])  # with the options and operands of their pages

`load` reads the names and summaries of all pages, and the pages of common commands. `man` takes 0.07 seconds for a page,
so that the other ones are read when a search finds them. No command of the catalogue is run. A command is listed if its
program is found in a folder of PATH. The cache is a file in the user's cache folder; a page is read again if its size or
time of change differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice, product
from pathlib import Path

import msgspec

from ...ir.value import Value
from .command import COMMAND_NAME, SystemCommand, find_program, find_system_program, program_folders
from .common_tasks import COMMON_TASKS
from .effects import refusal_reason, starts_programs
from .machine import (
    BATCH,
    MAX_FILE,
    read_manual,
    read_private,
    read_regular,
    read_summaries,
    render_page,
    write_private,
)
from .manuals import read_bash_completion, read_man_page, read_zsh_completion

ReadProgress = Callable[[int, int], None]
FindProgram = Callable[[str], str | None]

MAX_FILES = 20_000  # a full desktop has some thousands of pages and completions
MAX_SECONDS = 120.0  # the user waits for the first call; the files read so far are cached
"""Time to read files anew. The rest is read by later calls."""

_MAX_WORKERS = 8  # of `man`; each is a pipeline of five programs
_COMMON_PAGES = frozenset(name.replace(" ", "-") for name in COMMON_TASKS) | {name.split()[0] for name in COMMON_TASKS}

_FORMAT = 4  # of the cache; to be raised when the readers change
_MAX_CACHE = 200_000_000  # bytes; MAX_FILES records of 10 kB on average
_PAGE = re.compile(r"(?P<stem>.+)\.(?P<section>[168])[a-z]*(?P<gz>\.gz)?")
_MAX_DASHES = 4  # 2**(dashes - 1) ways to split a name are searched in the page


class Roots(Value, frozen=True):
    """The folders with man pages and completions."""

    man: tuple[str, ...] = ()
    bash: tuple[str, ...] = ()
    zsh: tuple[str, ...] = ()


class _FileRecord(Value, frozen=True):
    """The commands of a file of this size and time of change.

    `summary`: a command of a man page that is not read yet. `commands`: the content, None before it is read.
    """

    size: int
    changed: int
    summary: SystemCommand | None = None
    commands: tuple[SystemCommand, ...] | None = None


class _Cache(Value, frozen=True):
    format: int
    program_path: str
    files: dict[str, _FileRecord]


def find_roots(environment: Mapping[str, str] = os.environ) -> Roots:
    """Return the usual folders that exist, system folders first. MANPATH replaces the man path, as for `man`.

    The first page of a command counts: a package of a virtual environment does not replace the page of `sort`.
    """
    named = [part for part in environment.get("MANPATH", "").split(os.pathsep) if part]
    beside = [str(Path(folder).parent / "share" / "man") for folder in program_folders(environment)]
    man = named or ["/usr/share/man", "/usr/local/share/man", "/opt/homebrew/share/man", *beside]
    share = ["/usr/local/share", "/usr/share", "/opt/homebrew/share"]
    bash = [f"{folder}/bash-completion/completions" for folder in share]
    zsh = [f"{folder}/zsh/{part}" for folder in share for part in ("site-functions", "vendor-completions", "functions")]
    return Roots(_existing(man), _existing(bash), _existing(zsh))


def _existing(folders: Iterable[str]) -> tuple[str, ...]:
    found = (str(Path(folder).resolve()) for folder in folders if Path(folder).is_absolute() and Path(folder).is_dir())
    return tuple(dict.fromkeys(found))


class Catalogue:
    """The commands below some folders. `cache`: the folder of the cache, None for none."""

    def __init__(self, roots: Roots, *, cache: Path | None = None, find_program: FindProgram = find_program) -> None:
        self._roots = roots
        self._find_program = find_program
        key = hashlib.sha256(msgspec.json.encode(roots)).hexdigest()[:16]
        self._cache_file = None if cache is None else cache / f"commands-{key}.json"
        self._programs: dict[str, str | None] = {}
        self._records: dict[str, _FileRecord] = {}
        self._man = find_system_program("man")
        self._lexgrog = find_system_program("lexgrog")
        self.problem = ""
        """The reason why manuals are not read, or are read without summaries."""
        if self._man is None:
            self.problem = "the program man was not found: manuals are not read; name commands with --learn"

    def load(self, progress: ReadProgress | None = None) -> list[SystemCommand]:
        """Return the commands, from the cache where the files are unchanged, and update the cache.

        `progress` is called for files read anew, except for summaries, which take little time. Files that are not read
        within `MAX_SECONDS` are left for the next start.
        """
        known = self._read_cache()
        deadline = time.monotonic() + MAX_SECONDS
        files = list(self._files())[:MAX_FILES]
        self._records = {}
        stale: list[tuple[Path, str, os.stat_result]] = []
        for path, kind in files:
            with suppress(OSError):
                status = path.stat()
                record = known.get(str(path))
                if not stat.S_ISREG(status.st_mode):
                    continue
                if record is not None and (record.size, record.changed) == (status.st_size, status.st_mtime_ns):
                    self._records[str(path)] = record
                else:
                    stale.append((path, kind, status))
        self._read_summaries([(path, status) for path, kind, status in stale if kind == "man"], deadline)
        common = [path for path, kind in files if kind == "man" and self._is_common(path) and self._is_unread(path)]
        completions = [one for one in stale if one[1] != "man"]
        total = len(common) + len(completions)
        if progress is not None and total:
            progress(0, total)
        for number, _ in enumerate(self._read_pages(common, deadline)):
            if progress is not None:
                progress(number + 1, total)
        for number, (path, kind, status) in enumerate(completions):
            if time.monotonic() > deadline:
                break
            commands = _valid(_read_completion(path, kind))
            self._records[str(path)] = _FileRecord(status.st_size, status.st_mtime_ns, None, commands)
            if progress is not None:
                progress(len(common) + number + 1, total)
        if stale or common or len(self._records) != len(known):
            self._write_cache()
        return self._join(command for path, kind in files for command in self._listed(path, kind))

    def read(self, commands: Sequence[SystemCommand]) -> list[list[SystemCommand]]:
        """Return the commands with the content of their pages, each before its subcommands.

        A list is empty if the command is refused or its page cannot be read. The content is cached.
        """
        pages = [Path(command.source) for command in commands if command.is_summary]
        unread = list(dict.fromkeys(page for page in pages if self._is_unread(page)))
        if list(self._read_pages(unread, time.monotonic() + MAX_SECONDS)):
            self._write_cache()
        return [self._content(command) if command.is_summary else [command] for command in commands]

    def _content(self, command: SystemCommand) -> list[SystemCommand]:
        record = self._records.get(command.source)
        found = self._join((record.commands if record is not None else None) or ())
        if found and not found[0].options:
            found[0] = msgspec.structs.replace(found[0], options=command.options)  # of its completion
        return found

    def _listed(self, path: Path, kind: str) -> tuple[SystemCommand, ...]:
        """Return the commands of a file: its content, or the summary of a page.

        A page that is not common has its summary in any case, so that the search does not depend on earlier requests.
        """
        record = self._records.get(str(path))
        if record is None:
            return ()
        if record.commands is not None and (kind != "man" or self._is_common(path)):
            return record.commands
        return () if record.summary is None else (record.summary,)

    def _is_common(self, page: Path) -> bool:
        found = _PAGE.fullmatch(page.name)
        return found is not None and found["stem"] in _COMMON_PAGES

    def _is_unread(self, page: Path) -> bool:
        record = self._records.get(str(page))
        return record is not None and record.summary is not None and record.commands is None

    def _read_summaries(self, pages: Sequence[tuple[Path, os.stat_result]], deadline: float) -> None:
        """Record the names and summaries of pages; an empty record for a page without a program or a summary."""
        if self._man is None:
            return
        waiting = [pages[start : start + BATCH] for start in range(0, len(pages), BATCH)]
        while waiting and time.monotonic() <= deadline:
            batch = waiting.pop(0)
            named = [(page, self._command_words(page)) for page, status in batch if status.st_size <= MAX_FILE]
            words = {page: found for page, found in named if found and not self._is_refused(found[0])}
            try:
                summaries = self._find_summaries(words)
            except TimeoutError:
                if len(batch) > 1:  # find the slow page, and read the others first
                    half = len(batch) // 2
                    waiting += [batch[:half], batch[half:]]
                    continue
                summaries = {}
            except OSError:
                return
            for page, status in batch:
                found = None
                if page in summaries:
                    found = SystemCommand(words[page], summaries[page], source=str(page), is_summary=True)
                known = found if found is not None and found.is_valid else None
                self._records[str(page)] = _FileRecord(status.st_size, status.st_mtime_ns, known)

    def _find_summaries(self, words: Mapping[Path, tuple[str, ...]]) -> Mapping[Path, str]:
        if self._lexgrog is not None:
            sources = {page: source for page in words if (source := _read_source(page))}
            return read_summaries(self._lexgrog, sources) if sources else {}
        if words:
            self.problem = "the program lexgrog (of man-db) was not found: less common manuals are found by their names"
        return {page: f"{' '.join(name)} command" for page, name in words.items()}

    def _read_pages(self, pages: Sequence[Path], deadline: float) -> Iterator[Path]:
        """Read pages and yield each one that is recorded. Several run at once."""
        if not pages:
            return
        pool = ThreadPoolExecutor(min(_MAX_WORKERS, os.cpu_count() or 1, len(pages)), "toolwire-man")
        try:
            contents = pool.map(lambda page: None if time.monotonic() > deadline else self._render(page), pages)
            for page, text in zip(pages, contents, strict=True):
                if text is not None:
                    words = self._command_words(page, text)
                    commands = _valid(read_man_page(text, words, origin=str(page))) if words else ()
                    record = self._records[str(page)]
                    self._records[str(page)] = msgspec.structs.replace(record, commands=commands)
                    yield page
        finally:
            pool.shutdown(cancel_futures=True)

    def _render(self, page: Path) -> str | None:
        """Return the text of a page, or None if `man` could not start.

        The text is "" for a file that is too large, damaged or slow: the next request must not wait for it again.
        """
        assert self._man is not None
        source = _read_source(page)
        try:
            return render_page(self._man, source) if source else ""
        except TimeoutError:
            return ""
        except OSError:
            return None

    def _join(self, commands: Iterable[SystemCommand]) -> list[SystemCommand]:
        """Return each command once: the first page, with the options of its completion if the page has none.

        Commands that are refused or start other programs are left out.
        """
        joined: dict[tuple[str, ...], SystemCommand] = {}
        for command in commands:
            if self._is_refused(command.words[0]) or starts_programs(command):
                continue
            known = joined.get(command.words)
            if known is None:
                joined[command.words] = command
            elif not known.options and command.options:
                joined[command.words] = msgspec.structs.replace(known, options=command.options)
        return list(joined.values())

    def _find(self, name: str) -> str | None:
        if name not in self._programs:
            self._programs[name] = self._find_program(name)
        return self._programs[name]

    def _has_program(self, name: str) -> bool:
        return self._find(name) is not None

    def _is_refused(self, name: str) -> bool:
        file = self._find(name)
        return file is None or refusal_reason(name, os.path.realpath(file)) is not None

    def _files(self) -> Iterator[tuple[Path, str]]:
        """Yield man pages, zsh and bash completions with their kind.

        Only zsh's `functions` folders are read with their subfolders; bash's files with a leading _ are left out.
        """
        for root in self._roots.man:
            for section in ("man1", "man8", "man6"):
                yield from ((path, "man") for path in _list_folder(Path(root, section)) if _PAGE.fullmatch(path.name))
        for root in self._roots.zsh:
            folder = Path(root)
            paths = (
                sorted(islice(folder.rglob("_*"), MAX_FILES)) if folder.name == "functions" else _list_folder(folder)
            )
            yield from ((path, "zsh") for path in paths[:MAX_FILES] if path.name.startswith("_"))
        for root in self._roots.bash:
            yield from ((path, "bash") for path in _list_folder(Path(root)) if not path.name.startswith("_"))

    def _command_words(self, page: Path, text: str = "") -> tuple[str, ...]:
        """Return the words of a page: `git-log` is `git log` if there is no program `git-log`.

        The text of the page decides about further dashes. Return () if there is no program for it.
        """
        found = _PAGE.fullmatch(page.name)
        if found is None or COMMAND_NAME.fullmatch(found["stem"]) is None:
            return ()
        stem = found["stem"]
        if self._has_program(stem):
            return (stem,)
        parts = stem.split("-")
        if len(parts) == 1 or not self._has_program(parts[0]) or len(parts) > _MAX_DASHES + 1:
            return ()
        splits = sorted(product(" -", repeat=len(parts) - 2), key=lambda marks: marks.count("-"))
        for marks in splits if text else ():
            rest = "".join(f"{mark}{part}" for mark, part in zip((" ", *marks), parts[1:], strict=True))
            if re.search(rf"^[^\w\n]*{re.escape(parts[0] + rest)}(?![\w-])", text, re.MULTILINE):
                return (parts[0], *rest.split())
        return (parts[0], "-".join(parts[1:]))

    def _read_cache(self) -> Mapping[str, _FileRecord]:
        """Return the cached records; none if the file is foreign, damaged, of another format or made with another PATH."""
        if self._cache_file is None:
            return {}
        try:
            cache = msgspec.json.decode(read_private(self._cache_file, _MAX_CACHE), type=_Cache)
        except (OSError, ValueError, RecursionError):
            return {}
        is_current = cache.format == _FORMAT and cache.program_path == os.environ.get("PATH", "")
        commands = chain.from_iterable(
            (*(record.commands or ()), *([] if record.summary is None else [record.summary]))
            for record in cache.files.values()
        )
        is_valid = all(command.is_valid for command in commands)
        return cache.files if is_current and is_valid else {}

    def _write_cache(self) -> None:
        if self._cache_file is not None:
            data = msgspec.json.encode(_Cache(_FORMAT, os.environ.get("PATH", ""), self._records))
            if len(data) <= _MAX_CACHE:
                write_private(self._cache_file, data)


def _read_source(page: Path) -> bytes:
    """Return the source of a page; b"" for a file that is too large or damaged."""
    try:
        return read_manual(page)
    except (OSError, EOFError, zlib.error, ValueError, RuntimeError):  # RuntimeError: a loop of links, in Python 3.11
        return b""


def _read_completion(path: Path, kind: str) -> list[SystemCommand]:
    """Return the commands of a completion; none for a file that is too large."""
    try:
        source = read_regular(path, MAX_FILE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return []
    if kind == "zsh":
        return read_zsh_completion(source, path.name[1:])
    return read_bash_completion(source, path.name) if COMMAND_NAME.fullmatch(path.name) else []


def _valid(commands: Iterable[SystemCommand]) -> tuple[SystemCommand, ...]:
    return tuple(command for command in commands if command.is_valid)


def _list_folder(folder: Path) -> Sequence[Path]:
    try:
        return sorted(islice(folder.iterdir(), 2 * MAX_FILES))[:MAX_FILES]
    except OSError:
        return ()
