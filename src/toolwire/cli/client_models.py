"""Choose the models of a gateway for each client, so that printed commands name only models that exist.

A coding agent needs models that accept tools, and a context of tens of thousands of tokens. Claude Code also requests a
small model in the background, which must exist, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..gateway.settings import ModelRow, Settings

__all__ = ["AvailableModels", "ChosenModels", "choose_models", "list_models"]

_SMALL = frozenset({"haiku", "mini", "nano", "flash", "lite", "small", "fast", "tiny"})
_SHORT_CONTEXT = "local"  # the provider whose models cannot hold the prompt of a coding agent
# The names that a client requests without a setting: they decide whether a pattern of the settings serves the client.
_OWN_NAMES = {
    "claude": ("claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"),
    "codex": ("gpt-5.6-codex",),
    "gemini": ("gemini-3-pro-preview", "gemini-3-flash-preview"),
}
_FAMILIES = {"claude": ("claude",), "codex": ("codex", "gpt"), "gemini": ("gemini",)}
_PROVIDERS = {"claude": "anthropic", "codex": "openai", "gemini": "gemini"}
_PLACEHOLDER = "MODEL"


class AvailableModels(NamedTuple):
    """The models of a gateway, in the order of the settings."""

    names: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()  # those that a coding agent can use
    agent_patterns: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()  # upstreams whose models have no names of their own; `upstream/model` works
    requires_key: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.agent_patterns or self.upstreams)


class ChosenModels(NamedTuple):
    """The models for a client; None if the client's own names work."""

    main: str | None
    small: str | None

    @property
    def is_placeholder(self) -> bool:
        """True if the user has to replace a part of the name."""
        return self.main is not None and self.main.endswith(f"/{_PLACEHOLDER}")


def list_models(settings: Settings, upstreams: tuple[str, ...] = ()) -> AvailableModels:
    """List the models of the settings. `upstreams` are those of the environment, if the settings have none."""
    usable = {name: row for name, row in settings.models.items() if _serves_agents(row, settings)}
    plain = tuple(name for name in settings.models if not _is_pattern(name))
    return AvailableModels(
        plain,
        tuple(name for name in plain if name in usable),
        tuple(name for name in usable if _is_pattern(name)),
        () if settings.models else (upstreams or tuple(settings.upstreams)),
        bool(settings.keys),
    )


def choose_models(client: str, available: AvailableModels) -> ChosenModels | None:
    """Return the models for a coding agent, or None if it cannot work with any of them."""
    names = available.agent_names
    family = [name for name in names if any(mark in name.lower() for mark in _FAMILIES[client])] or list(names)
    if family:
        large = [name for name in family if not _is_small(name)]
        main = (large or family)[0]
        return ChosenModels(main, next((name for name in family if _is_small(name)), main))
    if all(any(fnmatchcase(name, pattern) for pattern in available.agent_patterns) for name in _OWN_NAMES[client]):
        return ChosenModels(None, None)
    if available.upstreams:
        provider = _PROVIDERS[client]
        upstream = provider if provider in available.upstreams else available.upstreams[0]
        return ChosenModels(f"{upstream}/{_PLACEHOLDER}", f"{upstream}/{_PLACEHOLDER}")
    return None


def _serves_agents(row: ModelRow, settings: Settings) -> bool:
    upstreams = [target.upstream for target in row.targets] or [row.upstream or ""]
    providers: Mapping[str, str | None] = {name: upstream.provider for name, upstream in settings.upstreams.items()}
    return row.tools and any(providers.get(name) != _SHORT_CONTEXT for name in upstreams)


def _is_small(name: str) -> bool:
    return not _SMALL.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
