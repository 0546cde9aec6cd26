"""Choose the targets for a request, and their order.

A name is looked up as it is, then by the patterns of the settings, then as `upstream/model`. The targets of a model are
in random order by weight, followed by those of its fallback models; targets in cooldown come last. A request with tools
goes only to models that accept tools, natively or by emulation. A request that refers to a conversation stored by a
provider (`previous_response_id`) goes only to upstreams of its own wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from random import Random

from msgspec import Struct

from ..ir.errors import ToolwireError
from .asked import ClientRequest
from .settings import ModelRow, TargetRow
from .upstreams import ConfiguredUpstream

__all__ = ["NoTarget", "Router", "Target", "UnknownModel", "able_targets"]

_REMEMBERED = 1024  # names; clients may request any number of models


class UnknownModel(ToolwireError):
    """No row of the settings has this name. The front adds its pointer, and the path that lists the names."""

    default_status = 404


class NoTarget(ToolwireError):
    """The model exists, but cannot serve this request."""

    default_status = 400


class Target(Struct, frozen=True):
    """A model at an upstream, and its settings."""

    upstream: ConfiguredUpstream
    model: str
    row: ModelRow

    @property
    def label(self) -> str:
        return f"{self.upstream.name}/{self.model}"


class Router:
    def __init__(
        self,
        upstreams: Mapping[str, ConfiguredUpstream],
        models: Mapping[str, ModelRow],
        *,
        cooldown: float,
        clock: Callable[[], float],
        random: Random | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._models = models
        self._patterns = sorted((name for name in models if _is_pattern(name)), key=len, reverse=True)
        self._cooldown = cooldown
        self._clock = clock
        self._random = random or Random()
        self._alone: dict[str, Target] = {}  # models with a single target, where there is no choice
        self._cooldown_until: dict[str, float] = {}  # end of the cooldown, by label

    @property
    def upstreams(self) -> list[str]:
        return sorted(self._upstreams)

    @property
    def names(self) -> list[str]:
        """The names to list for clients."""
        return sorted(name for name in self._models if not _is_pattern(name))

    def plan(self, model: str, *, tools: bool) -> list[Target]:
        """List the targets for a request, in the order to try them."""
        alone = self._alone.get(model)
        if alone is not None and (alone.row.tools or not tools):
            return [alone]
        name, row = self._find(model)
        plan: list[Target] = []
        for alias in (name, *row.fallbacks):
            plan += self._shuffled(self._targets(alias, model if alias == name else alias))
        able = [target for target in plan if target.row.tools or not tools]
        if not able:
            raise NoTarget(f"{model!r} accepts no tools", hint="send no tools, or set `emulate` for the model")
        if len(plan) == 1:
            if len(self._alone) >= _REMEMBERED:
                self._alone.clear()
            self._alone[model] = plan[0]
            return able
        now = self._clock()
        return sorted(able, key=lambda target: self._cooldown_until.get(target.label, 0.0) > now)

    def failed(self, target: Target, wait: float | None = None) -> None:
        """Start the cooldown of a target, for the time that it asked for or the default."""
        now = self._clock()
        if len(self._cooldown_until) >= _REMEMBERED:
            resting = {label: until for label, until in self._cooldown_until.items() if until > now}
            self._cooldown_until = resting if len(resting) < _REMEMBERED else {}
        self._cooldown_until[target.label] = now + (self._cooldown if wait is None else wait)

    def succeeded(self, target: Target) -> None:
        self._cooldown_until.pop(target.label, None)

    def _find(self, model: str) -> tuple[str, ModelRow]:
        head, mark, rest = _split(model)
        for name in (model, f"{head}/{rest}"):
            if name in self._models:
                return name, self._models[name]
        for pattern in self._patterns:
            if fnmatchcase(model, pattern):
                return pattern, self._models[pattern]
        if mark and rest and head in self._upstreams:
            return model, ModelRow(upstream=head, model=rest)
        near = get_close_matches(model, self.names, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise UnknownModel(f"unknown model {model[:200]!r}", hint=hint)

    def _targets(self, name: str, asked: str) -> list[tuple[Target, float]]:
        row = self._models[name] if name in self._models else self._find(name)[1]
        rows = row.targets or (TargetRow(row.upstream or "", row.model),)
        return [(Target(self._upstreams[one.upstream], one.model or asked, row), one.weight) for one in rows]

    def _shuffled(self, weighted: list[tuple[Target, float]]) -> list[Target]:
        if len(weighted) == 1:
            return [weighted[0][0]]
        # each gets a random key whose expectation grows with its weight (Efraimidis and Spirakis)
        drawn = [(self._random.random() ** (1 / weight), target) for target, weight in weighted]
        return [target for _, target in sorted(drawn, key=lambda pair: pair[0], reverse=True)]


def able_targets(plan: list[Target], asked: ClientRequest) -> list[Target]:
    """List the targets that can resolve every reference of the request; StoredStateError if there is none."""
    able, refused = [], None
    for target in plan:
        wire = target.upstream.endpoint(target.model).wire.name
        error = None if wire == asked.wire.name else asked.stored_state(wire)
        if error is None:
            able.append(target)
        else:
            refused = refused or error
    if refused is not None and not able:
        raise refused
    return able


def _split(model: str) -> tuple[str, str, str]:
    """Split `upstream/model` or `upstream:model` at the first mark; the model itself may contain either."""
    slash, colon = model.partition("/"), model.partition(":")
    return min(slash, colon, key=lambda parts: len(parts[0]))


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
