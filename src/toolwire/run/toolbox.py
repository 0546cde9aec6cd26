"""Collect runnable tools from functions, modules and other toolboxes.

box = Toolbox(get_weather, my_module, others.prefix("mail_"))
box.find("get_weather")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias, Unpack

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.tools import Tool
from ..ir.value import Value
from .function_tool import FunctionTool, tool
from .options import Options, OptionValues
from .parameters import Parameters
from .suggestions import NameIndex

__all__ = ["Entry", "Source", "Toolbox"]


class Entry(Value, frozen=True):
    """A tool with its function and options."""

    tool: Tool
    function: Callable[..., Any]
    options: Options = Options()

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def withdrawn(self) -> str | None:
        """The reason why the tool cannot be used now; None if it can."""
        return None if self.options.withdrawn is None else self.options.withdrawn()


Source: TypeAlias = "Callable[..., Any] | Tool | Entry | Toolbox | ModuleType | Sequence[Source]"


_MANY_TOOLS = 500


class _ParametersByTool(dict[str, Parameters]):
    """The parameters of each tool, computed on first access. Raises SchemaError for an invalid schema."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        super().__init__()
        self._entries = entries

    def __missing__(self, name: str) -> Parameters:
        parameters = self[name] = Parameters(self._entries[name].tool)
        return parameters


class Toolbox:
    """Tools by name; a duplicate name raises ConfigError. `parameters`: the parameters of each tool."""

    def __init__(self, *sources: Source) -> None:
        self._entries: dict[str, Entry] = {}
        self._index: NameIndex | None = None
        self._index_builds: dict[str, object] = {}
        self.parameters = _ParametersByTool(self._entries)
        for source in sources:
            for entry in _collect_entries(source):
                if entry.name in self._entries:
                    raise ConfigError(f"two tools have the name {entry.name!r}", hint="prefix or rename one of them")
                self._entries[entry.name] = entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tool declarations for a request."""
        return tuple(entry.tool for entry in self)

    def filter_available(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the `tools` that are not withdrawn."""
        return tuple(tool for tool in tools if not self._is_withdrawn(tool.name))

    def _is_withdrawn(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.withdrawn is not None

    def find(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def similar_names(self, name: str) -> list[str]:
        """Return similar names, for the error message. The first use builds an index of the names.

        While another thread builds it, there are no suggestions.
        """
        build = object()
        if self._index is None and self._index_builds.setdefault("build", build) is build:  # atomic between threads
            self._index = NameIndex(self._entries)
        return [] if self._index is None else self._index.similar(name)

    def needs_index(self, name: str) -> bool:
        """Return True for an unknown name among many tools: `similar_names` may take long then, and needs a thread."""
        return name not in self._entries and len(self._entries) > _MANY_TOOLS

    def filter(self, predicate: Callable[[Tool], bool]) -> Toolbox:
        return Toolbox(*(entry for entry in self if predicate(entry.tool)))

    def prefix(self, prefix: str) -> Toolbox:
        return self.rename({name: prefix + name for name in self._entries})

    def rename(self, names: Mapping[str, str]) -> Toolbox:
        for name in names:
            if name not in self._entries:
                raise ConfigError(f"no tool has the name {name!r}", hint=f"use one of {', '.join(self._entries)}")
        return Toolbox(*(_rename_entry(entry, names.get(entry.name, entry.name)) for entry in self))

    def wrap(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Toolbox:
        """Return a toolbox with `wrapper` around each function."""
        return Toolbox(*(replace(entry, function=wrapper(entry.function)) for entry in self))

    def with_options(self, **options: Unpack[OptionValues]) -> Toolbox:
        """Return a toolbox whose tools have these options; the options that are not given remain."""
        return Toolbox(*(replace(entry, options=replace(entry.options, **options)) for entry in self))


def _rename_entry(entry: Entry, name: str) -> Entry:
    return entry if name == entry.name else replace(entry, tool=replace(entry.tool, name=name))


def _collect_entries(source: Source) -> Iterable[Entry]:
    """Return the entries of a source; ConfigError for a tool without a function, or for any other object."""
    if isinstance(source, Toolbox):
        return source
    if isinstance(source, Entry):
        return (source,)
    if isinstance(source, FunctionTool):
        return (Entry(source, source.function, source.options),)
    if isinstance(source, ModuleType):
        return _module_entries(source)
    if isinstance(source, (list, tuple)):
        return [entry for item in source for entry in _collect_entries(item)]
    if isinstance(source, Tool):
        raise ConfigError(f"the tool {source.name!r} has no function", hint="pass Entry(tool, function)")
    if not callable(source):
        raise ConfigError(f"a toolbox is made of functions, got {source!r}")
    return (Entry(tool(source), source),)


def _module_entries(module: ModuleType) -> list[Entry]:
    """Return the tools of a module; if none is marked, its own public functions."""
    members = [value for name, value in vars(module).items() if not name.startswith("_")]
    marked = [value for value in members if isinstance(value, (FunctionTool, Entry))]
    if marked:
        return [entry for value in marked for entry in _collect_entries(value)]
    functions = [value for value in members if inspect.isfunction(value) and value.__module__ == module.__name__]
    if not functions:
        raise ConfigError(f"the module {module.__name__} has no functions", hint="mark some with @toolwire.tool")
    return [entry for value in functions for entry in _collect_entries(value)]
