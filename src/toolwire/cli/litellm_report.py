"""Print the report about a LiteLLM file: skipped models, and settings without an equivalent or with another effect."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, TextIO

from ..ir.terminal import neutralise_line
from .show import count_of, paint

if TYPE_CHECKING:
    from ..gateway.litellm.litellm_convert import LitellmImport

__all__ = ["print_report"]

_COLOURS = {"skipped": "red", "ignored": "yellow", "changed": "blue"}
_INDENT = 9  # characters


def print_report(name: str, imported: LitellmImport, stream: TextIO) -> None:
    """Print the number of models, and for each group of notes its meaning, the alternative and its locations."""
    from ..gateway.litellm.import_report import group_notes

    rows = group_notes(imported.notes)
    print(f"{name}: {count_of(len(imported.settings.models), 'model')}, {count_of(len(rows), 'note')}", file=stream)
    for row in rows:
        alternative = f" → {row.instead}" if row.instead else ""
        lines = [*_wrap(f"{row.meaning}{alternative}"), *(paint(line, "dim", stream) for line in _wrap(row.where))]
        print(f"{paint(row.kind, _COLOURS[row.kind], stream)}  {lines[0]}", file=stream)
        for line in lines[1:]:
            print(f"{' ' * len(row.kind)}  {line}", file=stream)
    print(file=stream, flush=True)


def _wrap(text: str) -> list[str]:
    width = max(shutil.get_terminal_size((120, 24)).columns - _INDENT, 40)
    return textwrap.wrap(neutralise_line(text), width, break_on_hyphens=False) or [""]
