"""Open the tools of a mining run: by name, with their data files, or from a file with settings.

calculator,calendar,convert,search=passages.txt,qa=answers.tsv,translate=entries.tsv
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.value import Value
from .corpus import read_texts
from .mining_tool import (
    MiningTool,
    calculator_tool,
    calendar_tool,
    convert_tool,
    qa_tool,
    search_tool,
    translate_tool,
)

__all__ = ["ListedTool", "open_tools", "read_tool_list"]

_KINDS = ("calculator", "calendar", "convert", "search", "qa", "translate")
_HINT = "use calculator, calendar, convert, search=FILE, qa=FILE or translate=FILE"


class ListedTool(Value, frozen=True, forbid_unknown_fields=True):
    """A tool of a list: its kind, its data file, and settings that replace those of the paper."""

    kind: str
    file: str | None = None
    today: str | None = None
    call_probability: float | None = None
    positions: int | None = None
    samples: int | None = None
    threshold: float | None = None


def read_tool_list(text: str) -> list[ListedTool]:
    """Read names separated by commas, or the path of a JSON file with a list of entries."""
    path = Path(text)
    if path.suffix == ".json":
        try:
            entries = msgspec.json.decode(path.read_bytes(), type=list[ListedTool])
        except OSError as error:
            raise ConfigError(f"cannot read {text}: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{text}: {error}", hint='write a list such as [{"kind": "calculator"}]') from None
        folder = path.parent
        entries = [msgspec.structs.replace(one, file=str(folder / one.file)) if one.file else one for one in entries]
    else:
        parts = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        entries = [ListedTool(kind, file or None) for kind, _, file in parts]
    for one in entries:
        _check(one)
    if not entries:
        raise ConfigError("there is no tool", hint=_HINT)
    return entries


def open_tools(entries: list[ListedTool]) -> list[MiningTool]:
    """Open the tools of a list."""
    return [_open(one) for one in entries]


def _check(entry: ListedTool) -> None:
    if entry.kind not in _KINDS:
        raise ConfigError(f"unknown tool {entry.kind!r}", hint=_HINT)
    needs_file = entry.kind in ("search", "qa", "translate")
    if needs_file != (entry.file is not None):
        message = "needs a file" if needs_file else "has no file"
        raise ConfigError(f"the tool {entry.kind} {message}", hint=_HINT)


def _open(entry: ListedTool) -> MiningTool:
    names = ("call_probability", "positions", "samples", "threshold")
    settings = {name: getattr(entry, name) for name in names if getattr(entry, name) is not None}
    if entry.kind == "calendar":
        return calendar_tool(entry.today, **settings)
    if entry.kind in _WITH_FILE:
        make, read = _WITH_FILE[entry.kind]
        return make(read(entry.file or ""), **settings)
    return calculator_tool(**settings) if entry.kind == "calculator" else convert_tool(**settings)


def _read_passages(file: str) -> list[str]:
    return [one.text for one in read_texts(file)]


def _read_pairs(file: str) -> Mapping[str, str]:
    """Read two columns separated by a tab."""
    pairs: dict[str, str] = {}
    for number, one in enumerate(read_texts(file), 1):
        left, tab, right = one.text.partition("\t")
        if not tab or not left.strip() or not right.strip():
            raise ConfigError(f"{file}, entry {number} has no two columns", hint="separate two texts by a tab")
        pairs[left.strip()] = right.strip()
    return pairs


_WITH_FILE: dict[str, tuple[Callable[..., MiningTool], Callable[[str], Any]]] = {
    "search": (search_tool, _read_passages),
    "qa": (qa_tool, _read_pairs),
    "translate": (translate_tool, _read_pairs),
}
