"""Make entries of a toolbox from the tools of another framework."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, get_args

from ..ir.errors import ConfigError, MissingExtra
from ..ir.parts import Media, MediaKind, Text
from ..ir.text import dumps
from ..ir.tools import Effect, Tool
from ..run.tools.function_tool import ApprovalRule, Options
from ..run.tools.suggestions import NameIndex, suggest_names
from ..run.tools.toolbox import Entry, Toolbox

__all__ = [
    "Effects",
    "choose_effect",
    "collect_entries",
    "framework_entry",
    "framework_imports",
    "media_part",
    "require_known_names",
    "text_part",
]

Effects: TypeAlias = Mapping[str, Effect]
"""The effects of tools by name. A tool that is not listed has the effect of its metadata, else `write`."""


@contextmanager
def framework_imports(package: str) -> Iterator[None]:
    """Raise MissingExtra with the install command if the framework cannot be imported inside the block."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"this adapter needs {package}: {error}", hint=f"pip install {package}") from error


def choose_effect(name: str, effects: Effects | None, *metadata: object) -> Effect:
    """Return the effect of a tool: that of `effects`, of its own metadata, or `write`, the most cautious one.

    Metadata are those of `tool_metadata`, or the annotations of MCP (`readOnlyHint`, `idempotentHint`), also inside a
    field `annotations`.
    """
    chosen = None if effects is None else effects.get(name)
    if chosen is not None and chosen not in get_args(Effect):
        raise ConfigError(f"unknown effect {chosen!r} of {name}", hint=f"use one of {', '.join(get_args(Effect))}")
    found = [chosen, *map(_metadata_effect, metadata)]
    return next((effect for effect in found if effect is not None), "write")


def _metadata_effect(metadata: object) -> Effect | None:
    if not isinstance(metadata, Mapping):
        return None
    own = metadata.get("toolwire")
    effect: Effect | None = own.get("effect") if isinstance(own, Mapping) else None
    if effect in get_args(Effect):
        return effect
    if metadata.get("readOnlyHint") is True:
        return "read"
    if metadata.get("idempotentHint") is True:
        return "idempotent"
    return _metadata_effect(metadata.get("annotations"))


def framework_entry(
    tool: Tool,
    function: Callable[..., Any],
    origin: str,
    *,
    approve: ApprovalRule = False,
    timeout: float | None = None,
) -> Entry:
    """Return the entry of a framework's tool. Without a `timeout` of its own, it has that of every tool."""
    options = Options(approve=approve) if timeout is None else Options(approve=approve, timeout=timeout)
    return Entry(tool, function, options, f"{origin}:{tool.name}")


def collect_entries(
    tools: object, effects: Effects | None, convert: Callable[[Any], Entry | Iterable[Entry]]
) -> Toolbox:
    """Return a toolbox of the converted tools. ConfigError for a name in `effects` that no tool has."""
    entries: list[Entry] = []
    for one in tools if isinstance(tools, (list, tuple)) else (tools,):
        found = convert(one)
        entries += [found] if isinstance(found, Entry) else found
    require_known_names(effects, [entry.name for entry in entries])
    return Toolbox(*entries)


def require_known_names(effects: Effects | None, names: Iterable[str]) -> None:
    known = list(names)
    for name in effects or ():
        if name not in known:
            similar = suggest_names(NameIndex(known).similar(name)).strip()
            raise ConfigError(
                f"effects names the unknown tool {name!r}", hint=similar or "use the name of a given tool"
            )


def text_part(value: Any) -> Text:
    return Text(value if isinstance(value, str) else dumps(value))


def media_part(media_type: str | None, *, data: bytes | str | None = None, url: str | None = None) -> Media:
    """Return a media part; `data` are bytes, or text in base64."""
    kind = (media_type or "").partition("/")[0]
    kinds: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}
    encoded = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return Media(kinds.get(kind, "file"), media_type, encoded, url)
