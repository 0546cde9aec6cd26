"""Open an index of tools for a command: a saved file, or the tools of a source, which are indexed in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import MissingExtra
from .progress_bar import ProgressBar
from .tool_source import add_source_options
from .tools_groups import GROUP_SOURCE_HELP, read_groups, require_numpy

if TYPE_CHECKING:
    import argparse

    from ..retrieve.index import ToolIndex
    from ..retrieve.vectors import Encoder

__all__ = ["INDEX_HELP", "add_index_options", "choose_encoder", "load_file", "open_index", "parse_count"]

INDEX_HELP = f"an index file (toolwire tools index), or {GROUP_SOURCE_HELP}"
_WORDS_ONLY = "or use --words-only"


def add_index_options(parser: Any) -> None:
    """Add the options of commands that open an index or make one."""
    parser.add_argument("--words-only", action="store_true", help="compare words only; needs no encoder")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_source_options(parser)


def choose_encoder(arguments: argparse.Namespace) -> Encoder | None:
    """Return the encoder, or None with --words-only. Raise MissingExtra if it is not installed."""
    require_numpy()
    if arguments.words_only:
        return None
    from ..retrieve.minilm import open_minilm

    try:
        return open_minilm()
    except MissingExtra as error:
        error.hint = f"{error.hint}, {_WORDS_ONLY}" if error.hint else _WORDS_ONLY
        raise


def open_index(source: str, arguments: argparse.Namespace) -> ToolIndex:
    """Load an index file, or index the tools of a source in memory."""
    require_numpy()
    from ..retrieve.section_file import is_index_file

    if source.endswith(".index") or is_index_file(source):
        return load_file(source, arguments)
    from ..retrieve.index import ToolIndex

    index = ToolIndex(encoder=choose_encoder(arguments))
    with ProgressBar("encoding") as bar:
        for group in read_groups([source], arguments):
            index.add(group.tools, server=group.server, progress=bar)
    return index


def load_file(path: str | Path, arguments: argparse.Namespace) -> ToolIndex:
    """Load an index file, with the encoder that it was made with."""
    from ..retrieve.index import ToolIndex
    from ..retrieve.index_file import read_index_info

    info = read_index_info(path)
    encoder = None if info.encoder is None else choose_encoder(arguments)
    return ToolIndex.load(path, encoder=encoder)


def parse_count(text: str) -> int:
    """Parse a positive number for argparse."""
    import argparse

    if not text.isdecimal() or int(text[:18]) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text[:18])
