"""The frame of a training, mining or evaluation run: required libraries, its folder, and its shards.

The folder has a manifest of the inputs, and results that survive a restart. The shards of a run are computed by an
executor, on one machine or many.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from ..ir.pointer import Object
from ..net.executors import open_results
from ..run.executor import Executor, map_items

# Check that the libraries of the extra `learn` are installed, before work begins that needs them.


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def require_installed(user: str, *modules: str) -> None:
    """Raise MissingExtra if one of the modules that `user` needs is not installed."""
    for module in modules:
        if not is_installed(module):
            raise MissingExtra(f"{user} requires {module}", hint=install_command("learn"))


_MANIFEST = "manifest.json"


class RunFolder:
    """A folder with `manifest.json`, result files written atomically, and logs of JSON Lines that are appended to."""

    def __init__(self, path: Path, manifest: Object, *, is_new: bool = False) -> None:
        self.path = path
        self.manifest = manifest
        self._is_new = is_new

    @classmethod
    def create(
        cls, path: str | Path, settings: Mapping[str, Any], inputs: Iterable[str | Path] = (), *, resume: bool = False
    ) -> RunFolder:
        """Create the folder, or continue in it with `resume`.

        The manifest records `settings` (seeds included) and the SHA-256 of every input file. A run continues only with
        equal settings and inputs, because results of different runs must not be mixed. Raises `ConfigError` for other
        settings, an existing run without `resume`, and a folder with other files.
        """
        folder = Path(path)
        files = {str(entry): hash_file(Path(entry)) for entry in inputs}
        manifest: Object = {"settings": msgspec.to_builtins(dict(settings)), "inputs": files}
        file = folder / _MANIFEST
        if file.is_file():
            if not resume:
                raise ConfigError(f"{folder} already contains a run", hint="resume it, or choose another folder")
            _require_equal(folder, _read_object(file), manifest)
            return cls(folder, manifest)
        unfinished = file.name + ".part"  # the run was killed while it wrote its manifest
        if folder.is_dir() and any(entry.name != unfinished for entry in folder.iterdir()):
            raise ConfigError(f"{folder} is not empty and contains no run", hint="choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, msgspec.json.format(msgspec.json.encode(manifest)))
        return cls(folder, manifest, is_new=True)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of a run, without its settings. Raise ConfigError if it contains none."""
        folder = Path(path)
        if not (folder / _MANIFEST).is_file():
            raise ConfigError(f"{folder} contains no run", hint="give the folder of an earlier command")
        return cls(folder, _read_object(folder / _MANIFEST))

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Remove the manifest of a new run if its preparation fails, so that the corrected command can use the folder."""
        try:
            yield
        except Exception:
            if self._is_new and [one.name for one in self.path.iterdir()] == [_MANIFEST]:
                (self.path / _MANIFEST).unlink()
            raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process work in the folder during the block. Raise ConfigError if one does.

        The lock ends with its process. It has no effect without fcntl, as on Windows.
        """
        try:
            import fcntl
        except ImportError:
            yield
            return
        with (self.path / _MANIFEST).open("r+b") as file:  # NFS locks only files that are open for writing
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "wait for it, or stop it with Ctrl-C"
                raise ConfigError(f"another command works in {self.path}", hint=hint) from None
            yield

    def has(self, name: str) -> bool:
        """Return whether the result `name` is complete."""
        return (self.path / name).is_file()

    def write_json(self, name: str, value: Any) -> None:
        """Write a result; a reader sees the old file or the new one, never a part."""
        write_atomically(self.path / name, msgspec.json.format(msgspec.json.encode(value)) + b"\n")

    def read_json(self, name: str) -> Any:
        """Read a result."""
        return _decode(self.path / name, (self.path / name).read_bytes())

    def append(self, name: str, rows: Iterable[Any]) -> None:
        """Append rows to a log of JSON Lines and flush them to the disk."""
        with (self.path / name).open("ab") as file:
            file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())

    def rows(self, name: str) -> Iterator[Any]:
        """Yield the rows of a log. A last line without its line break was interrupted and is removed from the file."""
        file = self.path / name
        if not file.is_file():
            return
        content = file.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            with file.open("r+b") as stream:
                stream.truncate(complete)
        for number, line in enumerate(content[:complete].splitlines(), 1):
            yield _decode(f"{file}, line {number}", line)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Raise ConfigError with the name of a file if reading it in this block fails."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file in this block, and replace `path` by it at the end, in one step. An error leaves `path` as it was."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _decode(place: object, content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{place} is damaged: {error}", hint="remove the file, or choose another folder") from None


def _read_object(path: Path) -> Object:
    """Return the manifest of a run. Raise ConfigError for any other file."""
    found = _decode(path, path.read_bytes())
    if type(found) is not dict or not all(type(found.get(group)) is dict for group in ("settings", "inputs")):
        raise ConfigError(f"{path} is not the manifest of a run", hint="choose another folder")
    return found


def _require_equal(folder: Path, before: Object, now: Object) -> None:
    """Raise `ConfigError` for the first setting or input file that differs from the earlier run."""
    for group in ("settings", "inputs"):
        old, new = before.get(group) or {}, now[group]
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                raise ConfigError(
                    f"{folder} contains a run with other {group}: {name} was {old.get(name)!r}, now {new.get(name)!r}",
                    hint="use the same settings and files, or choose another folder",
                )


# Divide work into shards with stored results.


def job_key(settings: Any, inputs: Sequence[str]) -> str:
    """Return the key of a job: equal on every machine with equal settings and equal hashes of the inputs."""
    described = msgspec.json.encode([msgspec.to_builtins(settings), list(inputs)], order="sorted")
    return hashlib.sha256(described).hexdigest()[:32]


def shard_name(job: str, number: int, fingerprint: str) -> str:
    """Return the name of a shard's result. Other inputs have another name, so they never get this result."""
    digest = hashlib.sha256(msgspec.json.encode([job, number, fingerprint])).hexdigest()
    return f"{number:06}-{digest[:32]}.json"


def run_shards(
    results: str | Path,
    job: str,
    shards: Sequence[str],
    work: Callable[[int], Any],
    *,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Any]:
    """Compute each shard once with `map_items`, and return all results in order.

    `results` is a folder, or a URL such as `s3://bucket/run`. `shards` are fingerprints of the inputs of each shard.
    `work` gets the number of a shard and returns a JSON value. A repeated call computes missing shards only.
    """
    names = [shard_name(job, number, fingerprint) for number, fingerprint in enumerate(shards)]
    stored = open_results(results)
    found = map_items(
        _JSONWork(work), range(len(shards)), executor=executor, results=stored, names=names, progress=progress
    )
    return [msgspec.json.decode(content) for content in found]


class _JSONWork:
    """Encodes the results of a function. A class, because a local function cannot be sent to another process."""

    def __init__(self, work: Callable[[int], Any]) -> None:
        self._work = work

    def __call__(self, number: int) -> bytes:
        return msgspec.json.encode(self._work(number))
