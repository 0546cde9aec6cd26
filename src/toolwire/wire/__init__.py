"""JSON protocols, one package each.

    toolwire.wire.names()                       # ['anthropic', 'bedrock', 'cohere', 'gemini', …]
    toolwire.wire.get("anthropic")              # the newest version
    toolwire.wire.get("anthropic@2023-06-01")   # that version

A wire is imported on first use. A third party adds a wire with an entry point of the group `toolwire.wire` that names a
codec; `toolwire.testing` checks it. A codec with several versions has a mapping `versions`. `capabilities_for` returns
the features of one model on a wire.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from ..ir.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .faults import Signature as Signature
    from .models.capabilities import CapabilityRow as CapabilityRow
    from .models.capabilities import ModelCapabilities as ModelCapabilities
    from .models.capabilities import parse_capability_rows as parse_capability_rows
    from .models.profiles import CapabilityMatch as CapabilityMatch
    from .protocol import Capabilities as Capabilities
    from .protocol import Limits as Limits
    from .protocol import Wire as Wire
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "faults": "Signature",
            "models.capabilities": "CapabilityRow ModelCapabilities parse_capability_rows",
            "models.profiles": "CapabilityMatch",
            "protocol": "Capabilities Limits Wire",
        },
        own="capabilities_for explain_capabilities get names",
    )

# The only list of the built-in wires: each is a package here with a CODEC.
_BUILT_IN = (
    "anthropic",
    "bedrock",
    "cohere",
    "gemini",
    "gemini_interactions",
    "ollama",
    "openai_chat",
    "openai_responses",
)
_loaded: dict[str, Wire] = {}


def names() -> list[str]:
    """Return the names of all wires, built in and from entry points."""
    return sorted({*_BUILT_IN, *_entry_points()})


def get(name: str) -> Wire:
    """Return the codec of a wire; `name@version` selects one of its versions. Raise ConfigError if it is unknown."""
    try:
        return _loaded[name]
    except (KeyError, TypeError):  # not loaded yet, or not even hashable
        if not isinstance(name, str):
            raise ConfigError(
                f"a wire name must be a string, got {name!r}", hint=f"use one of {', '.join(names())}"
            ) from None
    codec = _loaded[name] = _load(name)
    return codec


def capabilities_for(
    wire: Wire | str,
    model: str,
    version: str | None = None,
    *,
    vendor: str | None = None,
    rows: Iterable[CapabilityRow] = (),
) -> ModelCapabilities:
    """Return the known capabilities of a model on a wire.

    `version` defaults to the wire's newest one and `vendor` to the provider of the wire. `rows` come before the
    built-in ones.
    """
    return explain_capabilities(wire, model, version, vendor=vendor, rows=rows).capabilities


def explain_capabilities(
    wire: Wire | str,
    model: str,
    version: str | None = None,
    *,
    vendor: str | None = None,
    rows: Iterable[CapabilityRow] = (),
) -> CapabilityMatch:
    """Return the known capabilities of a model, with the row of each."""
    from .models.profiles import match_capabilities

    name = wire if isinstance(wire, str) else wire.name
    codec = get(f"{name}@{version}") if version else get(wire) if isinstance(wire, str) else wire
    return match_capabilities(codec, model, vendor=vendor, rows=tuple(rows))


def _load(name: str) -> Wire:
    """Import the codec of `name` or `name@version`; raise ConfigError if the wire or its version is unknown."""
    bare, _, version = name.partition("@")
    codec: Wire
    if bare in _BUILT_IN:
        from importlib import import_module

        codec = import_module(f"{__name__}.{bare}").CODEC
    else:
        entries = _entry_points()
        if bare not in entries:
            raise ConfigError(f"unknown wire {bare!r}", hint=_suggest(bare))
        codec = entries[bare].load()
    if not version or version == codec.version:
        return codec
    versions: Mapping[str, Wire] = getattr(codec, "versions", {})
    if version not in versions:
        known = ", ".join(sorted(versions)) or "none"
        raise ConfigError(f"{bare} has no version {version!r}", hint=f"known versions: {known}")
    return versions[version]


@cache
def _entry_points() -> dict[str, _EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="toolwire.wire")}


def _suggest(name: str) -> str:
    from difflib import get_close_matches

    known = names()
    close_matches = get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close_matches[0]!r}?" if close_matches else f"use one of {', '.join(known)}"


if TYPE_CHECKING:
    from importlib.metadata import EntryPoint as _EntryPoint
