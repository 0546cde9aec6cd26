"""`toolwire models update FILE|URL`: show the differences of newer rows, and use them if their hash is confirmed."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError
from ..ir.terminal import count_of, neutralise_line
from ..net.model.saved_rows import (
    fetch_rows,
    load_saved_rows,
    parse_rows,
    read_rows_file,
    revert_rows,
    rows_file,
    save_rows,
)
from ..wire.models.row_update import RowChange, RowUpdate, compare_rows
from .terminal.output import json_text, paint, print_note

_is_hash = re.compile(r"[0-9a-f]{64}").fullmatch
_MAX_SHOWN = 300  # characters of a value in a line; JSON has the whole text


def update_rows(source: str | None, expected: str | None, *, revert: bool, as_json: bool) -> int:
    """Show the differences, and use the rows if `expected` is the document's SHA-256. Return 1 if they are not used.

    Raise ConfigError if the document cannot be read or used, or has another hash.
    """
    file = rows_file(os.environ)
    if file is None:
        raise ConfigError("there is no folder for the rows", hint="set HOME or XDG_STATE_HOME")
    if revert:
        return _revert(file, as_json=as_json)
    if source is None:
        raise ConfigError("update needs a file or a URL", hint="such as: toolwire models update rows.json")
    if expected is not None and not _is_hash(expected := expected.lower()):
        raise ConfigError("--sha256 must be 64 hexadecimal digits")
    is_url = "://" in source
    data = asyncio.run(fetch_rows(source, os.environ)) if is_url else read_rows_file(Path(source))
    found = sha256(data).hexdigest()
    if expected not in (None, found):
        raise ConfigError(f"the document has the hash {found}, not {expected}", hint="check where it comes from")
    update = parse_rows(data)
    changes = list(compare_rows(load_saved_rows(file), update))
    if expected is not None:
        save_rows(file, data)
    _report(changes, update, found, source, is_used=expected is not None, as_json=as_json)
    return 0 if expected is not None else 1


def _revert(file: Path, *, as_json: bool) -> int:
    before: RowUpdate | None = None
    with suppress(ConfigError):  # a file that is not usable is a reason to revert
        before = load_saved_rows(file)
    after = revert_rows(file)
    changes = list(compare_rows(before, after))
    if as_json:
        print(json_text({"used": True, "changes": [change._asdict() for change in changes]}))
        return 0
    _print_changes(changes)
    print_note(f"reverted: {'the built-in rows' if after is None else f'the rows of {after.date}'} are in use", None)
    return 0


def _report(
    changes: list[RowChange], update: RowUpdate, found: str, source: str, *, is_used: bool, as_json: bool
) -> None:
    if as_json:
        document: dict[str, Any] = {"used": is_used, "sha256": found, "date": update.date}
        print(json_text({**document, "changes": [change._asdict() for change in changes]}))
        return
    _print_changes(changes)
    print_note(f"{count_of(len(changes), 'difference')}; rows of {update.date}; SHA-256 {found}", None)
    if is_used:
        print_note("in use from now on; toolwire models update --revert goes back", None)
    else:
        print_note(f"nothing is changed yet: toolwire models update {shlex.quote(source)} --sha256 {found}", None)


def _print_changes(changes: list[RowChange]) -> None:
    for change in changes:
        warning = paint("  (decides where keys are sent)", "yellow") if change.moves_keys else ""
        print(neutralise_line(f"{change.row}: {change.field}") + warning)
        for sign, text, colour in (("-", change.before, "red"), ("+", change.after, "green")):
            if text:
                shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
                print(paint(neutralise_line(f"  {sign} {shown}"), colour))
