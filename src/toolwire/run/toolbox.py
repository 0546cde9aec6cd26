"""Collect runnable tools from functions, modules and other toolboxes.

box = Toolbox(get_weather, my_module, others.prefix("mail_"))
box.find("get_weather")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..ir.value import Value
from ..schema.infer import FunctionTool, tool
from .parameters import Parameters

__all__ = ["Entry", "Options", "Source", "Toolbox"]


class Options(Value, frozen=True):
    """The execution options of a tool.

    `resource`: writes on the same resource keep the model's order; by default all writes of a run do. `timeout`: in
    seconds. `isolation`: "process" if a timeout must kill the function. `key`: makes the idempotency key from the
    arguments. `cache`: the seconds for which a result of a pure or read tool may be reused. `rate`: calls per second.
    `reconcile`: called with the key and the arguments to find the outcome of a call whose outcome is unknown.
    `untrusted`: its results may contain third-party instructions. `first_argument`: a pure or read tool that may
    start before its call is complete. `withdrawn`: returns the reason why the tool cannot be used now, or None; a
    withdrawn tool is not offered to models.
    """

    timeout: float | None = 60.0
    retries: int = 2
    resource: str | Callable[[Object], str] | None = None
    isolation: str = "thread"
    key: Callable[[Object], str] | None = None
    cache: float | None = None
    most_parallel: int | None = None
    rate: float | None = None
    reconcile: Callable[[str, Object], Any] | None = None
    untrusted: bool = False
    first_argument: bool = False
    output_limit: int | None = None
    withdrawn: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        if self.isolation not in ("thread", "process"):
            raise ConfigError(f"isolation must be thread or process, got {self.isolation!r}")
        for name in ("timeout", "rate", "cache", "most_parallel", "output_limit"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} must be positive, got {value}")


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
        """Return similar names, for the error message."""
        from difflib import get_close_matches

        return get_close_matches(name, list(self._entries), 3, 0.4)

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

    def with_options(self, **options: Any) -> Toolbox:
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
        assert source.function is not None
        return (Entry(source, source.function),)
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
