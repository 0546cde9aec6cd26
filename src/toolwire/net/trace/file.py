"""Files of traces (`toolwire.run.traces.format`), readable only by their owner."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import EFBIG
from itertools import count
from pathlib import Path
from typing import BinaryIO, TypeVar

from ...ir.errors import ConfigError
from ...ir.value import Value
from ...run.traces.format import (
    RecordingCut,
    TraceEvent,
    TraceHeader,
    decode_trace,
    decode_traces,
    encode_event,
    encode_header,
)

T = TypeVar("T")
SUFFIX = ".jsonl"
_RECORDINGS = f"[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9]*Z-*{SUFFIX}"  # named by their time
_MAX_BYTES = 64 * 1024 * 1024  # of one file: long runs fit, and a reader can hold it in memory
_MAX_READ = 2 * _MAX_BYTES
_PRUNE_INTERVAL = 16  # new files between two looks at a folder: listing it costs more than writing a small trace


class TraceRetention(Value, frozen=True):
    """The recordings that a folder keeps: the newest `files`, none older than `days`, at most `bytes` in all.

    The oldest ones are deleted when new ones are written; a folder may have a few more files meanwhile. By default
    nothing is deleted, and never a file whose name does not begin with the time of a recording.
    """

    files: int | None = None
    days: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be positive, got {value!r}")

    def prune(self, folder: Path) -> None:
        """Delete recordings beyond the limits. A file that another process deletes at the same time is no error."""
        if self == TraceRetention():
            return
        recordings = []
        for path in folder.glob(_RECORDINGS):
            with suppress(OSError):
                status = path.stat()
                recordings.append((status.st_mtime, status.st_size, path))
        oldest = 0.0 if self.days is None else time.time() - self.days * 24 * 60 * 60
        total = 0
        for number, (changed, size, path) in enumerate(sorted(recordings, reverse=True), 1):
            total += size
            is_kept = (self.files is None or number <= self.files) and (self.bytes is None or total <= self.bytes)
            if not is_kept or changed < oldest:
                with suppress(OSError):
                    path.unlink()


def make_pruner(folder: Path, keep: TraceRetention | None) -> Callable[[], None]:
    """Return a function to call after each new file. It prunes the folder at the first one, and then now and then."""
    written = count()

    def prune() -> None:
        if keep is not None and next(written) % _PRUNE_INTERVAL == 0:
            keep.prune(folder)

    return prune


def read_trace(path: Path) -> tuple[TraceHeader, tuple[TraceEvent, ...]]:
    """Read a file with one trace. Raise ConfigError if it cannot be read, is too large, or is no trace."""
    return _decode_file(path, decode_trace)


def read_traces(path: Path) -> list[tuple[TraceHeader, tuple[TraceEvent, ...]]]:
    """Read a file of at least one trace. Raise ConfigError as `read_trace` does."""
    return _decode_file(path, decode_traces)


def _decode_file(path: Path, decode: Callable[[Iterable[bytes], str], T]) -> T:
    try:
        with path.open("rb") as lines:
            size = os.fstat(lines.fileno()).st_size
            if size > _MAX_READ:
                raise ConfigError(f"{path.name} is too large for a trace: {size} bytes, at most {_MAX_READ}")
            return decode(lines, path.name)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


class TraceFile:
    """A new file of several traces, one after the other, readable only by its owner. Its size is bounded."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raise ConfigError if that fails or the file exists: others may be able to read it."""
        self._remaining = _MAX_BYTES
        self._lock = threading.Lock()
        try:
            self._out = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
        except FileExistsError:
            raise ConfigError(f"{path} exists", hint="name a new file, or remove this one") from None
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None

    def write(self, header: TraceHeader, events: Iterable[TraceEvent]) -> None:
        """Append a whole trace. Raise OSError if that fails, and for a trace beyond the maximum size of the file."""
        data = b"".join([encode_header(header), *map(encode_event, events)])
        with self._lock:
            if len(data) > self._remaining:
                raise OSError(EFBIG, f"the file has reached {_MAX_BYTES} bytes")
            self._out.write(data)
            self._out.flush()  # a process that is killed leaves all traces so far
            self._remaining -= len(data)

    def close(self) -> None:
        self._out.close()


class TraceWriter:
    """Writes the events of a trace to a file while they happen. The size of the file is bounded."""

    def __init__(self, out: BinaryIO, header: TraceHeader) -> None:
        self._out = out
        self._lock = threading.Lock()  # a tool in a thread may run another agent
        self._remaining = _MAX_BYTES
        self._write(encode_header(header))

    @classmethod
    def create(cls, path: Path, header: TraceHeader) -> TraceWriter:
        """Create or replace a file, and write the header. Raise ConfigError if that fails."""
        try:
            return cls(os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"), header)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None

    def write(self, event: TraceEvent) -> None:
        """Write an event. At the size limit, the recording ends with an event that reports it, and others are dropped."""
        line = encode_event(event)
        with self._lock:
            if self._remaining <= 0 or self._out.closed:
                return
            if len(line) > self._remaining:
                line, self._remaining = encode_event(_cut_event(event)), 0
            self._write(line)

    def _write(self, line: bytes) -> None:
        self._remaining -= len(line)
        self._out.write(line)
        self._out.flush()  # a process that is killed leaves all events so far

    def close(self) -> None:
        with self._lock:
            self._out.close()


def _cut_event(event: TraceEvent) -> RecordingCut:
    return RecordingCut(ms=event.ms, span=event.span, message=f"the recording reached {_MAX_BYTES} bytes")


def trace_folder(
    folder: Path, keep: TraceRetention | None = None
) -> Callable[[str, TraceHeader, Iterable[TraceEvent]], Path]:
    """Create the folder, and return a function that writes a finished trace to a file of its own, with a given stem.

    Raise ConfigError if the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None

    numbers, prune = count(2), make_pruner(folder, keep)

    def write_trace(stem: str, header: TraceHeader, events: Iterable[TraceEvent]) -> Path:
        """Write a trace, prune the folder, and return the path. A stem that is in use gets a number.

        The file has a temporary name first, so that a reader never sees an incomplete one.
        """
        path = folder / f"{stem}{SUFFIX}"
        # several traces may have the same id, and two threads may write at the same time
        while path.exists() or (out := _create_exclusively(path.with_suffix(".part"))) is None:
            path = folder / f"{stem}-{next(numbers)}{SUFFIX}"
        try:
            with out:
                writer = TraceWriter(out, header)
                for event in events:
                    writer.write(event)
        except BaseException:  # on a full disk, parts of traces would keep it full
            path.with_suffix(".part").unlink(missing_ok=True)
            raise
        path.with_suffix(".part").replace(path)
        prune()
        return path

    return write_trace


def _create_exclusively(path: Path) -> BinaryIO | None:
    """Create a file that only its owner can read, or return None if it exists."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        return None
