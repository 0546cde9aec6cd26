"""Detect the format by the name of the model, or by the opener of a call in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .markers import FORMAT_MARKERS

if TYPE_CHECKING:
    from .format import Format

__all__ = ["detect_by_model", "detect_by_text", "match_model"]

# An opener that several formats share is distinguished by the text after it.
_FORMATS_AFTER_MARKER: dict[str, tuple[tuple[str, str], ...]] = {
    "<tool_call>": (
        (r"\s*\{", "hermes"),
        (r"\s*<function=", "qwen3_xml"),
        (r"\s*[^\s<{]+[ \t]*\n\s*<arg_key>", "glm45"),
        (r"\s*[^\s<{]+\s*(?:<arg_key>|</tool_call>)", "glm47"),
    ),
    "<tool_calls>": ((r"\s*<tool_call>", "hunyuan"), (r"\s*\{", "minimax_m1")),
    "[TOOL_CALLS]": ((r"\s*\[", "mistral_v3_json"), (r"[^\[]*\[CALL_ID\]", "mistral_v11_callid")),
    "<｜tool▁calls▁begin｜>": ((r"\s*<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "deepseek_v3"),),
    "<|tool_call_start|>": ((r"\s*```python", "minicpm4"),),
    "<|tool_call|>": ((r"(?s).*?<\|/tool_call\|>", "phi4mini"),),
    "<function=": ((r"[^<>]*>\s*\{", "functionary_v31"),),
    "<function_calls>": ((r"\s*<invoke", "anthropic_legacy_xml"), (r"\s*[\w.-]+\(", "olmo3")),
}
# Without any opener: the shape of the whole text.
_BARE = (
    (r"\s*\[\s*\{\s*\"", "json_array"),
    (r"[^\n]{0,300}?\[\w{1,64}\([^\n→]{0,300}\) ?\]? ?→", "toolformer"),
    (r"\s*\[\s*[A-Za-z_][\w.-]*\(", "pythonic"),
    (r"\s*\{\s*\"name\"", "llama3_json"),
    (r"(?:(?!Action:).*\n)*Action:.*\n\s*Action Input:", "react"),
    (r">>>\w+\n", "functionary_v32"),
    (r"Call:\s*\w+\(", "nexusraven"),
)


def detect_by_model(model: str, formats: Iterable[Format]) -> str | None:
    """Return the name of the format with the longest pattern that matches the name of the model."""
    return match_model(model, ((form.name, form.families) for form in formats))


def match_model(model: str, families: Iterable[tuple[str, Sequence[str]]]) -> str | None:
    """Return the name whose patterns include the longest one that matches the name of the model.

    A pattern also matches after a hyphen: `qwen3*` is in "unsloth-Qwen3-8B". In a path, the last component that matches
    decides: a revision may follow the name.
    """
    patterns = [(len(pattern.strip("*")), name, pattern) for name, globs in families for pattern in globs]
    for component in reversed(model.lower().replace("_", "-").replace(" ", "-").split("/")):
        fitting = [(length, name) for length, name, pattern in patterns if _matches(component, pattern)]
        if fitting:
            return max(fitting)[1]
    return None


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*-{pattern}")


def detect_by_text(text: str) -> str | None:
    """Return the format of the first call in the text."""
    first = min(
        ((text.find(marker), -len(marker), marker, name) for marker, name in FORMAT_MARKERS if marker in text),
        default=None,
    )
    if first is None:
        return next((name for pattern, name in _BARE if re.match(pattern, text, re.MULTILINE)), None)
    at, _, marker, name = first
    following = at + len(marker)
    for pattern, better in _FORMATS_AFTER_MARKER.get(marker, ()):
        if re.compile(pattern).match(text, following):
            return better
    return name
