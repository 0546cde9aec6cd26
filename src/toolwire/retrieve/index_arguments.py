"""Check the arguments of an index: a wrong type must be an error, not a search without results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from ..ir.errors import ConfigError, EncodeError
from ..ir.tools import Effect, Tool
from .entry_table import EFFECTS, IndexedTool, SearchFilter

__all__ = ["check_encoder", "check_names", "check_search", "collect_tools", "list_tools", "make_filter"]

_PreparedTool = TypeVar("_PreparedTool")


def check_encoder(encoder: object) -> None:
    """Raise ConfigError for an object that cannot encode."""
    if encoder is not None and not all(hasattr(encoder, name) for name in ("name", "dimensions", "encode")):
        raise ConfigError(f"an encoder has name, dimensions and encode; got {encoder!r}", hint="use open_minilm()")


def check_search(query: str, k: int) -> None:
    """Raise ConfigError for a query that is no text, and for a number of results below 1."""
    if not isinstance(query, str):
        raise ConfigError(f"the query must be a text, got {query!r}")
    if type(k) is not int or k < 1:
        raise ConfigError(f"k must be an integer of at least 1, got {k!r}")


def check_names(argument: str, names: Iterable[str] | None) -> None:
    """Raise ConfigError for a text in place of a list of texts."""
    if isinstance(names, str):
        raise ConfigError(f"{argument} must be a list, got the text {names!r}", hint=f"use [{names!r}]")


def make_filter(
    effects: Collection[Effect] | None,
    servers: Collection[str] | None,
    tags: Collection[str] | None,
    allow: Callable[[IndexedTool], bool] | None,
) -> SearchFilter:
    """Return the filter of a search. Raise ConfigError for an unknown effect."""
    for argument, values in (("effects", effects), ("servers", servers), ("tags", tags)):
        check_names(argument, values)
    for effect in effects or ():
        if effect not in EFFECTS:
            raise ConfigError(f"effects contains the unknown effect {effect!r}", hint=f"use {', '.join(EFFECTS)}")
    return SearchFilter(effects, servers, tags, allow)


def collect_tools(
    tools: Iterable[Tool], convert: Callable[[Tool], _PreparedTool]
) -> tuple[dict[str, _PreparedTool], tuple[tuple[str, str], ...]]:
    """Convert tools. Return the results by name, and the refused tools, each with the reason."""
    converted: dict[str, _PreparedTool] = {}
    refused: list[tuple[str, str]] = []
    for tool in list_tools(tools):
        try:
            result = convert(tool)
        except EncodeError as error:
            refused.append((tool.name, error.message))
            continue
        if converted.setdefault(tool.name, result) != result:
            refused.append((tool.name, "an earlier tool of the same list has this name"))
    return converted, tuple(refused)


def list_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Raise ConfigError for a value that is not a list of tools."""
    if isinstance(tools, Tool):
        raise ConfigError(f"tools must be a list, got the tool {tools.name!r}", hint="use [tool]")
    listed = list(tools)
    for tool in listed:
        if not isinstance(tool, Tool):
            raise ConfigError(
                f"tools must be values of Tool, got {tool!r}", hint="use Toolbox([…]).tools for functions"
            )
    return listed
