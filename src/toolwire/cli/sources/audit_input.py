"""Sort the sources of an audit by kind, because each kind has its own rules, and search folders for them.

Nothing in a folder is imported or started. Python source is parsed for code rules and for literal declarations of tools.
A file of JSON, TOML or YAML counts if it is a list of tools, or a list of MCP servers.
"""

from __future__ import annotations

import argparse
import inspect
import os
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError, ToolwireError
from ...ir.terminal import count_of
from .documents import ToolDocuments, decode_declarations, parse_file, read_bytes
from .targets import defines_tools, load_tools
from .tool_source import read_declared, source_kind

if TYPE_CHECKING:
    from types import ModuleType

    from ...audit.config_rules import ServerEntry
    from ...audit.findings import SourceLocation
    from ...ir.tools import Tool


_SERVERS = (
    "{file}: the servers were not started, so their tools were not audited; audit one with "
    'toolwire audit "COMMAND" or toolwire audit URL'
)
_DOCUMENTS = (".json", ".toml", ".yaml", ".yml")
_MAX_BYTES = 1_000_000  # of a file in a folder; the declarations of 128 tools have about 100 KB, and a module of 40,000 lines 1 MB
_MAX_DOCUMENTS = 2_000  # in a folder; more are data, and reading them takes longer than the audit
_MAX_NODES = 200_000  # values of a document; aliases in YAML can repeat a value without end
_MAX_DEPTH = 100  # levels of a document in YAML, as for OpenAPI
_MAX_NOTES = 10  # notes on declarations that are not literal; the others are counted
# folders with the code of others, or with files that programs write
_SKIPPED_FOLDERS = frozenset(
    "__pycache__ node_modules site-packages .git .hg .tox .nox .venv .mypy_cache .pytest_cache .ruff_cache".split()
)


class AuditInput(ToolDocuments):
    """The inputs by kind, each with its location."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[tuple[list[Tool], list[SourceLocation]]] = []  # lists in files, each audited on its own
        self.configs: list[tuple[str, list[ServerEntry]]] = []  # (file, MCP servers)
        self.sources: list[tuple[str, str]] = []  # (file, Python source)
        self.unreadable: list[tuple[SourceLocation, str, str]] = []  # location, name and problem of a tool
        self._computed: list[str] = []  # notes on declarations that are not literal

    def tools(self) -> tuple[Tool, ...]:
        """Return each tool once, even if several requests declare it."""
        return (*(tool for tools, _ in self.groups for tool in tools), *super().tools())

    def tool_lists(self) -> list[Sequence[Tool]]:
        """Return the tools that are declared together."""
        return [*(tools for tools, _ in self.groups), *super().tool_lists()]

    def all_notes(self) -> tuple[str, ...]:
        """Return the notes, and those on declarations that are not literal, which are bounded."""
        more = len(self._computed) - _MAX_NOTES
        rest = [f"{count_of(more, 'other declaration')} with computed values not audited"] if more > 0 else []
        return (*self.notes, *self._computed[:_MAX_NOTES], *rest)

    def add(self, source: str, arguments: argparse.Namespace) -> None:
        """Add a source of tools by its kind.

        A Python file is also added as source code; the servers of an mcpServers file are not started.
        """
        from ...audit.findings import SourceLocation

        if self._add_list(source):
            return
        kind = source_kind(source)
        if kind == "functions":
            self._add_python(source)
        elif kind == "mcp" and Path(source).is_file():
            self._add_tools_or_servers(source, parse_file(source, read_bytes(source)))
        elif kind in ("mcp", "openapi"):
            self.add_tools(SourceLocation(source), read_declared(source, arguments))
        else:
            self.add_file(source, read_bytes(source))

    def _add_list(self, file: str) -> bool:
        """Add a list of tools or servers in TOML or YAML; return False for any other source, such as OpenAPI."""
        if not file.lower().endswith(_DOCUMENTS[1:]) or not Path(file).is_file():
            return False
        data = read_bytes(file)
        try:
            return len(data) <= _MAX_BYTES and self._add_tools_or_servers(file, _parse_data(file, data))
        except ToolwireError:
            if file.lower().endswith(".toml"):
                raise
            return False  # the reader of OpenAPI documents has larger limits, and reports the error

    def add_folder(self, folder: str) -> None:
        """Add the Python source, the lists of tools and the MCP configurations in a folder.

        Documents without either are counted in a note. Raises `ConfigError` for a folder with nothing to audit.
        """
        skipped: Counter[str] = Counter()
        count = self._count_found()
        large = documents = 0
        for file in _files_in(folder):
            if file.endswith(".py") and Path(file).stat().st_size > _MAX_BYTES:
                large += 1
            elif file.endswith(".py"):
                self._add_source_code(file)
            elif file.lower().endswith(_DOCUMENTS):
                documents += 1
                reason = self._add_document_in_folder(file) if documents <= _MAX_DOCUMENTS else "beyond the limit"
                skipped.update([reason] if reason else ())
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(skipped.items()))
        if reasons:
            self.notes.append(f"{folder}: JSON, TOML and YAML files not audited: {reasons}")
        if large:
            self.notes.append(f"{folder}: Python files not audited: {large} above {_MAX_BYTES:,} bytes")
        if count == self._count_found():
            raise ConfigError(
                f"no Python source, list of tools or MCP configuration in {folder}",
                hint="name the files with tools or requests in it",
            )

    def _count_found(self) -> int:
        return len(self.sources) + len(self.configs) + len(self.groups) + len(self.unreadable)

    def _add_document_in_folder(self, file: str) -> str:
        """Add a list of tools or servers; return the reason if the file is skipped."""
        try:
            if Path(file).stat().st_size > _MAX_BYTES:
                return f"above {_MAX_BYTES:,} bytes"
            document = _parse_data(file, read_bytes(file))
            if not self._add_tools_or_servers(file, document):
                return "without tools or servers"
        except (ToolwireError, OSError):
            return "unreadable"
        return ""

    def _add_tools_or_servers(self, file: str, document: Any) -> bool:
        """Add a document that is a list of tools or of MCP servers; return False for any other document."""
        from ...audit.config_rules import find_servers
        from ...audit.declarations import is_tool_list
        from ...audit.findings import SourceLocation

        servers = find_servers(document)
        if servers is not None:
            self.configs.append((file, servers))
            self.notes.append(_SERVERS.format(file=file))
            return True
        if not is_tool_list(document) or not _is_bounded(document):
            return False
        self._add_group([(SourceLocation(file), "", document)])
        return True

    def _add_source_code(self, file: str) -> str:
        """Add Python source with its literal declarations; return its text. It is not executed."""
        from ...audit.declarations import find_literal_tools
        from ...audit.findings import SourceLocation

        text = read_bytes(file).decode("utf-8", "replace")
        self.sources.append((file, text))
        for group in find_literal_tools(text):
            self._computed += [
                f"{file}:{one.line}: {f'tool {one.name!r}' if one.name else 'a tool'} not audited: {one.problem}"
                for one in group
                if one.problem
            ]
            self._add_group(
                [(SourceLocation(file, one.line), one.name, one.document) for one in group if not one.problem]
            )
        return text

    def _add_group(self, declared: Sequence[tuple[SourceLocation, str, Any]]) -> None:
        """Decode (location, name, document) of declarations of one list; an invalid one becomes unreadable."""
        from ...bridge.translation.detection import detect
        from ...ir.text import to_bytes

        tools: list[Tool] = []
        places: list[SourceLocation] = []
        for location, name, document in declared:
            try:
                to_bytes(document)  # TOML, YAML and Python have values that no request can contain, such as NaN
                listed = document if type(document) is list or "tools" in document else [document]
                found = decode_declarations(detect(listed).wire, listed)
            except ToolwireError as error:
                self.unreadable.append((location, name, str(error)))
            else:
                tools += found
                places += [location] * len(found)
        if tools:
            self.groups.append((tools, places))

    def _add_python(self, file: str) -> None:
        """Add a Python file as source code, and its functions if it is a file of tools: only then it is imported.

        A function that is no tool becomes unreadable, and the others are added. If the import fails, a note is added.
        """
        from ...audit.findings import SourceLocation
        from ...run.tools.toolbox import module_functions

        if not defines_tools(self._add_source_code(file)):
            return
        try:
            module = load_tools(file)
            functions = module_functions(module)
        except ConfigError as error:
            cause = error.__cause__
            if isinstance(cause, ToolwireError):  # of a decorator
                frames = traceback.extract_tb(cause.__traceback__)
                line = max((frame.lineno or 0 for frame in frames if frame.filename == file), default=0)
                self.unreadable.append((SourceLocation(file, line), "", str(cause)))
            else:
                self.notes.append(f"{error.message}; only its source code was audited")
            return
        self._add_functions(file, module, functions)

    def _add_functions(self, file: str, module: ModuleType, functions: Sequence[Any]) -> None:
        from ...audit.findings import SourceLocation
        from ...run.tools.toolbox import Toolbox

        for function in functions:
            try:
                self.add_tools(SourceLocation(file), Toolbox(function).tools)
            except ToolwireError as error:
                code = getattr(inspect.unwrap(function), "__code__", None)
                name = getattr(function, "__name__", "")
                line = code.co_firstlineno if code is not None and function.__module__ == module.__name__ else 0
                self.unreadable.append((SourceLocation(file, line), name, str(error)))


def _files_in(folder: str) -> Iterator[str]:
    """Yield the files in a folder in the order of their names, without environments and caches."""
    for name, folders, files in os.walk(folder):
        root = Path(name)
        folders[:] = sorted(
            one for one in folders if one not in _SKIPPED_FOLDERS and not (root / one / "pyvenv.cfg").exists()
        )
        yield from (str(root / file) for file in sorted(files) if (root / file).is_file())


def _parse_data(file: str, data: bytes) -> Any:
    """Parse a file of JSON, TOML or YAML by its name. Raise `ToolwireError` if it is invalid."""
    if file.lower().endswith(".toml"):
        try:
            return _as_json(tomllib.loads(data.decode()))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file} is not TOML: {error}") from None
    if file.lower().endswith(".json"):
        return parse_file(file, data)
    from ...openapi.yaml_values import parse_yaml

    return parse_yaml(data.decode("utf-8", "replace"), max_nodes=_MAX_NODES, max_depth=_MAX_DEPTH)


def _as_json(value: Any) -> Any:
    """Return a value of TOML with dates and times as text, in which JSON has them."""
    if type(value) is dict:
        return {key: _as_json(item) for key, item in value.items()}
    if type(value) is list:
        return [_as_json(item) for item in value]
    return value.isoformat() if isinstance(value, (date, time)) else value  # a `datetime` is a `date`


def _is_bounded(document: Any) -> bool:
    """Return True for at most `_MAX_NODES` values; a value with several aliases counts each time."""
    return sum(1 for _ in islice(_values(document), _MAX_NODES + 1)) <= _MAX_NODES


def _values(document: Any) -> Iterator[Any]:
    waiting = [document]
    while waiting:
        value = waiting.pop()
        yield value
        waiting.extend(value.values() if type(value) is dict else value if type(value) is list else ())
