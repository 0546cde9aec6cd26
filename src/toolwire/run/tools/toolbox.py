"""Collect runnable tools from functions, modules and other toolboxes.

box = Toolbox(get_weather, my_module, others.prefix("mail_"))
box.find("get_weather")
box.filter("get_*", effect="read").prefix("weather_") + other_box
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from types import ModuleType
from typing import Any, Protocol, TypeAlias, Unpack, get_args, runtime_checkable

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.notebook import html_table, table_of
from ...ir.tools import Effect, Tool
from ...ir.value import Value
from .function_tool import FunctionTool, Options, OptionValues, Parameters, require_option_names, tool
from .suggestions import NameIndex, suggest_names

_log = logging.getLogger("toolwire.run")


class Entry(Value, frozen=True):
    """A tool with its function and options.

    `origin` identifies the source of the tool, such as a server. It must be the same in every process; by default it is
    made from the module and the name of the function.
    """

    tool: Tool
    function: Callable[..., Any]
    options: Options = Options()
    origin: str = ""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def withdrawn(self) -> str | None:
        """The reason why the tool cannot be used now; None if it can."""
        return None if self.options.withdrawn is None else self.options.withdrawn()

    @property
    def origin_id(self) -> str:
        """The origin, also for a function."""
        return self.origin or _function_origin(self.function)


Source: TypeAlias = "Callable[..., Any] | Tool | Entry | Toolbox | LiveSource | ModuleType | Sequence[Source]"


_MANY_TOOLS = 500  # building the index of their names takes milliseconds, which is too long for the event loop
_MAX_REMOVED = 1000  # tools that disappeared; a model may still call them, and gets the reason


class _ParametersByTool(dict[str, Parameters]):
    """The parameters of each tool, computed on first access. Raises SchemaError for an invalid schema."""

    def __init__(self, find: Callable[[str], Entry | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, name: str) -> Parameters:
        entry = self._find(name)
        if entry is None:
            raise KeyError(name)
        parameters = self[name] = Parameters(entry.tool)
        return parameters


@runtime_checkable
class LiveSource(Protocol):
    """A source whose tools change, such as the tools of connected servers.

    `version` grows with every change. `live_entries` returns the tools at this moment; the entry of a tool that has not
    changed must be the same object.
    """

    @property
    def version(self) -> int: ...

    def live_entries(self) -> Sequence[Entry]: ...


class Toolbox:
    """Tools by name; a duplicate name raises ConfigError. `parameters`: the parameters of each tool.

    A toolbox with a `LiveSource` is fixed until `refresh` is called: a call runs the tool that was offered. An agent
    calls it before each turn, so that tools appear and disappear between turns.
    """

    def __init__(self, *sources: Source) -> None:
        """Collect the tools of the sources. Raise ConfigError if two of them have the same name."""
        self._entries: dict[str, Entry] = {}
        self._unlisted: dict[str, Entry] = {}
        self._removed: dict[str, Entry] = {}  # tools that a live source had; a call of one is refused with the reason
        self._index: NameIndex | None = None
        self._index_builds: dict[str, object] = {}
        self.parameters = _ParametersByTool(self.find)
        self._live = list(_live_sources(sources))
        self._sources = sources if self._live else ()
        self._version = self.version
        self._owners: dict[str, object] = {}  # by name: the source that a tool comes from
        for source, entry in _owned_entries(sources):
            if entry.name in self._entries:
                raise ConfigError(f"two tools have the name {entry.name!r}", hint="prefix or rename one of them")
            self._entries[entry.name] = entry
            self._owners[entry.name] = source
        for live in self._live:
            if isinstance(live, Toolbox):
                self._removed.update(live._removed)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def _repr_html_(self) -> str:
        return html_table(*table_of(self.tools))

    def __add__(self, other: Source) -> Toolbox:
        """Combine two toolboxes, or a toolbox and any other source."""
        return Toolbox(self, other)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tool declarations for a request."""
        return tuple(entry.tool for entry in self)

    @property
    def version(self) -> int:
        """A number that grows when a live source has changed; 0 for a toolbox without one."""
        return sum(source.version for source in self._live)

    @property
    def is_live(self) -> bool:
        """True if the tools may change."""
        return bool(self._live)

    def refresh(self) -> bool:
        """Apply the changes of live sources. Return True if there were any. New tools are last.

        A name stays with the source that has it, whatever the order of the sources: a server must not replace a tool. A
        new tool with the name of another one is left out, and logged.
        """
        if not self._live or self.version == self._version:
            return False
        self._version = self.version
        previous, current = self._entries, self._choose_entries()
        kept = {name: current.pop(name) for name in previous if name in current}
        self._entries = {**kept, **current}  # a new object, because another thread may read the previous one
        for name, entry in previous.items():
            if self._entries.get(name) is not entry:
                self.parameters.pop(name, None)
            if name not in self._entries:
                self._removed[name] = _withdraw_entry(entry)
        for name in list(self._removed)[:-_MAX_REMOVED]:
            del self._removed[name]
        self._index = None
        self._index_builds.clear()
        return True

    def _choose_entries(self) -> dict[str, Entry]:
        """Return the present tools by name, and store their sources.

        If several have one name, it is the owner's tool, else the first; the others are logged.
        """
        candidates: dict[str, list[tuple[object, Entry]]] = {}
        for source, entry in _owned_entries(self._sources):
            if entry.name in self._unlisted:
                _log_left_out(entry)
            else:
                candidates.setdefault(entry.name, []).append((source, entry))
        chosen: dict[str, Entry] = {}
        owners: dict[str, object] = {}
        for name, found in candidates.items():
            found.sort(key=lambda candidate: self._foreignness(*candidate))  # stable
            owners[name], chosen[name] = found[0]
            for _, entry in found[1:]:
                _log_left_out(entry)
        self._owners = owners
        return chosen

    def _foreignness(self, source: object, entry: Entry) -> int:
        """Return how far an entry is from the one that has its name now; 0 for the same one."""
        known = self._entries.get(entry.name)
        if known is None or known is entry:
            return 0
        if self._owners.get(entry.name) is not source:
            return 3
        return 1 if known.origin_id == entry.origin_id else 2

    def add_unlisted(self, entry: Entry) -> bool:
        """Add a tool that can be called but is not listed. Return False if its name is taken."""
        if entry.name in self._entries:
            return False
        self._unlisted[entry.name] = entry
        return True

    def filter_available(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the `tools` that are not withdrawn."""
        return tuple(tool for tool in tools if not self._is_withdrawn(tool.name))

    def _is_withdrawn(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.withdrawn is not None

    def find(self, name: str) -> Entry | None:
        return self._entries.get(name) or self._unlisted.get(name) or self._removed.get(name)

    def is_listed(self, entry: Entry) -> bool:
        """Return True for a tool that is offered to models."""
        return self._entries.get(entry.name) is entry

    def similar_names(self, name: str) -> list[str]:
        """Return similar names, for the error message. The first use builds an index of the names.

        While another thread builds it, there are no suggestions.
        """
        build, index = object(), self._index
        if index is None and self._index_builds.setdefault("build", build) is build:  # atomic between threads
            index = self._index = NameIndex(list(self._entries))
        return [] if index is None else index.similar(name)

    def needs_index(self, name: str) -> bool:
        """Return True for an unknown name among many tools: `similar_names` may take long then, and needs a thread."""
        return name not in self._entries and len(self._entries) > _MANY_TOOLS

    def filter(
        self, *patterns: str | Callable[[Tool], bool], effect: Effect | Collection[Effect] | None = None
    ) -> Toolbox:
        """Return the tools that match any of the patterns: names with `*` and `?`, or functions of the tool.

        With `effect`, a tool must also have this effect, or one of these; ConfigError for an unknown effect.
        """
        effects = (effect,) if isinstance(effect, str) else effect
        for known in effects or ():
            if known not in get_args(Effect):
                raise ConfigError(f"unknown effect {known!r}", hint=f"use one of {', '.join(get_args(Effect))}")

        def keep(entry: Entry) -> Entry | None:
            is_match = not patterns or any(_matches(pattern, entry.tool) for pattern in patterns)
            return entry if is_match and (effects is None or entry.tool.effect in effects) else None

        return self._derive(keep)

    def without(self, *patterns: str | Callable[[Tool], bool]) -> Toolbox:
        """Return the tools that match none of the patterns; see `filter`."""
        return self._derive(lambda entry: None if any(_matches(pattern, entry.tool) for pattern in patterns) else entry)

    def prefix(self, prefix: str) -> Toolbox:
        """Return the tools with a prefix in their names."""
        return self._derive(lambda entry: _rename_entry(entry, prefix + entry.name))

    def rename(self, names: Mapping[str, str]) -> Toolbox:
        """Return the tools with new names by their old ones; others keep theirs. ConfigError for an unknown name."""
        for name in names:
            if name not in self._entries:
                similar = suggest_names(self.similar_names(name)).strip()
                raise ConfigError(f"no tool has the name {name!r}", hint=similar or "list(toolbox) has all tools")
        return self._derive(lambda entry: _rename_entry(entry, names.get(entry.name, entry.name)))

    def wrap(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Toolbox:
        """Return a toolbox with `wrapper` around each function."""
        return self._derive(lambda entry: replace(entry, function=wrapper(entry.function), origin=entry.origin_id))

    def with_options(self, **options: Unpack[OptionValues]) -> Toolbox:
        """Return a toolbox whose tools have these options; the options that are not given remain."""
        require_option_names(options)
        return self._derive(lambda entry: replace(entry, options=replace(entry.options, **options)))

    def _derive(self, change: Callable[[Entry], Entry | None]) -> Toolbox:
        """Return a toolbox of changed entries, without those that become None. A live toolbox stays live."""
        if not self._live:
            return Toolbox(*(changed for entry in self if (changed := change(entry)) is not None))
        return Toolbox(_DerivedSource(self, change))


class _DerivedSource:
    """A live source of changed entries. An entry that has not changed at its origin is changed once."""

    def __init__(self, box: Toolbox, change: Callable[[Entry], Entry | None]) -> None:
        self._box = box
        self._change = change
        self._changed: dict[str, tuple[Entry, Entry | None]] = {}  # by name: the original entry and the changed one

    @property
    def version(self) -> int:
        return self._box.version

    def live_entries(self) -> Sequence[Entry]:
        self._box.refresh()
        known, self._changed = self._changed, {}
        for entry in self._box:
            before = known.get(entry.name)
            is_same = before is not None and before[0] is entry
            self._changed[entry.name] = before if is_same and before is not None else (entry, self._change(entry))
        return [changed for _, changed in self._changed.values() if changed is not None]


def _matches(pattern: str | Callable[[Tool], bool], tool: Tool) -> bool:
    return fnmatchcase(tool.name, pattern) if isinstance(pattern, str) else bool(pattern(tool))


def _rename_entry(entry: Entry, name: str) -> Entry:
    return entry if name == entry.name else replace(entry, tool=replace(entry.tool, name=name))


def _withdraw_entry(entry: Entry) -> Entry:
    """Return the entry of a tool that has disappeared: a call of it is refused with the reason."""
    reason = entry.withdrawn or "it is no longer available"
    return replace(entry, options=replace(entry.options, withdrawn=lambda: reason))


def _function_origin(function: Callable[..., Any]) -> str:
    """Return the module and the name of a function.

    Of the module only the last part is used: a file is imported under several names, and as `__main__`.
    """
    named: Any = function
    while isinstance(named, partial):
        named = named.func
    named = named if hasattr(named, "__qualname__") else type(named)
    module = str(getattr(named, "__module__", ""))
    code = getattr(inspect.unwrap(named), "__code__", None)
    if module == "__main__" and code is not None:
        module = re.split(r"[/\\]", code.co_filename)[-1].removesuffix(".py")
    return f"function:{module.rpartition('.')[2]}:{named.__qualname__}"


def _log_left_out(entry: Entry) -> None:
    _log.warning("the new tool %r is left out: another tool has this name (source: %s)", entry.name, entry.origin_id)


def _live_sources(source: Source) -> Iterator[Toolbox | LiveSource]:
    """Iterate over the sources that may change, also in sequences."""
    if isinstance(source, Toolbox):
        if source._live:
            yield source
    elif isinstance(source, (list, tuple)):
        for item in source:
            yield from _live_sources(item)
    elif isinstance(source, LiveSource):
        yield source


def _owned_entries(source: Source) -> Iterator[tuple[object, Entry]]:
    """Iterate over the entries of a source, each with the source that it comes from."""
    if isinstance(source, (list, tuple)):
        for item in source:
            yield from _owned_entries(item)
    else:
        for entry in _collect_entries(source):
            yield source, entry


def _collect_entries(source: Source) -> Iterable[Entry]:
    """Return the entries of a source; ConfigError for a tool without a function, or for any other object."""
    if isinstance(source, Toolbox):
        source.refresh()
        return source
    if isinstance(source, Entry):
        return (source,)
    if isinstance(source, FunctionTool):
        return (Entry(source, source.function, source.options),)
    if isinstance(source, ModuleType):
        return [entry for value in module_functions(source) for entry in _collect_entries(value)]
    if isinstance(source, (list, tuple)):
        return [entry for item in source for entry in _collect_entries(item)]
    if isinstance(source, LiveSource):
        return source.live_entries()
    if isinstance(source, Tool):
        raise ConfigError(f"the tool {source.name!r} has no function", hint="pass Entry(tool, function)")
    if not callable(source):
        hints = {"as_tool": "pass agent.as_tool()", "toolbox": "pass servers.toolbox()"}
        hint = next((hint for method, hint in hints.items() if hasattr(source, method)), "")
        raise ConfigError(f"a toolbox is made of functions, got {source!r}", hint=hint)
    return (Entry(tool(source), source),)


def module_functions(module: ModuleType) -> list[Any]:
    """Return the tools of a module; if none is marked, its own public functions. ConfigError if it has neither."""
    members = [value for name, value in vars(module).items() if not name.startswith("_")]
    found: list[Any] = [value for value in members if isinstance(value, (FunctionTool, Entry))] or [
        value for value in members if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    if not found:
        raise ConfigError(f"the module {module.__name__} has no functions", hint="mark some with @toolwire.tool")
    return found
