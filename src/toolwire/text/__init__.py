"""Tool calls written in text: one data module per notation, on one engine.

    fmt = toolwire.text.get("hermes")
    fmt.parse(text, tools).calls                 # a whole turn
    parser = fmt.parser(tools)                   # or incrementally: feed, close, should_stop
    fmt.render_tools(tools); fmt.render_call(call); fmt.render_result(result)
    fmt.grammar(tools, ToolChoice("required"))   # for constrained decoding
    toolwire.text.detect("Qwen3-Coder-30B")      # 'qwen3_xml'
    toolwire.text.detect_template(template)      # by the source of the model's chat template

Formats are imported on first use. A third party adds a format with an entry point of the group `toolwire.text`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from ..ir.errors import ConfigError
from . import formats as formats
from .formats.table import MODULES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .engine.format import Format as Format
    from .engine.grammar import CallGrammar as CallGrammar
    from .engine.prompt import ResultTemplate as ResultTemplate
    from .engine.prompt import ToolPrompt as ToolPrompt
    from .engine.spans import Span as Span
    from .styles.header_calls import HeaderCalls as HeaderCalls
    from .styles.json_calls import JsonCalls as JsonCalls
    from .styles.tagged_calls import TaggedCalls as TaggedCalls
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "engine.format": "Format",
            "engine.grammar": "CallGrammar",
            "engine.prompt": "ResultTemplate ToolPrompt",
            "engine.spans": "Span",
            "styles.header_calls": "HeaderCalls",
            "styles.json_calls": "JsonCalls",
            "styles.tagged_calls": "TaggedCalls",
        },
        own="detect detect_template formats get names",
    )

_ALIASES = {"deepseek_r1": "deepseek_v3", "hy_v3": "hy3", "ling3": "glm47", "openhands": "function_xml"}
"""Other names of the same format."""

_loaded: dict[str, Format] = {}


def names() -> list[str]:
    """Return the names of all formats, built-in and third-party."""
    return sorted({*MODULES, *_entry_points()})


def get(name: str | None) -> Format:
    """Return a format by its name or an alias. None, which `detect` returns if unknown, raises ConfigError."""
    if not isinstance(name, str):
        hint = "detect() returns None for an unknown model; choose one of toolwire.text.names()"
        raise ConfigError(f"the name of a text format must be a string, got {name!r}", hint=hint)
    found = _loaded.get(name)
    if found is None:
        found = _loaded[name] = _load(name)
    return found


def detect(text: str) -> str | None:
    """Detect the format of a model by its name, or of a text by its calls; return None if unknown."""
    from .engine.detection import detect_by_model, detect_by_text

    looks_like_text = "\n" in text or any(character in text for character in "<[{(")
    return detect_by_text(text) if looks_like_text else detect_by_model(text, map(get, names()))


def detect_template(template: str) -> str | None:
    """Detect the format by the source of a model's chat template (Jinja); return None if unknown.

    A template is more reliable than the name of a model, which a fine-tuned model or a server may change.
    """
    from .engine.detection import detect_by_template

    return detect_by_template(template)


def _load(name: str) -> Format:
    """Import a built-in format, or load one from its entry point; raise ConfigError for an unknown name."""
    form: Format
    name = _ALIASES.get(name, name)
    if name in MODULES:
        from importlib import import_module

        form = getattr(import_module(f"{__name__}.formats.{MODULES[name]}"), name.upper())
        return form
    entries = _entry_points()
    if name not in entries:
        raise ConfigError(f"unknown text format {name!r}", hint=_suggest(name))
    form = entries[name].load()
    return form


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="toolwire.text")}


def _suggest(name: str) -> str:
    from difflib import get_close_matches

    known = names()
    close_matches = get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close_matches[0]!r}?" if close_matches else f"use one of {', '.join(known)}"
