"""The tools of several sources, and the index of them that a command searches.

Each tool has the server that it belongs to in an index. An index is a saved file, or is made in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ..._extras import install_command
from ...ir.errors import ConfigError, MissingExtra, ProtocolError
from ...ir.terminal import count_of
from ..sources.tool_source import SOURCE_HELP, add_source_options, read_declared, read_served, source_kind
from ..terminal.options import add_flag
from ..terminal.output import ProgressBar, print_note

if TYPE_CHECKING:
    import argparse

    from ...ir.tools import Tool
    from ...retrieve.index import ToolIndex
    from ...retrieve.vectors import Encoder


# Read the tools of several sources, each with the server that it belongs to in an index.
#
# github=https://api.githubcopilot.com/mcp/     the name before = is the server
# pets.yaml                                     otherwise the name of the file, the host or the command
# mcp.json                                      an mcpServers file: the names of its servers


GROUP_SOURCE_HELP = f"{SOURCE_HELP}, or a folder of JSON specifications"
_MAX_PROBLEMS = 5  # files of a folder that are reported one by one; a wrong folder has a problem in each file
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<source>.+)", re.DOTALL)


class ToolGroup(NamedTuple):
    """The tools of one server. Their names are unique."""

    server: str
    tools: tuple[Tool, ...]


def read_groups(sources: Sequence[str], arguments: argparse.Namespace) -> list[ToolGroup]:
    """Read all sources, and join those with the same server. Of several tools with one name the last is used.

    Raise ConfigError for a source without tools: more likely a mistake than the intention to remove all tools of a
    server.
    """
    by_server: dict[str, dict[str, Tool]] = {}
    replaced: list[str] = []
    for given in sources:
        read = list(read_source(given, arguments))
        if not read:
            raise ConfigError(f"{given} has no tools", hint=f"give {GROUP_SOURCE_HELP}")
        for server, tool in read:
            tools = by_server.setdefault(server, {})
            if tool.name in tools and tools[tool.name] != tool:
                replaced.append(tool.name)
            tools[tool.name] = tool
    if replaced:
        some = ", ".join(replaced[:3]) + (", …" if len(replaced) > 3 else "")
        print_note(f"{count_of(len(replaced), 'tool')} replaced by a later one with the same server and name: {some}")
    return [ToolGroup(server, tuple(tools.values())) for server, tools in by_server.items()]


def split_name(given: str) -> tuple[str, str]:
    """Split NAME=SOURCE. The name is empty if there is none; a file whose name contains = is a source."""
    match = None if Path(given).exists() else _NAMED.fullmatch(given)
    return ("", given) if match is None else (match["name"], match["source"])


def read_source(given: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Tool]]:
    """Yield (server, tool) for each tool of a folder, an index, an MCP server or a file.

    The server is the given name, else the name in the source, else a name made from the source.
    """
    name, source = split_name(given)
    if is_folder(source):
        yield from _read_folder(source, name)
        return
    if source.endswith(".index") and Path(source).is_file():
        yield from _read_index(source)
        return
    default = name or _default_name(source)
    if source_kind(source) == "mcp":
        for server, tool in read_served(source, arguments):
            yield name or server or default, tool
        return
    for tool in _read_file(source, arguments):
        yield name or tool.namespace or default, tool


def _read_file(source: str, arguments: argparse.Namespace) -> Sequence[Tool]:
    """Return the tools that a file declares, or those that it describes as API specifications.

    Raises `ConfigError` if it has neither.
    """
    try:
        return read_declared(source, arguments)
    except ConfigError:
        if source_kind(source) not in ("declarations", "recording") or not Path(source).is_file():
            raise
        from ...retrieve.api_specs import load_api_specs

        tools = load_api_specs(source).tools
        if not tools:
            raise
        return tools


def _read_index(file: str) -> Iterator[tuple[str, Tool]]:
    """Yield the tools of an index file."""
    require_numpy()
    from ...retrieve import ToolIndex

    for indexed in ToolIndex.load(file):
        yield indexed.server, indexed.tool


def is_folder(source: str) -> bool:
    """Return True for an existing folder. The empty text is none, although `Path` reads it as the current one."""
    return bool(source.strip()) and Path(source).is_dir()


def _read_folder(folder: str, name: str) -> Iterator[tuple[str, Tool]]:
    """Yield (server, tool) for the API specifications, tool lists and OpenAPI documents of a folder.

    Each file is a server. Files that fail are printed as notes.
    """
    from ...retrieve.api_specs import load_api_specs

    specs = load_api_specs(folder, readers=[_read_openapi])
    for problem in specs.problems[:_MAX_PROBLEMS]:
        print_note(f"skipped: {problem}")
    if len(specs.problems) > _MAX_PROBLEMS:
        print_note(f"skipped: {len(specs.problems) - _MAX_PROBLEMS} more")
    for file in specs.files:
        for tool in file.tools:
            yield f"{name}/{file.name}" if name else file.name, tool


def _read_openapi(path: Path, data: bytes) -> Iterable[Tool] | None:
    """Return the tools of an OpenAPI document; None for any other file."""
    from ...openapi import read_operations
    from ...openapi.document import looks_like_openapi, parse_document

    if path.suffix.lower() != ".json" or b'"openapi"' not in data:
        return None
    try:
        document = parse_document(data)
    except ProtocolError:
        return None
    return read_operations(document).tools if looks_like_openapi(document) else None


def _default_name(source: str) -> str:
    """Return the name of a file, the host of a URL, or the name of the program or package in a command."""
    if source == "-":
        return "stdin"
    if re.match(r"https?://", source):
        return urlsplit(source).hostname or source
    if Path(source).exists():
        return PurePath(source).stem
    from ...mcp.client.config import split_command

    words = [word for word in split_command(source) if not word.startswith("-")]
    return PurePath(words[-1].rpartition("/")[2] or words[-1]).stem


def require_numpy(user: str = "an index of tools") -> None:
    """Raise MissingExtra if numpy is not installed."""
    try:
        import numpy  # noqa: F401, ICN001
    except ImportError:
        raise MissingExtra(f"{user} requires numpy", hint=install_command("retrieve")) from None


INDEX_HELP = f"an index file (toolwire tools index), or {GROUP_SOURCE_HELP}"
_WORDS_ONLY = "or use --words-only"


def add_index_options(parser: Any) -> None:
    """Add the options of commands that open an index or make one."""
    add_flag(parser, "--words-only", "compare words only; needs no encoder")
    add_flag(parser, "--json", "print the result as JSON")
    add_source_options(parser)


def choose_encoder(arguments: argparse.Namespace) -> Encoder | None:
    """Return the encoder, or None with --words-only. Raises `MissingExtra` if numpy or the encoder is not installed."""
    require_numpy()
    if arguments.words_only:
        return None
    from ...retrieve.minilm import open_minilm

    try:
        return open_minilm()
    except MissingExtra as error:
        error.hint = f"{error.hint}, {_WORDS_ONLY}" if error.hint else _WORDS_ONLY
        raise


def open_index(source: str, arguments: argparse.Namespace) -> ToolIndex:
    """Load an index file, or index the tools of a source in memory."""
    require_numpy()
    from ...retrieve.section_file import is_index_file

    if source.endswith(".index") or is_index_file(source):
        return load_file(source, arguments)
    from ...retrieve.index import ToolIndex

    index = ToolIndex(encoder=choose_encoder(arguments))
    with ProgressBar("encoding") as bar:
        for group in read_groups([source], arguments):
            index.add(group.tools, server=group.server, progress=bar)
    return index


def load_file(path: str | Path, arguments: argparse.Namespace) -> ToolIndex:
    """Load an index file, with the encoder that it was made with."""
    from ...retrieve.index import ToolIndex
    from ...retrieve.index_file import read_index_info

    info = read_index_info(path)
    encoder = None if info.encoder is None else choose_encoder(arguments)
    return ToolIndex.load(path, encoder=encoder)
