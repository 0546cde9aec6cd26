"""Read the tools of several sources, each with the server that it belongs to in an index.

github=https://api.githubcopilot.com/mcp/     the name before = is the server
pets.yaml                                     otherwise the name of the file, the host or the command
mcp.json                                      an mcpServers file: the names of its servers
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ..ir.terminal import neutralise_line
from .show import count_of, paint
from .tool_source import read_declared, read_served, source_kind

if TYPE_CHECKING:
    import argparse

    from ..ir.tools import Tool

__all__ = ["NAMED_SOURCE_HELP", "ToolGroup", "print_note", "read_groups", "split_name"]

NAMED_SOURCE_HELP = "a source of tools, or NAME=SOURCE for the name of its server"
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<source>.+)", re.DOTALL)


class ToolGroup(NamedTuple):
    """The tools of one server. Their names are unique."""

    server: str
    tools: tuple[Tool, ...]


def read_groups(sources: Sequence[str], arguments: argparse.Namespace) -> list[ToolGroup]:
    """Read all sources, and join those with the same server. Of several tools with one name the last is used."""
    found: dict[str, dict[str, Tool]] = {}
    replaced: list[str] = []
    for given in sources:
        for server, tool in _read_source(given, arguments):
            tools = found.setdefault(server, {})
            if tool.name in tools and tools[tool.name] != tool:
                replaced.append(tool.name)
            tools[tool.name] = tool
    if replaced:
        some = ", ".join(replaced[:3]) + (", …" if len(replaced) > 3 else "")
        print_note(f"{count_of(len(replaced), 'tool')} replaced by a later one with the same server and name: {some}")
    return [ToolGroup(server, tuple(tools.values())) for server, tools in found.items()]


def split_name(given: str) -> tuple[str, str]:
    """Split NAME=SOURCE. The name is empty if there is none; a file whose name contains = is a source."""
    match = None if Path(given).exists() else _NAMED.fullmatch(given)
    return ("", given) if match is None else (match["name"], match["source"])


def _read_source(given: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Tool]]:
    name, source = split_name(given)
    default = name or _default_name(source)
    if source_kind(source) == "mcp":
        for server, tool in read_served(source, arguments):
            yield name or server or default, tool
        return
    for tool in read_declared(source, arguments):
        yield name or tool.namespace or default, tool


def _default_name(source: str) -> str:
    """Return the name of a file, the host of a URL, or the name of the program or package in a command."""
    if source == "-":
        return "stdin"
    if re.match(r"https?://", source):
        return urlsplit(source).hostname or source
    if Path(source).exists():
        return PurePath(source).stem
    from ..mcp.client.config import split_command

    words = [word for word in split_command(source) if not word.startswith("-")]
    return PurePath(words[-1].rpartition("/")[2] or words[-1]).stem


def print_note(text: str) -> None:
    """Print a note about input on standard error."""
    print(paint(neutralise_line(text), "yellow", sys.stderr), file=sys.stderr)
