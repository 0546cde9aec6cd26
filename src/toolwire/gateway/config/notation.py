"""The notation of `toolwire.toml`: locations of values with their lines, and settings written as text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any, TypeAlias

from msgspec import NODEFAULT, to_builtins
from msgspec.structs import fields

from .settings import Row, Settings

# Locations in `toolwire.toml`, in the notation of the file: `[models."gpt-4.1"] targets[0].weight`, and their lines.


SettingsPath: TypeAlias = tuple[str | int, ...]

_is_bare_key = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_NAMED_TABLES = ("upstreams", "models", "keys", "tools", "hosted")  # tables with one table per name
_SUBTABLES = ("capabilities", "emulate", "retrieve", "headers", "extra_body", "defaults")
_MAX_LINES = 100_000  # that are searched for the position of an error
_MAX_LINE = 2_000  # characters that are searched for a key


def toml_location(path: SettingsPath) -> str:
    """Return the table header and the key: `[server] port`, `[models.fast]`, `capabilities_file`."""
    length = _header_length(path)
    header = f"[{'.'.join(_quote_key(str(part)) for part in path[:length])}]" if length else ""
    key = ""
    for part in path[length:]:
        key += f"[{part}]" if isinstance(part, int) else f"{'.' if key else ''}{_quote_key(part)}"
    return f"{header} {key}".strip()


def _header_length(path: SettingsPath) -> int:
    """Return the number of parts that are in the header of the table."""
    if len(path) >= 2 and path[0] in _NAMED_TABLES:
        return 3 if len(path) > 3 and path[2] in _SUBTABLES else 2
    return 0 if path == ("capabilities_file",) else min(len(path), 1)


def _quote_key(name: str) -> str:
    return name if _is_bare_key(name) else json.dumps(name, ensure_ascii=False)


class TomlLines:
    """The lines of table headers and keys in a file, read once."""

    def __init__(self, text: str) -> None:
        """Find the first line of every header and key. A line inside a text of several lines may be taken for a key."""
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

    def find(self, path: SettingsPath) -> int | None:
        """Return the line of the longest part of `path` that has a header or a key of its own, or None.

        A value inside a list or an inline table has the line of its key.
        """
        names = tuple(part for part in path if isinstance(part, str))
        found = (self._lines.get(names[:length]) for length in range(len(names), 0, -1))
        return next((line for line in found if line is not None), None)


def _key_path(line: str) -> tuple[str, ...] | None:
    """Return the names of a header or an assignment, or None if the line is neither.

    The line is parsed as a TOML file of its own, so its value has one name at each level.
    """
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


# Write settings as the text of a `toolwire.toml`. Settings with their default values are omitted.


_SECTIONS = ("server", "limits", "state", "responses", "log", "trace")
_is_control = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_COMMENT_WIDTH = 118  # characters, so that a line with `# ` has 120


def format_settings(settings: Settings) -> str:
    """Return the tables of all rows that differ from the defaults."""
    tables = [
        format_table((section,), row) for section in _SECTIONS if _changed_fields(row := getattr(settings, section))
    ]
    for name in ("upstreams", "models", "keys"):
        rows: Mapping[str, Row] = getattr(settings, name)
        tables += [format_table((name, key), row) for key, row in rows.items()]
    return "\n".join(tables)


def format_table(path: tuple[str, ...], row: Row, comments: Mapping[str, str] | None = None) -> str:
    """Return a table with its header. `comments` are written after their settings."""
    lines = [f"[{'.'.join(map(_format_key, path))}]"]
    for name, value in _changed_fields(row).items():
        comment = (comments or {}).get(name, "")
        lines.append(f"{name} = {_format_value(value)}{f'  # {comment}' if comment else ''}")
    return "\n".join([*lines, ""])


def comment_lines(texts: Iterable[str]) -> str:
    """Return wrapped comments. Control characters are removed, because they would end the comment."""
    lines = []
    for text in texts:
        plain = _is_control.sub(" ", text)
        lines += wrap(plain, _COMMENT_WIDTH, subsequent_indent="  ", break_on_hyphens=False) or [""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _changed_fields(row: Row) -> dict[str, Any]:
    """Return the settings of a row that differ from their defaults, as basic types."""
    changed = {}
    for field in fields(row):
        value = getattr(row, field.name)
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if value != default:
            changed[field.encode_name] = _simplify(value)
    return changed


def _simplify(value: Any) -> Any:
    """Return a value of basic types; rows inside have only their changed settings."""
    if isinstance(value, Row):
        return _changed_fields(value)
    if isinstance(value, (tuple, list)):
        return [_simplify(item) for item in value]
    return to_builtins(value)


def _format_key(name: str) -> str:
    return name if _is_bare_key(name) else _format_text(name)


def _format_text(text: str) -> str:
    """Return a basic string of TOML: a JSON string with DEL escaped and without pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _format_value(value: Any) -> str:
    """Write a value in TOML. A whole number of seconds or bytes is written without a fraction, a table inline."""
    if isinstance(value, str):
        return _format_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_format_key(str(key))} = {_format_value(item)}" for key, item in value.items() if item is not None
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return str(value)
