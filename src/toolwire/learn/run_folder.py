"""The folder of one training, mining or evaluation run: a manifest of its inputs, and results that survive a restart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..ir.errors import ConfigError
from ..ir.pointer import Object

__all__ = ["RunFolder", "hash_file", "write_atomically"]

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
        equal settings and inputs, because results of different runs must not be mixed.
        """
        folder = Path(path)
        files = {str(one): hash_file(Path(one)) for one in inputs}
        manifest: Object = {"settings": msgspec.to_builtins(dict(settings)), "inputs": files}
        file = folder / _MANIFEST
        if file.is_file():
            if not resume:
                raise ConfigError(f"{folder} already contains a run", hint="resume it, or choose another folder")
            _require_equal(folder, _read_object(file), manifest)
            return cls(folder, manifest)
        unfinished = file.name + ".part"  # the run was killed while it wrote its manifest
        if folder.is_dir() and any(one.name != unfinished for one in folder.iterdir()):
            raise ConfigError(f"{folder} is not empty and contains no run", hint="choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, msgspec.json.format(msgspec.json.encode(manifest)))
        return cls(folder, manifest, is_new=True)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Remove the manifest of a new run if its preparation fails, so that the corrected command can use the folder."""
        try:
            yield
        except Exception:
            if self._is_new and [one.name for one in self.path.iterdir()] == [_MANIFEST]:
                (self.path / _MANIFEST).unlink()
            raise

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


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _decode(place: object, content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{place} is damaged: {error}", hint="remove the file, or choose another folder") from None


def _read_object(path: Path) -> Object:
    found = _decode(path, path.read_bytes())
    if type(found) is not dict or not all(type(found.get(group)) is dict for group in ("settings", "inputs")):
        raise ConfigError(f"{path} is not the manifest of a run", hint="choose another folder")
    return found


def _require_equal(folder: Path, before: Object, now: Object) -> None:
    for group in ("settings", "inputs"):
        old, new = before.get(group) or {}, now[group]
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                raise ConfigError(
                    f"{folder} contains a run with other {group}: {name} was {old.get(name)!r}, now {new.get(name)!r}",
                    hint="use the same settings and files, or choose another folder",
                )
