"""Describe the difference between two settings in one line, for the log record of a reload.

Separate because the text is used by the server, but depends on the settings only.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.terminal import count_of
from .settings import Row, Settings

__all__ = ["describe_change"]

_TABLES = {"models": "model", "keys": "key", "upstreams": "upstream", "tools": "tool table"}
_ROWS = ("limits", "capabilities_file", "server")
_FIXED_ROWS = ("state", "responses", "log", "trace")  # read at the start only
_FIXED_SERVER_FIELDS = ("host", "port", "workers", "drain", "heartbeat")
_FIXED_LIMITS = ("requests", "queue", "connections")
_MAX_NAMES = 5
_MAX_NAME_LENGTH = 64


def describe_change(old: Settings, new: Settings) -> str:
    """Return the number of models, keys and upstreams with the changed names, and the tables that need a restart."""
    counts = [count_of(len(getattr(new, table)), noun) for table, noun in _TABLES.items() if getattr(new, table)]
    changes = [
        change
        for table, noun in _TABLES.items()
        for change in _describe_table(getattr(old, table), getattr(new, table), noun)
    ]
    changes += [f"changed [{row}]" for row in _ROWS if getattr(old, row) != getattr(new, row)]
    if old.keys and not new.keys:
        changes.append("without a key, every request is rejected until a key is added or the gateway restarts")
    text = f"{', '.join(counts) or 'no models and keys'}; {'; '.join(changes) or 'nothing changed'}"
    fixed = [f"[{row}]" for row in _FIXED_ROWS if getattr(old, row) != getattr(new, row)]
    fixed += [
        f"server.{name}" for name in _FIXED_SERVER_FIELDS if getattr(old.server, name) != getattr(new.server, name)
    ]
    fixed += [f"limits.{name}" for name in _FIXED_LIMITS if getattr(old.limits, name) != getattr(new.limits, name)]
    return f"{text}; restart the gateway to apply {', '.join(fixed)}" if fixed else text


def _describe_table(old: Mapping[str, Row], new: Mapping[str, Row], noun: str) -> list[str]:
    names = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }
    return [f"{verb} {noun} {_join_names(found)}" for verb, found in names.items() if found]


def _join_names(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMES
    shown = ", ".join(repr(name[:_MAX_NAME_LENGTH]) for name in names[:_MAX_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown
