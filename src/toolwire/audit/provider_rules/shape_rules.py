"""TW100 to TW103: fields and types by the shapes of the official SDKs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..findings import Hit
from .constraints import CheckedBody, constraint
from .openai_shared import NATIVE

__all__: list[str] = []

_SOURCES = {
    "anthropic": ("anthropic 2.8.0 (2026-11): types.beta.MessageCreateParams", ""),
    "gemini": ("google-genai 3.1.0 (2026-11): types.py", ""),
    "openai_chat": ("openai 3.49.0 (2026-11): types.chat.CompletionCreateParams", NATIVE),
    "openai_responses": ("openai 3.49.0 (2026-11): types.responses.ResponseCreateParams", NATIVE),
}
_ERRORS = {
    ("TW100", "anthropic"): "x: Extra inputs are not permitted",
    ("TW100", "gemini"): 'Invalid JSON payload received. Unknown name "x": Cannot find field.',
    ("TW100", "openai_chat"): "Unknown parameter: 'x'.",
    ("TW100", "openai_responses"): "Unknown parameter: 'x'.",
    ("TW101", "anthropic"): "max_tokens: Field required",
    ("TW101", "openai_chat"): "Missing required parameter: 'messages'.",
}
_KINDS = {"TW100": "unknown", "TW101": "missing", "TW102": "type", "TW103": "tag"}


def _make_check(kind: str) -> Callable[[CheckedBody], Iterator[Hit]]:
    def check(checked: CheckedBody) -> Iterator[Hit]:
        for problem in checked.problems:
            if problem.kind == kind and not _is_in_path(checked, problem.kind, problem.path, problem.message):
                yield Hit(problem.path, problem.message)

    return check


def _is_in_path(checked: CheckedBody, kind: str, path: str, message: str) -> bool:
    """Return True for the model, where the path of the request names it: Vertex AI, Bedrock, Azure deployments."""
    return (
        kind == "missing" and path == "" and "'model'" in message and checked.provider in ("vertex", "bedrock", "azure")
    )


for _rule, _kind in _KINDS.items():
    for _wire, (_source, _vendors) in _SOURCES.items():
        constraint(_rule, _wire, _source, error=_ERRORS.get((_rule, _wire), ""), vendors=_vendors)(_make_check(_kind))
