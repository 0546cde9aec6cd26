"""A fingerprint of the state that calls can change: variables of a module, defaults of functions, files of a folder.

Times and random identifiers are masked, so that writing the same record twice is not a change.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import date, datetime
from datetime import time as clock_time
from itertools import islice
from pathlib import Path
from typing import Any

# A fingerprint is made after every batch of calls: the limits bound its time for a tool with a large table or folder, and
# a change beyond them is not noticed. None is measured.
_MAX_DEPTH = 10
_MAX_VALUES = 50_000  # of all variables together
_MAX_FILES = 1000  # of a folder
_MAX_LINES = 10_000  # of a database, as SQL
_MAX_FILE = 16 * 1024 * 1024  # bytes; a larger file is compared by its size
_DAY = 86_400  # seconds; a float this close to the present is a time
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,64}\b")
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, staticmethod)


class FrozenState:
    """Converts values to text, with a limit on their number."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._remaining = _MAX_VALUES

    def freeze(self, value: Any, depth: int = 0) -> str:
        """Return a text that is equal for equal values, whatever the order of keys; times and ids are masked.

        Beyond the limits of size and depth, and inside itself, a value is `…`.
        """
        self._remaining -= 1
        if self._remaining < 0 or depth > _MAX_DEPTH or id(value) in self._open:
            return "…"
        if value is None or isinstance(value, (bool, int, complex, bytes)):
            return repr(value)
        if isinstance(value, str):
            return _mask_text(value)
        if isinstance(value, float):
            return "<time>" if abs(value - time.time()) < _DAY else repr(value)
        if isinstance(value, (datetime, date, clock_time)):
            return "<time>"
        if isinstance(value, _CODE):
            return "<code>"
        self._open.add(id(value))
        try:
            return self._freeze_object(value, depth)
        except Exception:  # noqa: BLE001  # user-defined objects may raise anything
            return f"<{type(value).__name__}>"
        finally:
            self._open.discard(id(value))

    def _freeze_object(self, value: Any, depth: int) -> str:
        """Return a text that is equal for equal states.

        Containers, databases and attributes are read; other objects are their repr without addresses.
        """
        name = type(value).__name__
        if isinstance(value, dict):
            items = sorted(
                f"{self.freeze(key, depth + 1)}: {self.freeze(inner, depth + 1)}" for key, inner in list(value.items())
            )
            return f"{name}{{{', '.join(items)}}}"
        if isinstance(value, (list, tuple, deque)):
            return f"{name}[{', '.join(self.freeze(item, depth + 1) for item in list(value))}]"
        if isinstance(value, (set, frozenset)):
            return f"{name}{{{', '.join(sorted(self.freeze(item, depth + 1) for item in list(value)))}}}"
        if isinstance(value, sqlite3.Connection):
            return _mask_text("\n".join(islice(value.iterdump(), _MAX_LINES)))
        attributes = dict(getattr(value, "__dict__", None) or {})
        for slot in getattr(type(value), "__slots__", None) or ():
            with suppress(AttributeError):
                attributes[slot] = getattr(value, slot)
        if attributes:
            return f"{name}({self._freeze_object(attributes, depth + 1)})"
        return _mask_text(_ADDRESS.sub("", repr(value)))


def _mask_text(text: str) -> str:
    return repr(_IDENTIFIER.sub("<id>", _TIMESTAMP.sub("<time>", text)))


def module_state(module: types.ModuleType, functions: Iterable[Callable[..., Any]]) -> str:
    """Return the fingerprint of the variables of a module, of its classes, and of the functions' own state."""
    frozen = FrozenState()
    parts = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                data = {
                    key: inner for key, inner in vars(value).items() if not key.startswith("__") and not callable(inner)
                }
                parts.append(f"{name}={frozen.freeze(data)}")
        elif type(value).__module__.partition(".")[0] != "toolwire":
            parts.append(f"{name}={frozen.freeze(value)}")
    for function in functions:
        parts.append(defaults_state(function, frozen))
        cells = getattr(function, "__closure__", None) or ()
        parts.append(frozen.freeze([cell.cell_contents for cell in cells]))
        parts.append(frozen.freeze(dict(getattr(function, "__dict__", {}))))
    return _hash("\n".join(parts))


def defaults_state(function: Callable[..., Any], frozen: FrozenState | None = None) -> str:
    """Return the default values of a function as text."""
    frozen = frozen or FrozenState()
    values = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
    return frozen.freeze(values)


def files_state(folders: Iterable[str]) -> dict[str, str]:
    """Return a hash of every file below the folders, by path. Databases are hashed by their rows."""
    return {str(path): _hash_file(path) for path in walk_files(folders)}


def walk_files(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        for parent, _, names in os.walk(folder):
            yield from (Path(parent, name) for name in sorted(names)[:_MAX_FILES])


def _hash_file(path: Path) -> str:
    """Return a hash of a file's content without timestamps and ids.

    Links and large files count with their size only.
    """
    try:
        size = path.lstat().st_size
        if path.is_symlink() or size > _MAX_FILE:
            return f"{size}"
        data = path.read_bytes()
        if data.startswith(b"SQLite format 3"):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                return _hash(_mask_text("\n".join(islice(database.iterdump(), _MAX_LINES))))
        return _hash(_mask_text(data.decode(errors="replace")))
    except (OSError, sqlite3.Error):
        return "unreadable"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
