"""The paths that official SDKs use, with their meaning.

A path is recognised by its end, because every SDK has its own base URL, and clouds add their own prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from ..ir.value import Value

__all__ = ["SdkRoute", "find_route", "guess_wire"]


class SdkRoute(Value, frozen=True):
    """The meaning of a path. `model` and `stream` are None if the body contains them."""

    action: Literal["generate", "models", "model"]
    wire: str
    model: str | None = None
    stream: bool | None = None


_MODEL_NAME = r"(?>.*/models/)(?P<model>.+)"
_GENERATE = (
    (re.compile(r".*/chat/completions"), "openai_chat"),
    (re.compile(r".*/responses"), "openai_responses"),
    (re.compile(r".*/messages"), "anthropic"),
    (re.compile(rf"{_MODEL_NAME}:(?P<verb>generateContent|streamGenerateContent)"), "gemini"),
    (re.compile(r".*/api/chat"), "ollama"),
)
_MODELS = re.compile(r".*/(?:models|api/tags)")
_MODEL = re.compile(_MODEL_NAME)


def find_route(method: str, path: str, headers: Mapping[str, str]) -> SdkRoute | None:
    """Find the meaning of a request; None if no model can answer it."""
    if method == "POST":
        for pattern, wire in _GENERATE:
            if found := pattern.fullmatch(path):
                groups = found.groupdict()
                verb = groups.get("verb")
                return SdkRoute(
                    "generate", wire, groups.get("model"), None if verb is None else verb.startswith("stream")
                )
    elif method == "GET":
        wire = guess_wire(path, headers)
        if _MODELS.fullmatch(path):
            return SdkRoute("models", wire)
        if (found := _MODEL.fullmatch(path)) is not None and ":" not in path:
            return SdkRoute("model", wire, found["model"])
    return None


def guess_wire(path: str, headers: Mapping[str, str]) -> str:
    """Choose the wire for a path that does not determine it, by the headers that the SDKs send."""
    if "anthropic-version" in headers or "/messages" in path:
        return "anthropic"
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or "/v1beta" in path:
        return "gemini"
    if "/api/" in path:
        return "ollama"
    return "openai_responses" if "/responses" in path else "openai_chat"
