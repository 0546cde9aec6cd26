"""Locations in `toolwire.toml`, in the notation of the file: `[models."gpt-4.1"] targets[0].weight`, and their lines."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, TypeAlias

__all__ = ["Path", "TomlLines", "toml_location"]

Path: TypeAlias = tuple[str | int, ...]

_is_bare_key = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_NAMED_TABLES = ("upstreams", "models", "keys", "tools")  # tables with one table per name
_SUBTABLES = ("capabilities", "emulate", "retrieve", "headers", "extra_body", "defaults")
_MAX_LINES = 100_000
_MAX_LINE = 2_000  # characters that are searched for a key


def toml_location(path: Path) -> str:
    """Return the table header and the key: `[server] port`, `[models.fast]`, `capabilities_file`."""
    length = _header_length(path)
    header = f"[{'.'.join(_quote_key(str(part)) for part in path[:length])}]" if length else ""
    key = ""
    for part in path[length:]:
        key += f"[{part}]" if isinstance(part, int) else f"{'.' if key else ''}{_quote_key(part)}"
    return f"{header} {key}".strip()


def _header_length(path: Path) -> int:
    """Return the number of parts that are in the header of the table."""
    if len(path) >= 2 and path[0] in _NAMED_TABLES:
        return 3 if len(path) > 3 and path[2] in _SUBTABLES else 2
    return 0 if path == ("capabilities_file",) else min(len(path), 1)


def _quote_key(name: str) -> str:
    return name if _is_bare_key(name) else json.dumps(name, ensure_ascii=False)


class TomlLines:
    """The lines of table headers and keys in a file, read once."""

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines()[:_MAX_LINES], 1):
            line = line[:_MAX_LINE].strip()
            if line.startswith("["):
                header = _key_path(line)
                table = table if header is None else header
                reached = header
            else:
                key, separator, _ = line.partition("=")
                assigned = _key_path(f"{key} = 0") if separator and not line.startswith("#") else None
                reached = None if assigned is None else (*table, *assigned)
            if reached is not None:
                self._lines.setdefault(reached, number)

    def find(self, path: Path) -> int | None:
        """Return the line of the longest part of `path` that has a header or a key of its own, or None.

        A value inside a list or an inline table has the line of its key.
        """
        names = tuple(part for part in path if isinstance(part, str))
        found = (self._lines.get(names[:length]) for length in range(len(names), 0, -1))
        return next((line for line in found if line is not None), None)


def _key_path(line: str) -> tuple[str, ...] | None:
    """Return the names of a header or an assignment; None if the line is neither."""
    try:
        value: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            value = value[0]
            continue
        (name,) = list(value)[:1]
        path.append(name)
        value = value[name]
    return tuple(path)
