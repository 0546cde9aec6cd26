"""Sources of training examples: files in a training format, traces, and folders of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..ir.errors import ConfigError, ToolwireError
from .example_files import RejectedExample, read_examples
from .examples import Example
from .trace_examples import conversation_digests, examples_of_trace

__all__ = ["collect_examples", "list_files"]

_SUFFIXES = frozenset({".json", ".jsonl"})
_MAX_FILES = 1_000_000


def collect_examples(
    sources: Iterable[str | Path],
    format: str | None = None,  # noqa: A002
    *,
    include_failed: bool = False,
    on_rejected: Callable[[RejectedExample], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Example]:
    """Yield the examples of files and folders, in the order of their names.

    A file is a trace of toolwire, or has rows of a training format; `format` is that of rows, None detects it. A gateway
    records a conversation again with each request, so a trace that another one continues is left out. `on_rejected`
    receives the conversations that cannot be used; without it, they are left out, except that an invalid row raises.
    `progress` receives the number of files that were read, and of all files.
    """
    reject = on_rejected or _ignore
    files = [file for source in sources for file in list_files(Path(source))]
    traces = {file for file in files if is_trace(file)}
    continued = _continued(sorted(traces), include_failed)
    for number, file in enumerate(files):
        if progress is not None:
            progress(number, len(files))
        if file not in traces:
            yield from read_examples(file, format, on_rejected=on_rejected)
            continue
        for one in _read_trace(file, include_failed):
            if isinstance(one, RejectedExample):
                reject(one)
            elif conversation_digests(one)[-1] in continued:
                reject(RejectedExample(one.source, "part of a longer conversation", "another trace continues it"))
            else:
                yield one


def _ignore(rejected: RejectedExample) -> None:
    """Leave out a conversation that cannot be used."""


def list_files(path: Path) -> list[Path]:
    """Return a file, or the JSON files of a folder and its subfolders; ConfigError if there are none."""
    if not path.is_dir():
        if not path.is_file():
            raise ConfigError(f"{path} does not exist", hint="give a file or a folder of traces or examples")
        return [path]
    found = sorted(file for file in path.rglob("*") if _is_source(file))
    if not found:
        raise ConfigError(f"{path} has no .jsonl or .json files", hint="give a file or a folder of traces or examples")
    if len(found) > _MAX_FILES:
        raise ConfigError(f"{path} has more than {_MAX_FILES} files", hint="give a part of them")
    return found


def _is_source(file: Path) -> bool:
    return file.suffix in _SUFFIXES and not file.name.endswith(".manifest.json") and file.is_file()


def is_trace(file: Path) -> bool:
    """Return whether a file starts with the header of a trace."""
    try:
        with file.open("rb") as stream:
            return b'"toolwire_trace"' in stream.read(256)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _read_trace(file: Path, include_failed: bool) -> Iterator[Example | RejectedExample]:
    try:
        yield from examples_of_trace(file, include_failed=include_failed)
    except ToolwireError as error:
        yield RejectedExample(file.name, "unreadable recording", str(error))


def _continued(traces: Iterable[Path], include_failed: bool) -> set[bytes]:
    """Return the digests of all conversations that a longer one in another trace, or in the same one, starts with."""
    found: set[bytes] = set()
    for file in traces:
        for one in _read_trace(file, include_failed):
            if isinstance(one, Example):
                found.update(conversation_digests(one)[:-1])
    return found
