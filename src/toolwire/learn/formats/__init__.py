"""Training formats, one module each: `names()` lists them, `get(name)` returns one, `detect(row)` finds the format of a row."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from ...ir.errors import ConfigError, ProtocolError
from ...ir.pointer import Object
from ..examples import TrainingFormat

__all__ = ["detect", "get", "names"]

# Each format is a module here with a FORMAT. The command has the same list, so that its help loads none of them.
_MODULES = (
    "toolwire",
    "openai",
    "trl",
    "trl_prompt",
    "llamafactory",
    "llamafactory_openai",
    "axolotl",
    "swift",
    "xlam",
    "toolace",
)


def names(*, writable: bool = False) -> list[str]:
    """Return the names of the formats; with `writable`, of those that can be written."""
    return [name for name in _MODULES if not writable or get(name).encode is not None]


def get(name: str) -> TrainingFormat:
    """Return a format; ConfigError if there is none with this name."""
    if name not in _MODULES:
        close = get_close_matches(name, _MODULES, 1, 0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(_MODULES)}"
        raise ConfigError(f"unknown training format {name!r}", hint=hint)
    found: TrainingFormat = import_module(f"{__name__}.{name}").FORMAT
    return found


def detect(row: Object) -> TrainingFormat:
    """Return the format that matches a row best; ProtocolError if none does."""
    best = max(map(get, _MODULES), key=lambda one: one.matches(row))
    if not best.matches(row):
        keys = ", ".join(sorted(map(repr, list(row)[:8]))) or "none"
        raise ProtocolError(
            f"the row is in no known training format; its keys are {keys}", hint=f"formats: {', '.join(_MODULES)}"
        )
    return best
