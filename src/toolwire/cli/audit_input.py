"""Read the input of `toolwire audit` and sort it by kind: tools, requests, MCP server lists, Python source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from .tool_documents import ToolDocuments, parse_file, read_bytes
from .tool_source import read_declared, source_kind
from .tools_file import defines_tools

if TYPE_CHECKING:
    import argparse

    from ..audit.config_rules import ServerEntry

__all__ = ["AuditInput", "load", "read_all"]

_SERVERS = (
    "{file}: the servers were not started, so their tools were not audited; audit one with "
    'toolwire audit "COMMAND" or toolwire audit URL'
)


class AuditInput(ToolDocuments):
    """The inputs by kind, each with its location."""

    def __init__(self) -> None:
        super().__init__()
        self.configs: list[tuple[str, list[ServerEntry]]] = []  # (file, MCP servers)
        self.sources: list[tuple[str, str]] = []  # (file, Python source)

    def add(self, source: str, arguments: argparse.Namespace) -> None:
        """Add a source of tools; a Python file also as source code, and the servers of a file without starting them."""
        from ..audit.findings import SourceLocation

        kind = source_kind(source)
        if kind == "functions":
            self._add_python(source, arguments)
        elif kind == "mcp" and Path(source).is_file():
            self._add_servers(source)
        elif kind in ("mcp", "openapi"):
            self.add_tools(SourceLocation(source), read_declared(source, arguments))
        else:
            self.add_file(source, read_bytes(source))

    def add_source_code(self, file: str) -> str:
        """Add Python source, which is not executed; return its text."""
        text = read_bytes(file).decode("utf-8", "replace")
        self.sources.append((file, text))
        return text

    def _add_python(self, file: str, arguments: argparse.Namespace) -> None:
        """Add a Python file as source code, and its functions if it is a file of tools: only then it is imported."""
        from ..audit.findings import SourceLocation

        if not defines_tools(self.add_source_code(file)):
            return
        try:
            self.add_tools(SourceLocation(file), read_declared(file, arguments))
        except ConfigError as error:
            self.notes.append(f"{error.message}; only its source code was audited")

    def _add_servers(self, file: str) -> None:
        from ..audit.config_rules import find_servers

        self.configs.append((file, find_servers(parse_file(file, read_bytes(file))) or []))
        self.notes.append(_SERVERS.format(file=file))


def read_all(sources: Sequence[str], arguments: argparse.Namespace) -> AuditInput:
    """Read all sources; for a folder, the Python source in it, which is not imported."""
    given = AuditInput()
    for source in sources:
        folder = Path(source)
        if not folder.is_dir():
            given.add(source, arguments)
            continue
        inside = sorted(str(one) for one in folder.rglob("*.py") if one.is_file())
        if not inside:
            raise ConfigError(f"no Python source in {source}", hint="name the files with tools or requests in it")
        for one in inside:
            given.add_source_code(one)
    return given


def load(file: str) -> Any:
    return parse_file(file, read_bytes(file))
