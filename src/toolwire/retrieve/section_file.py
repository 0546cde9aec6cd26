"""The file of an index: sections of arrays and texts that are mapped into memory.

    magic · version · position, length and checksum of the manifest · checksum of these
    sections, each at a multiple of 64 bytes
    manifest (JSON)

The types and shapes of the sections are defined here, so that a file cannot choose them. Opening a file checks its
size, the manifest, and all sections except two: the vectors are checked at the first search by meaning, and a tool when
it is first decoded. A file that does not match is refused with `IndexFileError`; it is never repaired, because an index
can be made again. Checksums find damage. They do not stop a forger, whose file can contain wrong tools but runs no code.

The file is replaced as a whole. The replacement must survive a kill at every instruction.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeAlias
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError
from ..ir.value import Value
from .documents import FIELDS

# Replace a file as a whole.
#
# The new content is written under a temporary name in the same folder, flushed to the disk, and renamed. A reader
# opens the old or the new file; a process that has the old one open keeps it. A temporary file that a killed process
# left is removed by the next writer; a lock distinguishes a file in use from an abandoned one.


# names of 48 random bits never collide; only a writer that removes our file as abandoned causes another attempt
_ATTEMPTS = 100


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file for the new content.

    On success, it is synced and replaces the file at `path` with the same mode; on an error, it is removed. Files that
    a killed process left are removed first.
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    _remove_abandoned(path)
    file = _create_temporary(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with suppress(OSError):  # another owner's file, or none
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            os.replace(file.name, path)  # noqa: PTH105 - `file.name` is a string
    except BaseException:
        with suppress(OSError):
            os.unlink(file.name)  # noqa: PTH108 - as above
        raise
    _sync_folder(path.parent)


def _create_temporary(path: Path) -> BinaryIO:
    """Create and lock a file beside `path`, again if another process removed it before it was locked.

    Raises `OSError` after several attempts.
    """
    for _ in range(_ATTEMPTS):
        name = path.with_name(f".{path.name}.{token_hex(6)}.new")
        with suppress(FileExistsError):
            file = name.open("x+b")
            if _lock(file) is not False and os.fstat(file.fileno()).st_nlink:  # 0: removed as abandoned before the lock
                return file
            file.close()
    raise OSError(f"cannot create a temporary file beside {path}")


def _remove_abandoned(path: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.new")
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - names are enough
            if pattern.fullmatch(name):
                with suppress(OSError), (path.parent / name).open("rb") as file:
                    if _lock(file):
                        (path.parent / name).unlink()


def _lock(file: BinaryIO) -> bool | None:
    """Lock an open file without waiting; return False if another process has the lock, None without support.

    The lock ends with the process.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sync_folder(folder: Path) -> None:
    """Write the new name to the disk."""
    with suppress(OSError):  # not supported by every system
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


VERSION = 1  # raise it when an older reader would misread the file
REBUILD = "make the index again with `toolwire tools index` or ToolIndex.save"
_MAGIC = b"toolwire index\r\n"  # a transfer as text changes the line end
_HEAD = struct.Struct("<16sIQQI")  # magic, version, position, length and checksum of the manifest
_CHECK = struct.Struct("<I")
_ALIGNMENT = 64  # bytes; a cache line, and enough for vector loads from the mapped file
_MAX_MANIFEST = 16 << 20  # bytes; it lists a dozen sections. Checked before it is parsed
_MAX_SIZE = 1 << 50  # bytes; sums of sizes in the checks stay far below 2**63
_MAX_DIMENSIONS = 1 << 16  # encoders have up to a few thousand

Section: TypeAlias = Iterable[bytes | NDArray[Any]]
"""The parts of a section in their order: a large section needs no second copy in memory."""

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MAX_SIZE)]


class _SectionForm(NamedTuple):
    dtype: str
    columns: int = 0
    is_checked_later: bool = False


_FORMS = {
    "columns": _SectionForm("<i4", 3),  # of EntryTable
    "names": _SectionForm("|u1"),  # a JSON array
    "tools": _SectionForm("|u1", is_checked_later=True),  # one JSON object after the other
    "tool_offsets": _SectionForm("<i8"),
    "tool_checks": _SectionForm("<u4"),  # checksums
    "words": _SectionForm("|u1"),  # a JSON array
    "word_offsets": _SectionForm("<i8"),
    "documents": _SectionForm("<i4"),
    "counts": _SectionForm("|u1", len(FIELDS)),
    "lengths": _SectionForm("<f4", len(FIELDS)),
    "vectors": _SectionForm("<f4", -1, is_checked_later=True),  # as many columns as the encoder has dimensions
}


class IndexFileError(ConfigError):
    """A file is not a usable index: damaged, foreign, made by another version or with another encoder."""


class IndexInfo(Value, frozen=True):
    """The description of a saved index. `encoder` is None for an index of words only."""

    tools: Size
    encoder: str | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=0, le=_MAX_DIMENSIONS)] = 0
    servers: tuple[str, ...] = ()


class _Place(Value, frozen=True):
    offset: Size
    size: Size
    check: Size


class Manifest(Value, frozen=True):
    """The description of a file. `analysis` identifies the conversion of a tool to words and to a text."""

    info: IndexInfo
    analysis: str
    tag_sets: tuple[tuple[str, ...], ...]
    sections: dict[str, _Place] = {}


class IndexFile:
    """An open file: its manifest, and its sections as read-only arrays."""

    def __init__(self, path: Path, data: mmap.mmap, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._data = data

    def array(self, name: str) -> NDArray[Any]:
        """Return a section as an array. It shares the memory of the file. Raise IndexFileError if its size is wrong."""
        form, place = _FORMS[name], self.manifest.sections[name]
        columns = self.manifest.info.dimensions if form.columns < 0 else form.columns
        try:
            array = np.frombuffer(self._data, np.uint8, place.size, place.offset).view(form.dtype)
            return array.reshape(-1, columns) if columns else array
        except ValueError:
            raise self.damaged(f"the section {name!r} has the wrong size") from None

    def texts(self, name: str) -> list[str]:
        """Return a section with a JSON array of texts. Raise IndexFileError if it is damaged."""
        try:
            return msgspec.json.decode(self._slice(name), type=list[str])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self.damaged(f"the section {name!r} is not a list of texts") from None

    def check(self, name: str) -> None:
        """Compare the checksum of a section. Raise IndexFileError if it does not match."""
        if crc32(self._slice(name)) != self.manifest.sections[name].check:
            raise self.damaged(f"the checksum of the section {name!r} does not match")

    def damaged(self, reason: str) -> IndexFileError:
        """Return the error for a file that its writer cannot have written."""
        return _damaged(self.path, reason)

    def _slice(self, name: str) -> memoryview:
        place = self.manifest.sections[name]
        return memoryview(self._data)[place.offset : place.offset + place.size]


def write_index_file(path: Path, manifest: Manifest, sections: Mapping[str, Section]) -> None:
    """Replace the file at `path`.

    A reader sees the old or the new file, also after a kill at any time. Raises `IndexFileError` if it cannot be
    written.
    """
    try:
        with replace_file(path) as file:
            file.write(b"\0" * _ALIGNMENT)
            places = {name: _write_section(file, _FORMS[name].dtype, parts) for name, parts in sections.items()}
            text = msgspec.json.encode(msgspec.structs.replace(manifest, sections=places))
            start = file.tell()
            file.write(text)
            head = _HEAD.pack(_MAGIC, VERSION, start, len(text), crc32(text))
            file.seek(0)
            file.write(head + _CHECK.pack(crc32(head)))
    except OSError as error:
        raise IndexFileError(
            f"cannot write the index {path}: {error.strerror or error}",
            hint="check that the folder exists, that it is writable, and that the disk has space",
        ) from error


def _write_section(file: BinaryIO, dtype: str, parts: Section) -> _Place:
    """Write the parts of a section, aligned, and return its position, size and checksum."""
    _pad(file)
    start, check = file.tell(), 0
    for part in parts:
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part, dtype).reshape(-1).view(np.uint8).data
        check = crc32(data, check)
        file.write(data)
    size = file.tell() - start
    _pad(file)
    return _Place(start, size, check)


def _pad(file: BinaryIO) -> None:
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))


def is_index_file(path: str | Path) -> bool:
    """Return True for a file that begins like an index. It may still be damaged."""
    try:
        with _open_regular(Path(path)) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def open_index_file(path: Path) -> IndexFile:
    """Map a file into memory and check it.

    Raises `IndexFileError` if it is missing, unreadable, damaged or of another version.
    """
    try:
        with _open_regular(path) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise IndexFileError(f"there is no index at {path}", hint=REBUILD.replace("again ", "")) from None
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise IndexFileError(f"cannot read the index {path}: {error}", hint=REBUILD) from None
    opened = IndexFile(path, data, _read_manifest(path, data))
    _check_places(opened, data)
    return opened


def _open_regular(path: Path) -> BinaryIO:
    """Open a file. Raise OSError for a pipe or device, which could block for ever."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    return open(descriptor, "rb")  # noqa: PTH123  # a descriptor


def _read_manifest(path: Path, data: mmap.mmap) -> Manifest:
    """Check head and manifest, and return the manifest.

    Raises `IndexFileError` for another format or version and for damage.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise IndexFileError(f"{path} is not an index of toolwire", hint="give the path of a saved index")
    if len(data) < _ALIGNMENT:
        raise _damaged(path, "it is truncated")
    _, version, start, length, check = _HEAD.unpack_from(data)
    if version != VERSION:
        relation = "a newer" if version > VERSION else "an older"
        advice = "upgrade toolwire, or " if version > VERSION else ""
        raise IndexFileError(
            f"the index {path} has the format {version} of {relation} version of toolwire; this one reads {VERSION}",
            hint=advice + REBUILD,
        )
    if _CHECK.unpack_from(data, _HEAD.size)[0] != crc32(data[: _HEAD.size]):
        raise _damaged(path, "the checksum of its head does not match")
    if start + length != len(data) or length > _MAX_MANIFEST:
        raise _damaged(path, f"it has {len(data)} bytes instead of {start + length}")
    text = data[start:]
    if crc32(text) != check:
        raise _damaged(path, "the checksum of its manifest does not match")
    try:
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(path, f"its manifest cannot be read: {error}") from None


def _check_places(opened: IndexFile, data: mmap.mmap) -> None:
    """Check that the expected sections fill the file without gaps, and compare the checksums.

    Sections with `is_checked_later` are checked when they are read. Raises `IndexFileError` for any difference.
    """
    manifest = opened.manifest
    expected = [name for name in _FORMS if name != "vectors" or manifest.info.encoder is not None]
    if sorted(manifest.sections) != sorted(expected):
        raise opened.damaged("its sections are not those of an index")
    end = _ALIGNMENT
    head_size = _HEAD.size + _CHECK.size
    gaps = [data[head_size:_ALIGNMENT]]
    for name, place in sorted(manifest.sections.items(), key=lambda item: (item[1].offset, item[1].size)):
        padded = place.offset + place.size + -place.size % _ALIGNMENT
        if place.offset != end or padded > len(data):
            raise opened.damaged(f"the section {name!r} is at the wrong position")
        gaps.append(data[place.offset + place.size : padded])
        end = padded
    if any(map(any, gaps)) or end > len(data):
        raise opened.damaged("there is data between its sections")
    for name in expected:
        if not _FORMS[name].is_checked_later:
            opened.check(name)


def _damaged(path: Path, reason: str) -> IndexFileError:
    return IndexFileError(f"the index {path} is damaged: {reason}", hint=REBUILD)
