"""The frame of a training, mining or evaluation run: required libraries, its folder, and its shards.

The folder has a manifest of the inputs, and results that survive a restart. Several machines share the shards of a run:
each shard is claimed with a lease in a store.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra, StoreError
from ..ir.pointer import Object
from ..run.values.records import DAY, Claim, Record, Store

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


# Divide work into shards that several machines share: each shard is claimed with a lease in a store.
#
# A worker renews its lease while it works. If it is killed, the lease expires and another worker claims the shard.
# The fencing token of the claim rejects the result of a worker that lost its lease, so every shard has exactly one
# result.


_KEPT = 30 * DAY  # seconds that a store keeps the results
_POLL = 0.5  # seconds between two attempts to claim a shard of another worker


def job_key(settings: Any, inputs: Sequence[str]) -> str:
    """Return the key of a job: equal on every machine with equal settings and equal hashes of the inputs."""
    described = msgspec.json.encode([msgspec.to_builtins(settings), list(inputs)], order="sorted")
    return hashlib.sha256(described).hexdigest()[:32]


def run_shards(
    store: Store,
    job: str,
    shards: Sequence[str],
    work: Callable[[int], Any],
    *,
    lease: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Any]:
    """Compute each shard once, together with the other workers of the store, and return all results in order.

    `shards` are fingerprints of the inputs of each shard. `work` gets the number of a shard and returns a JSON value.
    The function returns after every shard is done, also the shards of other workers. Raise ConfigError if `lease` is
    not positive.
    """
    if not lease > 0:
        raise ConfigError(f"lease must be positive, got {lease}", hint="give it in seconds")
    results: dict[int, Any] = {}
    if progress is not None:
        progress(0, len(shards))
    while len(results) < len(shards):
        before = len(results)
        for number, fingerprint in enumerate(shards):
            if number in results:
                continue
            record = _claim(store, job, number, fingerprint, lease)
            if record.state == "running" and record.token:
                if not _work_on(store, record, partial(work, number), lease):
                    continue  # another worker holds the shard, or has taken it over
                stored = store.get(record.key)
                record = stored if stored is not None else record
            if record.state == "done":
                results[number] = msgspec.json.decode(record.result or "null")
                if progress is not None:
                    progress(len(results), len(shards))
        if len(results) == before:
            time.sleep(min(_POLL, lease / 4))
    return [results[number] for number in range(len(shards))]


def _claim(store: Store, job: str, number: int, fingerprint: str, lease: float) -> Record:
    """Claim a shard.

    The record of a shard that another worker holds comes back without its token. Raises `ConfigError` if the store has
    the shard with other inputs.
    """
    token = secrets.token_hex(16)
    claim = Claim(f"learn:{job}:{number}", "toolwire learn", fingerprint, token, lease, _KEPT, reclaim=True)
    record = store.claim(claim)
    if record.fingerprint != fingerprint:
        raise ConfigError(f"shard {number} of the store has other inputs", hint="use another store or another folder")
    if record.state == "running" and record.token != token:
        return msgspec.structs.replace(record, token="")
    return record


def _work_on(store: Store, record: Record, work: Callable[[], Any], lease: float) -> bool:
    """Do the work of a claimed shard and store its result; False if the claim was lost meanwhile.

    A claim whose work failed is released, so that another worker can try.
    """
    try:
        with _renewed(store, record, lease):
            result = msgspec.json.encode(work()).decode()
    except BaseException:
        store.release(record.key, record.token)
        raise
    return store.complete(record.key, record.token, result, _KEPT)


@contextmanager
def _renewed(store: Store, record: Record, lease: float) -> Iterator[None]:
    """Renew the lease of a record from another thread while the block runs."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(lease / 3):
            try:
                if not store.renew(record.key, record.token, lease):
                    return  # lost: `complete` rejects the result
            except StoreError:
                continue  # the next attempt may reach the store before the lease ends

    thread = threading.Thread(target=renew, name="toolwire-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
