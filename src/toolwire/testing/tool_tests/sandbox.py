"""A temporary folder for the tools under test, and the protection that calls with effects require."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote
from weakref import finalize

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...ir.tools import Effect
from .report import Protection
from .settings import ToolTestSettings
from .strings import SAMPLE_FILES, expand_placeholders

# A temporary folder for the tools under test: working folder, home, and a file outside that no tool may return.
#
# ROOT/work      the working folder: sample files, symbolic links to the outside, copies of the user's files
# ROOT/home      HOME
# ROOT/tmp       TMPDIR
# ROOT/outside   the canary


_MAX_ERRORS = 2000  # bytes of standard error: the last lines of a traceback
_CANARY_BYTES = 12  # random bytes: no tool returns them by chance
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT")


class ToolSandbox:
    """A temporary folder. `canary` is the path of a file outside the working folder, `secret` its content."""

    def __init__(self, files: Sequence[str] = ()) -> None:
        """Create temporary folders with copies of `files`, and remove them if a copy fails."""
        self.root = Path(tempfile.mkdtemp(prefix="toolwire-test-")).resolve()
        # also at exit: a signal may interrupt the caller before its `try` begins
        self.remove = finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        self.work, self.home, self.temp = self.root / "work", self.root / "home", self.root / "tmp"
        self.outside = self.root / "outside"
        self.canary = self.outside / "canary.txt"
        self.stderr = self.root / "stderr.txt"
        self.secret = f"canary-{secrets.token_hex(_CANARY_BYTES)}"
        self._files = tuple(Path(file).resolve() for file in files)
        try:
            self.reset()
        except BaseException:  # a file cannot be copied, or a signal ends the process
            self.remove()
            raise

    @property
    def folders(self) -> tuple[Path, Path, Path]:
        """The folders in which tools may write."""
        return self.work, self.home, self.temp

    def reset(self) -> None:
        """Restore the initial content, under the same paths."""
        for folder in (self.work, self.home, self.temp, self.outside):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for name in ("canary", "canary.txt", "canary.md", "canary.json", "canary.csv"):
            (self.outside / name).write_text(f'"{self.secret}"\n', encoding="utf-8")
        for name, text in SAMPLE_FILES.items():
            (self.work / name).write_text(text, encoding="utf-8")
        (self.work / "link.txt").symlink_to(self.canary)
        (self.work / "linked").symlink_to(self.outside)
        for file in self._files:
            self._copy(file)

    def _copy(self, file: Path) -> None:
        """Copy a file or folder of the user into the working folder. Raise ConfigError if that fails."""
        try:
            if file.is_dir():
                shutil.copytree(file, self.work / file.name, dirs_exist_ok=True)
            else:
                shutil.copy(file, self.work)
        except OSError as error:
            raise ConfigError(f"cannot copy {file}: {error.strerror}", hint="check files=…") from None

    def environment(self, source: Mapping[str, str], passed: Sequence[str]) -> dict[str, str]:
        """Return the environment of a child process: nothing secret, except the variables named by the user."""
        kept = {name: source[name] for name in (*_INHERITED, *passed) if name in source}
        return {
            **kept,
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def expand(self, value: JSON) -> JSON:
        """Replace the placeholders for the canary and its folder."""
        return expand_placeholders(value, str(self.canary), str(self.outside))

    def spares_parents(self, arguments: Object) -> bool:
        """Return False if a text is the path of a folder that contains this one, such as `/`: a tool might remove it."""
        texts = [
            variant
            for text in _texts(self.expand(arguments))
            for variant in (text, text.strip(), text.partition("\x00")[0], unquote(text).removeprefix("file://"))
        ]
        paths = (os.path.normpath(self.work / text) for text in texts)
        return not any(self.root.is_relative_to(path) for path in paths)

    def abbreviate(self, text: str) -> str:
        """Replace the paths of this folder in a message, so that equal runs have equal messages."""
        for path, name in ((self.canary, "${canary}"), (self.outside, "${folder}"), (self.work, "."), (self.home, "~")):
            text = text.replace(str(path), name)
        return text.replace(str(self.root), "${root}")

    def last_errors(self) -> str:
        """Return the end of the standard error of the child process. Return "" if it is empty."""
        try:
            with self.stderr.open("rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - _MAX_ERRORS))
                return stream.read().decode(errors="replace").strip()
        except OSError:
            return ""


def _texts(value: JSON) -> Iterator[str]:
    """Yield all strings of a value, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)


def safe_arguments(effect: Effect, protection: Protection, sandbox: ToolSandbox) -> Callable[[Object], bool]:
    """Return a function that rejects arguments with which an unprotected tool with effects could destroy files."""
    if protection == "landlock" or effect in ("pure", "read"):
        return lambda _: True
    return sandbox.spares_parents


def require_protection(settings: ToolTestSettings, available: Protection) -> Protection:
    """Raise ConfigError if tools with effects would run without the protection of the kernel, unless that is allowed."""
    if settings.include_writes and available != "landlock" and not settings.unprotected:
        missing = (
            "this system has no Landlock" if available == "hook" else "this server cannot be confined with Landlock"
        )
        raise ConfigError(
            f"--include-writes: {missing}, so that calls could change your files",
            hint="`toolwire test SOURCE --include-writes --unprotected` calls them anyway",
        )
    return available
