"""Choose the targets for a request, and their order; note their outcomes in the health of the targets.

A name is looked up as it is, then by the patterns of the settings, then as `upstream/model`. The targets of a model are
in random order by weight, then the targets of its fallback models; targets in cooldown come last. A request with tools
goes only to models that accept tools, natively or by emulation. A request that refers to a conversation stored by a
provider (`previous_response_id`) goes only to upstreams of its own wire, and to the one that stores it if it is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from logging import INFO, WARNING, getLogger
from random import Random
from typing import get_args
from urllib.parse import quote

from msgspec import Struct

from ...asgi.interruption import Interruption
from ...bridge.conversation.reasoning_envelope import ENVELOPE_WIRES
from ...ir.errors import ConfigError, ToolwireError
from ...ir.hints import translate_hint
from ...ir.parts import MediaKind
from ...ir.response import Fault
from ...ir.terminal import neutralise_line
from ...net.model.endpoint import Endpoint
from ...net.model.endpoint_settings import NO_DEFAULTS
from ...net.model.health import HealthState, TargetHealth
from ...net.model.pass_through import max_same_wire_tools
from ...run.tools.suggestions import NameIndex
from ...wire.documents import no_summary
from ...wire.models.capabilities import ModelCapabilities
from ...wire.models.profiles import overlay, split_model
from ..config.notation import toml_location
from ..config.settings import ModelRow, TargetRow
from ..faults import is_gateway_fault
from .health import HealthTable, SilenceWatch
from .upstreams import ConfiguredUpstream

_log = getLogger("toolwire.gateway")
_MAX_LISTED = 20  # names in an error: enough to see the right one, and a short message
_NO_TOOLS = "send no tools, or use another model; the gateway's operator can set `emulate` for this one"
_REASONING_FIRST_EVENT = 300.0
"""Seconds: OpenAI's reasoning models think for minutes before the first event of a Chat stream. A target that hangs is
noticed earlier, by a probe."""
_NO_CACHE_MARKS = ModelCapabilities(cache_marks=False)
_MAX_REMEMBERED = 1024  # names; clients may request any number of models
_MAX_HEADER_NAME = 200  # characters of a name in a header; percent-encoding makes at most 2.4 kB of it


_MEDIA_KINDS: frozenset[str] = frozenset(get_args(MediaKind))


class UnknownModel(ToolwireError):
    """No row of the settings has this name. The application adds its pointer, and the path that lists the names."""

    default_status = 404
    code = "model_not_found"

    def __init__(self, model: str) -> None:
        super().__init__(f"unknown model {model[:200]!r}")
        self.model = model


class NoTarget(ToolwireError):
    """The model exists, but cannot serve this request."""

    default_status = 400


class Target(Struct, frozen=True):
    """A model at an upstream, and everything about it that does not depend on the request."""

    upstream: ConfiguredUpstream
    model: str  # the upstream's name for it
    row: ModelRow
    label: str
    endpoint: Endpoint  # for chats, or the raw completion endpoint if the settings choose it
    capabilities: ModelCapabilities  # of the settings, of their capabilities file, and of the built-in rows
    kept_wire: str  # requests on it need no change, apart from the model and renamed fields; empty if none do
    plain_wire: str  # the same, if also nothing but the request decides about its answer; see `usual_request`
    url: str  # of requests for a whole answer
    renamed_fields: tuple[str, ...]
    max_tools: int | None  # in a request on its wire
    missing_media: frozenset[str]  # kinds that a request to it cannot have
    refused_media: frozenset[str]  # the same, of the kinds that its wire has
    log_names: tuple[str, str, str, str]  # of the upstream, the model, the provider and the wire
    headers: tuple[tuple[bytes, bytes], ...]  # of its answers: the names of the upstream and the model
    stated_window: int | None  # in the settings and the built-in rows
    health: TargetHealth
    first_event: float  # seconds until the first event of a stream; then another target is tried

    @property
    def window(self) -> int | None:
        """The tokens of prompt and answer that the model accepts at this upstream, or None if they are not certain."""
        sizes = self.upstream.context_sizes
        return self.stated_window if sizes is None else sizes.window(self.model) or self.stated_window

    @property
    def listed_window(self) -> int | None:
        """The window for lists of models: `window`, or else the usual one of models with this name."""
        sizes = self.upstream.context_sizes
        known = None if sizes is None else sizes.window(self.model)
        return known or _limit_window(self.capabilities.window, self.endpoint)


def _limit_window(window: int | None, endpoint: Endpoint) -> int | None:
    context_max = endpoint.context_max
    return window if context_max is None or (window is not None and window < context_max) else context_max


def make_target(upstream: ConfiguredUpstream, model: str, row: ModelRow, table: HealthTable) -> Target:
    """Return the target of a model at an upstream, with its health in `table`.

    Raise ConfigError if the settings choose a raw completion endpoint that the upstream does not have.
    """
    emulation = row.emulation
    if emulation is None or emulation.via == "chat":
        endpoint = upstream.endpoint(model)
    else:
        endpoint = upstream.endpoint(model, emulation.kept_tokens)
    capabilities = overlay(row.capabilities, endpoint.capabilities)
    if upstream.row.cache == "off":
        capabilities = overlay(_NO_CACHE_MARKS, capabilities)
    if row.vision is not None and capabilities.media is None:  # then the settings know that it accepts no images
        media = tuple(sorted(endpoint.wire.capabilities.media - {"image"}))
        capabilities = overlay(ModelCapabilities(media=media, result_media=media), capabilities)
    of_wire = endpoint.wire.capabilities.media
    accepted = of_wire if capabilities.media is None else of_wire.intersection(capabilities.media)
    keeps_requests = (
        row.emulate is None
        and row.repair is None
        and row.retrieval is None
        and capabilities.choice_by_schema is None
        and endpoint.vendor.dialect is None
        and endpoint.vendor.id is None
        and endpoint.defaults is NO_DEFAULTS
        and not endpoint.changes_body
    )
    is_plain = (
        keeps_requests
        and getattr(endpoint.wire, "summarise", no_summary) is not no_summary
        and endpoint.wire.name not in ENVELOPE_WIRES
        and not row.cache
        and upstream.context_sizes is None
        and endpoint.has_fixed_secrets
        and endpoint.vendor.transport is None
    )
    label, renamed_fields = f"{upstream.name}/{model}", tuple(endpoint.renamed_fields)
    log_names = (upstream.name, model, upstream.row.provider or endpoint.wire.provider, endpoint.wire.name)
    headers = ((b"x-toolwire-upstream", _header_value(upstream.name)), (b"x-toolwire-model", _header_value(model)))
    return Target(
        upstream,
        model,
        row,
        label,
        endpoint,
        capabilities,
        endpoint.wire.name if keeps_requests else "",
        endpoint.wire.name if is_plain else "",
        endpoint.url(stream=False),
        renamed_fields,
        max_same_wire_tools(endpoint, capabilities),
        _MEDIA_KINDS - accepted,
        of_wire - accepted,
        log_names,
        headers,
        _limit_window(row.capabilities.window or endpoint.window, endpoint),
        table.health_of(label, upstream.name, upstream.row.retry_budget, can_probe=upstream.prober is not None),
        row.first_event or _default_first_event(upstream, capabilities),
    )


def _default_first_event(upstream: ConfiguredUpstream, capabilities: ModelCapabilities) -> float:
    """Return the upstream's time for a first event, or a longer time for a model that can reason."""
    seconds = upstream.row.first_event
    may_think = capabilities.thinking is not False and (
        capabilities.efforts or capabilities.adaptive or capabilities.budgets or capabilities.thinking
    )
    return max(seconds, _REASONING_FIRST_EVENT) if may_think else seconds


class Router:
    """The targets of each model. `random` orders targets by weight. `health` outlives the router."""

    def __init__(
        self,
        upstreams: Mapping[str, ConfiguredUpstream],
        models: Mapping[str, ModelRow],
        *,
        cooldown: float,
        health: HealthTable,
        random: Random | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._models = models
        self._patterns = sorted((name for name in models if _is_pattern(name)), key=len, reverse=True)
        self._health = health
        health.cooldown = cooldown
        self._watch = SilenceWatch(health, self._note_change)
        self._random = random or Random()
        self.single_targets: dict[
            str, Target
        ] = {}  # of models that were requested before, and where there is no choice
        self._weighted_targets: dict[tuple[str, str], list[tuple[Target, float]]] = {}  # see `_make_targets`
        self._check_completions()

    def _check_completions(self) -> None:
        """Raise ConfigError for an upstream without a raw completion endpoint at the start, not at the first request."""
        for name, row in self._models.items():
            if row.emulation is not None and row.emulation.via == "completions":
                try:
                    self._make_targets(name, name)
                except ConfigError as error:
                    location = toml_location(("models", name, "emulate"))
                    hint = translate_hint(error.hint, "setting")
                    raise ConfigError(f"{location}: {error.message}", hint=hint) from None

    @property
    def upstreams(self) -> list[str]:
        return sorted(self._upstreams)

    def find_upstream(self, name: str) -> ConfiguredUpstream | None:
        return self._upstreams.get(name)

    @property
    def names(self) -> list[str]:
        """The names to list for clients."""
        return sorted(name for name in self._models if not _is_pattern(name))

    def plan(self, model: str, *, tools: bool) -> list[Target]:
        """List the targets for a request, in the order to try them, and send the probes that are due.

        `tools`: the request has tools. Raise UnknownModel, and NoTarget if no target accepts tools.
        """
        single_target = self.single_targets.get(model)
        if single_target is not None and (single_target.row.tools or not tools):
            return [single_target]
        name, row = self._find_row(model)
        plan: list[Target] = []
        for alias in (name, *row.fallbacks):
            plan += self._shuffle_weighted(self._make_targets(alias, model if alias == name else alias))
        capable = [target for target in plan if target.row.tools or not tools]
        if not capable:
            raise NoTarget(f"{model!r} accepts no tools", hint=_NO_TOOLS)
        if len(plan) == 1:
            if len(self.single_targets) >= _MAX_REMEMBERED:
                self.single_targets.clear()
            self.single_targets[model] = plan[0]
            return capable
        self._health.refresh()
        if all(target.health.state == "closed" for target in capable):
            return capable
        now = self._health.clock()
        for target in capable:
            self.probe_if_due(target)
        return sorted(capable, key=lambda target: not target.health.is_preferred(now))

    def first_target(self, model: str) -> Target:
        """Return the first target of a model in the settings. Raise UnknownModel if there is none."""
        name, _ = self._find_row(model)
        return self._make_targets(name, model)[0][0]

    def succeed(self, target: Target, sent_at: float) -> None:
        """Note that a target works, and log and share a change of its state. Usually nothing changes."""
        health = target.health
        if health.is_healthy:
            return
        before = health.state
        health.succeed(self._health.clock(), sent_at)
        if health.state != before:
            self._note_change(target.label, health, before)

    def fail(self, target: Target, sent_at: float, fault: Fault) -> None:
        """Note a failure of a target that another one may not have, and log and share a change of its state."""
        health = target.health
        before, is_timeout = health.state, fault.code == "timeout"
        health.fail(
            self._health.clock(),
            sent_at,
            retry_after=fault.retry_after,
            is_silent=is_timeout or fault.code == "connection",
            is_timeout=is_timeout,
            is_refusal=fault.kind == "not_found" or is_gateway_fault(fault),
        )
        health.is_limited = fault.kind == "rate_limit"
        if health.state != before:
            self._note_change(target.label, health, before, fault.kind)

    def depart(self, target: Target, sent_at: float, *, is_stream: bool) -> None:
        """Note that a client left before the first byte of its answer, and probe the target if that is due."""
        health = target.health
        before = health.state
        health.depart(self._health.clock(), sent_at, is_stream=is_stream)
        if health.state != before:
            self._note_change(target.label, health, before, "clients left without a byte")
        self.probe_if_due(target)

    def watch(self, target: Target, interruption: Interruption) -> None:
        """Interrupt a request that waits for its first byte if the target hangs; until `target.health.end_wait`."""
        target.health.begin_wait(interruption, self._health.clock())
        self._watch.start(target.label, target.health, target.upstream)

    def probe_if_due(self, target: Target) -> None:
        self._watch.check(target.label, target.health, target.upstream)

    def _note_change(self, label: str, health: TargetHealth, before: HealthState, reason: str = "") -> None:
        """Log a change of a target's state, and share it with other processes."""
        level = WARNING if health.state == "open" or health.state == "cooling" else INFO
        because = f" ({reason})" if reason else ""
        _log.log(level, "target %s: %s after %s%s", neutralise_line(label), health.state, before, because)
        self._health.note_change(label, health)

    def _find_row(self, model: str) -> tuple[str, ModelRow]:
        """Look up a model: by name (also with `:` for `/`), by pattern (longest first), then as `upstream/model`.

        `mistral:7b` is no model of an upstream `mistral`. Raise UnknownModel if there is none.
        """
        for name in (model, re.sub("[/:]", "/", model, count=1)):
            if name in self._models:
                return name, self._models[name]
        for pattern in self._patterns:
            if fnmatchcase(model, pattern):
                return pattern, self._models[pattern]
        upstream, upstream_model = split_model(model, self._upstreams)
        if upstream_model and upstream in self._upstreams:
            return model, ModelRow(upstream=upstream, model=upstream_model)
        raise UnknownModel(model)

    def describe_models(self, model: str, may_use: Callable[[str], bool]) -> str:
        """Return a hint with models that a client may use instead of an unknown model: a similar name first."""
        names = [name for name in self.names if may_use(name)]
        close_matches = NameIndex(names).similar(model, 1)
        upstreams = [name for name in self.upstreams if may_use(f"{name}/{model}")]
        hints = [f"did you mean {close_matches[0]!r}?"] if close_matches else []
        if names:
            hints.append(f"available models: {_list_names(names)}")
        if upstreams:
            hints.append(f"write UPSTREAM/MODEL, with an upstream of {_list_names(upstreams)}")
        return "; ".join(hints)

    def _make_targets(self, name: str, requested: str) -> list[tuple[Target, float]]:
        """List the targets of a row with their weights, and remember them.

        `requested` is the model's name where the target has none of its own.
        """
        weighted = self._weighted_targets.get((name, requested))
        if weighted is None:
            if len(self._weighted_targets) >= _MAX_REMEMBERED:
                self._weighted_targets.clear()
            row = self._models[name] if name in self._models else self._find_row(name)[1]
            rows = row.targets or (TargetRow(row.upstream or "", row.model),)
            weighted = self._weighted_targets[name, requested] = [
                (
                    self._make_target(target_row, target_model(target_row.model, name, requested), row),
                    target_row.weight,
                )
                for target_row in rows
            ]
        return weighted

    def _make_target(self, target_row: TargetRow, model: str, row: ModelRow) -> Target:
        return make_target(self._upstreams[target_row.upstream], model, row, self._health)

    def _shuffle_weighted(self, weighted: list[tuple[Target, float]]) -> list[Target]:
        if len(weighted) == 1:
            return [weighted[0][0]]
        # each gets a random key whose expectation grows with its weight (Efraimidis and Spirakis)
        keyed_targets = [(self._random.random() ** (1 / weight), target) for target, weight in weighted]
        return [target for _, target in sorted(keyed_targets, key=lambda pair: pair[0], reverse=True)]


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MAX_LISTED])
    return listed if len(names) <= _MAX_LISTED else f"{listed} and {len(names) - _MAX_LISTED} more"


def target_model(model: str | None, pattern: str, requested: str) -> str:
    """Return the upstream's name for a model. `*` in it is the part that `*` matches in the pattern."""
    if model is None:
        return requested
    if "*" not in model:
        return model
    before, _, after = pattern.partition("*")
    return model.replace("*", requested[len(before) : len(requested) - len(after)])


def _header_value(name: str) -> bytes:
    """Return a name as a header's value, with other characters percent-encoded: a client may have chosen it."""
    return quote(name[:_MAX_HEADER_NAME], safe="/:@+=,()").encode()


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
