"""Write settings as the text of a `toolwire.toml`. Settings with their default values are omitted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

from msgspec import NODEFAULT, to_builtins
from msgspec.structs import fields

from .settings import Row, Settings

__all__ = ["comment_lines", "format_settings", "format_table"]

_SECTIONS = ("server", "limits", "state", "responses", "log", "trace")
_is_bare_key = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_is_control = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_COMMENT_WIDTH = 118  # characters


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
    """Return a basic string of TOML: that of JSON, with DEL escaped and without pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _format_value(value: Any) -> str:
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
