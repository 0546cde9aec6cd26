"""Read files of this machine, and manuals with its programs, within limits.

Folders are not trusted: only regular files up to a size are read. A cache is trusted only if its folder and file belong
to this user and no other user can write them.

`lexgrog` returns the names and summaries of manuals, `man` the text of a page. Both get a fixed environment: no MANOPT,
pager, width or language of the user. A page is untrusted. `man` reads it from a file without a name, after its type and
size were checked; its output is cut off at a size, and its processes are ended after some seconds, because troff has
loops. groff starts no program for a page (its safer mode). A page includes no file, because its text would go to a model:
a page that is only a link (`.so man1/other.1`) is resolved here, and groff's requests that open files are removed.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .command import SYSTEM_FOLDERS

MAX_FILE = 1_000_000  # the longest pages, such as bash(1), have less than half of it; also stops decompression bombs
"""Bytes of a page, also after decompression."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def read_page(path: Path) -> bytes:
    """Read a regular file, decompressed if it is gzip. Raise ValueError for one beyond MAX_FILE or for a device."""
    data = read_regular(path, MAX_FILE)
    if path.suffix == ".gz":
        data = zlib.decompressobj(wbits=31).decompress(data, MAX_FILE + 1)  # the first member
        if len(data) > MAX_FILE:
            raise ValueError(f"{path} is larger than {MAX_FILE} bytes")
    return data


def read_manual(page: Path) -> bytes:
    """Read a page, or the page of the same man path that it only links to (`.so man1/other.1`).

    Raises `OSError`, `EOFError`, `ValueError` or `zlib.error` for a page that is too large, damaged or no file.
    """
    source = read_page(page)
    link = _LINK.match(source)
    if link is None:
        return source
    root = page.parent.parent.resolve()
    name = os.fsdecode(link[1])
    for target in (root / name, root / f"{name}.gz"):
        found = target.resolve()
        if found.is_relative_to(root) and found.is_file():
            return read_page(found)
    return b""


_LINK = re.compile(rb"(?:[.']\\\"[^\n]*\n|[ \t]*\n)*+[.']so[ \t]+([^\s\"]+)")
_INCLUDE = re.compile(rb"^[ \t]*[.'][ \t]*(?:so|mso|soquiet|msoquiet|nx|psbb|lf).*$", re.MULTILINE)
_HEADER = re.compile(rb"^[.'][ \t]*(?:TH|Dd)\b.*$", re.MULTILINE)


def _without_includes(source: bytes) -> bytes:
    r"""Return a page without requests that open files.

    man-db's zsoelim reads the lines, so they are removed. groff also finds a request by a string or another name (`.als`),
    so the requests are removed, too. `mso` is needed until the header has loaded the macros, so the header comes first.
    The first line can name other preprocessors ('\" e), which include files as well: only tables (t) are kept.
    """
    found = _HEADER.search(source)
    header = found[0].rstrip(b"\\\r") if found is not None else b".TH x 1"
    rest = source if found is None else source[: found.start()] + source[found.end() :]
    first = b"'\\\" t\n" if re.match(rb"'\\\" *\w*t", source) else b""
    removed = b".rm so mso soquiet msoquiet nx trf cf psbb hpf hpfa\n"
    return first + header + b"\n" + removed + _INCLUDE.sub(b"", re.sub(rb"\A'\\\"[^\n]*", b"", rest))


def read_regular(path: Path, limit: int, *, is_private: bool = False) -> bytes:
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
    return read_regular(path, limit, is_private=True)


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


_PAGE_SECONDS = 10.0  # to render a page; the longest pages, such as bash(1), take 0.5 seconds
_MAX_RENDERED = 2_000_000  # bytes of a rendered page; bash(1) has 400,000
_NAMES_SECONDS = 10.0  # for BATCH pages, which take 0.1 seconds
_MAX_HEAD = 100_000  # bytes of a page for its name, which is at the beginning; BATCH copies take 50 MB at most
_MAX_NAMES = 4_000_000  # bytes of the names and summaries of BATCH pages
BATCH = 500  # below the limit of 128 KiB of arguments that any POSIX system with `man` has
"""Pages of one process of `lexgrog`."""

_WIDTH = 10_000  # characters of a line: more than a paragraph has; groff accepts it
_ENVIRONMENT = {
    "PATH": os.pathsep.join(SYSTEM_FOLDERS),
    "HOME": "/",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "MANPAGER": "cat",
    "MANWIDTH": str(_WIDTH),
}


def read_summaries(program: str, pages: Mapping[Path, bytes]) -> dict[Path, str]:
    """Return the summaries of up to BATCH pages; none for a page without one. `program`: the file of `lexgrog`.

    It reads copies: it would follow links and decompress pages without a limit.
    Raises `OSError` for a program that cannot start or takes too long.
    """
    found: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        batch = {str(Path(folder, str(number))): page for number, page in enumerate(pages)}
        for file, page in batch.items():
            Path(file).write_bytes(_without_includes(pages[page])[:_MAX_HEAD])
        for line in _run([program, *batch], subprocess.DEVNULL, _NAMES_SECONDS, _MAX_NAMES).splitlines():
            name, separator, rest = line.partition(': "')
            path = batch.get(name)
            title, dash, summary = rest.removesuffix('"').partition(" - ")
            if path is None or not (separator and dash):
                continue
            if path not in found or path.name.startswith(f"{title}."):  # a page may describe several commands
                found[path] = summary.strip()[:300]
    return found


def render_page(program: str, source: bytes) -> str:
    """Return the text of a page, as `man` shows it. Raise `OSError` for a program that cannot start or takes too long."""
    with tempfile.TemporaryFile() as file:
        file.write(_without_includes(source))
        file.seek(0)
        output = _run([program, "-l", "/dev/stdin"], file.fileno(), _PAGE_SECONDS, _MAX_RENDERED)
    return _FORMATTING.sub("", output).translate(_ASCII)


_FORMATTING = re.compile(
    r".\x08|\x1b\[[0-9;]{0,20}m|\x1b\]8;[^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]"
)
# hyphens, dashes and minus; single and double quotation marks
_ASCII = {**dict.fromkeys((*range(0x2010, 0x2015), 0x2212), "-"), 0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


# Bytes / 1024 of memory per process: a page can build a string without end. macOS has no such limit.
_LIMITED = 'ulimit -v 1000000 2>/dev/null; exec "$0" "$@"'


def _run(vector: list[str], source: int, seconds: float, limit: int) -> str:
    """Return the beginning of a program's output, and end the program and its children.

    Its messages and exit code are ignored: `lexgrog` fails if one page of many has no name.
    """
    if sys.platform == "win32":
        raise FileNotFoundError(vector[0])
    process = subprocess.Popen(  # noqa: S603  # a list of arguments: a program of the system, and names of files
        ["/bin/sh", "-c", _LIMITED, *vector],
        env=_ENVIRONMENT,
        cwd="/",
        stdin=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    is_late = threading.Event()

    def end() -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def end_late() -> None:
        is_late.set()
        end()

    timer = threading.Timer(seconds, end_late)
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout as output:
            text = output.read(limit).decode("utf-8", "replace")
    finally:
        timer.cancel()
        timer.join()
        end()  # the group still exists: its leader was not waited for
        process.wait()
    if is_late.is_set():
        raise TimeoutError(f"{vector[0]} took longer than {seconds:g} seconds")
    return text
