"""Find the commands of this machine: read man pages and completions within limits, and cache the result.

    commands = Catalogue(find_roots()).load(progress)

Nothing is run. A command is listed if its program is found in a folder of PATH. The cache is a file in the user's cache
folder; a page is read again if its size or time of change differs.

The folders are not trusted: only regular files are read. A cache is trusted only if its folder and file belong to this
user and no other user can write them.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from pathlib import Path

import msgspec

from ...ir.value import Value
from .command import COMMAND_NAME, SystemCommand, find_program, program_folders
from .effects import refusal_reason, starts_programs
from .manuals import is_alias, read_bash_completion, read_man_page, read_zsh_completion

MAX_FILE = 1_000_000  # the longest pages, such as bash(1), have less than half of it; also stops decompression bombs
"""Bytes of a page, also after decompression."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def read_text(path: Path) -> str:
    """Read a regular file, decompressed if it is gzip. Raise ValueError for one beyond MAX_FILE or for a device."""
    data = _read(path, MAX_FILE)
    if path.suffix == ".gz":
        data = zlib.decompressobj(wbits=31).decompress(data, MAX_FILE + 1)  # the first member
        if len(data) > MAX_FILE:
            raise ValueError(f"{path} is larger than {MAX_FILE} bytes")
    return data.decode("utf-8", "replace")


def _read(path: Path, limit: int, *, is_private: bool = False) -> bytes:
    """Return the content of a file, which is checked after it is opened: a path can change in between.

    Raises `ValueError` for a special or large file, and `PermissionError` if `is_private` and others can write it.
    """
    descriptor = os.open(path, _FLAGS | (_NO_LINK if is_private else 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise ValueError(f"{path} is not a regular file of at most {limit} bytes")
        if is_private and not _is_private(status):
            raise PermissionError(f"{path} belongs to another user, or others can write it")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path} is larger than {limit} bytes")
    return data


def _is_private(status: os.stat_result) -> bool:
    if sys.platform == "win32":
        return True
    is_own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_own and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1)


def is_private_file(path: Path) -> bool:
    """Return True for a regular file of this user that no other user can write."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and _is_private(status)


def open_private_folder(folder: Path) -> bool:
    """Create a folder that only this user can use, or restrict its mode.

    Returns False if it is a link, belongs to another user or cannot be created.
    """
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return False
        if sys.platform == "win32":
            return True
        if status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
        return True
    return False


def read_private(path: Path, limit: int) -> bytes:
    """Read a file of a private folder. Raise OSError or ValueError for a foreign, shared, linked or large file."""
    if not open_private_folder(path.parent):
        raise PermissionError(f"{path.parent} is not a private folder")
    return _read(path, limit, is_private=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file of a private folder in one step.

    Errors are ignored: without the cache, the next start only takes longer.
    """
    if not open_private_folder(path.parent):
        return
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        new.replace(path)


ReadProgress = Callable[[int, int], None]
FindProgram = Callable[[str], str | None]

MAX_FILES = 20_000  # a full desktop has some thousands of pages and completions
MAX_SECONDS = 120.0  # the user waits for the first call; the files read so far are cached
"""Time to read files anew. The rest is read by later calls."""

_FORMAT = 2  # of the cache; to be raised when the readers change
_MAX_CACHE = 200_000_000  # bytes; MAX_FILES records of 10 kB on average
_PAGE = re.compile(r"(?P<stem>.+)\.(?P<section>[168])[a-z]*(?P<gz>\.gz)?")
_MAX_DASHES = 4  # 2**(dashes - 1) ways to split a name are searched in the page


class Roots(Value, frozen=True):
    """The folders with man pages and completions."""

    man: tuple[str, ...] = ()
    bash: tuple[str, ...] = ()
    zsh: tuple[str, ...] = ()


class _FileRecord(Value, frozen=True):
    """The commands that were read from a file of this size and time of change."""

    size: int
    changed: int
    commands: tuple[SystemCommand, ...] = ()


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

    @property
    def key(self) -> str:
        """The identity of the folders, for files that are derived from them."""
        return "none" if self._cache_file is None else self._cache_file.stem

    def load(self, progress: ReadProgress | None = None) -> list[SystemCommand]:
        """Return the commands, from the cache where the files are unchanged, and update the cache.

        `progress` is called for files read anew. Files that are not read within `MAX_SECONDS` are left for the next
        start.
        """
        known = self._read_cache()
        files = list(self._files())[:MAX_FILES]
        records: dict[str, _FileRecord] = {}
        stale: list[tuple[Path, str, os.stat_result]] = []
        for path, kind in files:
            with suppress(OSError):
                status = path.stat()
                record = known.get(str(path))
                if not stat.S_ISREG(status.st_mode):
                    continue
                if record is not None and (record.size, record.changed) == (status.st_size, status.st_mtime_ns):
                    records[str(path)] = record
                else:
                    stale.append((path, kind, status))
        deadline = time.monotonic() + MAX_SECONDS
        for number, (path, kind, status) in enumerate(stale):
            if time.monotonic() > deadline:
                break
            if progress is not None:
                progress(number, len(stale))
            commands = tuple(command for command in self._read_file(path, kind) if command.is_valid)
            records[str(path)] = _FileRecord(status.st_size, status.st_mtime_ns, commands)
        if progress is not None and stale:
            progress(len(stale), len(stale))
        if stale or len(records) != len(known):
            self._write_cache(records)
        return self._join([records[str(path)] for path, _ in files if str(path) in records])

    def _join(self, records: Iterable[_FileRecord]) -> list[SystemCommand]:
        """Return each command once: the first page, with the options of its completion if the page has none.

        Commands that are refused or start other programs are left out.
        """
        joined: dict[tuple[str, ...], SystemCommand] = {}
        for command in (command for record in records for command in record.commands):
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

    def _read_file(self, path: Path, kind: str) -> list[SystemCommand]:
        """Return the commands of a file; none for one that is too large or damaged."""
        try:
            source = read_text(path)
            if kind == "zsh":
                return read_zsh_completion(source, path.name[1:])
            if kind == "bash":
                return read_bash_completion(source, path.name) if COMMAND_NAME.fullmatch(path.name) else []
            return self._read_page(path, source)
        except (OSError, EOFError, zlib.error, ValueError, RecursionError):
            return []

    def _read_page(self, path: Path, source: str) -> list[SystemCommand]:
        """Return the commands of a man page, or of the page that it is an alias of; none for another name or program."""
        alias = is_alias(source)
        if alias is not None:
            source = _read_alias(path.parent, alias)
        page = _PAGE.fullmatch(path.name)
        if page is None or COMMAND_NAME.fullmatch(page["stem"]) is None:
            return []
        words = self._command_words(page["stem"], source)
        return read_man_page(source, words, origin=str(path)) if words else []

    def _command_words(self, stem: str, source: str) -> tuple[str, ...] | None:
        """Return the words of a page: `git-log` is `git log` if there is no program `git-log`.

        Return None if there is no program for it.
        """
        if self._has_program(stem):
            return (stem,)
        parts = stem.split("-")
        if len(parts) == 1 or not self._has_program(parts[0]) or len(parts) > _MAX_DASHES + 1:
            return None
        text = re.sub(r"\\f.|\\&", "", source).replace("\\-", "-")
        splits = sorted(product(" -", repeat=len(parts) - 2), key=lambda marks: marks.count("-"))
        for marks in splits:
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
        is_valid = all(command.is_valid for record in cache.files.values() for command in record.commands)
        return cache.files if is_current and is_valid else {}

    def _write_cache(self, records: dict[str, _FileRecord]) -> None:
        if self._cache_file is not None:
            data = msgspec.json.encode(_Cache(_FORMAT, os.environ.get("PATH", ""), records))
            if len(data) <= _MAX_CACHE:
                write_private(self._cache_file, data)


def _read_alias(folder: Path, name: str) -> str:
    """Read the page that another one names. It is a file of the same folder."""
    for candidate in (name, f"{name}.gz"):
        path = folder / candidate
        if path.is_file():
            return read_text(path)
    return ""


def _list_folder(folder: Path) -> Sequence[Path]:
    try:
        return sorted(islice(folder.iterdir(), 2 * MAX_FILES))[:MAX_FILES]
    except OSError:
        return ()
