"""The rules of the settings that types cannot express: ranges, references between tables, and formats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf

from ..ir.errors import ConfigError
from ..ir.hints import translate_hint
from ..wire.models.capabilities import check_capabilities
from .settings import KeyRow, ModelRow, Row, Settings, TargetRow
from .settings_location import Path, toml_location
from .settings_shape import SettingsProblem, suggest_name

__all__ = ["MAX_OFFERED", "SHARED_STATE_HINT", "find_rule_problems"]

MAX_OFFERED = 1_000
"""The maximum of `retrieve.k`."""

SHARED_STATE_HINT = (
    "set url in [state]: a file such as state.db, redis://host:6379/0 or postgresql://user@host/database"
)
"""The hint for several workers without a shared state."""

# settings that must be positive, and settings that may be 0
_POSITIVE_FIELDS = (
    *("workers", "body", "stream_body", "answer", "values", "memory", "head", "slow_client", "ping", "connections"),
    *("requests", "loop_delay", "queue"),
    *("timeout", "idle", "first_event", "key_timeout", "key_ttl", "ttl", "context_max"),
    *("keep_files", "keep_days", "keep_bytes"),
    *("seconds", "max_response_bytes", "max_responses", "max_key_bytes", "max_key_entries"),
)
_NON_NEGATIVE_FIELDS = (
    *("drain", "heartbeat", "retries", "retry_budget", "cooldown", "cache", "turns", "turn_bytes", "turn_seconds"),
)
_KEY_LIMITS = ("requests_per_minute", "tokens_per_minute", "tokens_per_day")


def find_rule_problems(settings: Settings) -> list[SettingsProblem]:
    """List every violated rule."""
    return list(_check(settings))


def _check(settings: Settings) -> Iterator[SettingsProblem]:
    yield from _check_server(settings)
    for name, row in settings.upstreams.items():
        if row.client_key is not None and row.client_certificate is None:
            path = ("upstreams", name, "client_key")
            yield SettingsProblem(path, "needs a client_certificate", "set client_certificate, too")
    for section in ("server", "limits", "state", "responses", "trace"):
        yield from _check_numbers(getattr(settings, section), (section,))
    for table in ("upstreams", "models", "tools"):
        for name, row in getattr(settings, table).items():
            yield from _check_numbers(row, (table, name))
    for name, model in settings.models.items():
        yield from _check_model(name, model, settings)
    yield from _check_keys(settings.keys)
    for pattern, tools in settings.tools.items():
        if not tools.files and tools.mcp is None and not tools.openapi:
            hint = "set files = […], mcp = a file of servers, or openapi = […]"
            yield SettingsProblem(("tools", pattern), "has no tools", hint)
    for number, expression in enumerate(settings.log.remove):
        try:
            re.compile(expression)
        except re.error as error:
            message = f"{expression!r} is not a valid regular expression: {error}"
            yield SettingsProblem(("log", "remove", number), message, "use the syntax of Python's re")


def _check_server(settings: Settings) -> Iterator[SettingsProblem]:
    if settings.server.private_key is not None and settings.server.certificate is None:
        yield SettingsProblem(("server", "private_key"), "needs a certificate", "set certificate, too")
    if settings.server.workers > 1 and settings.state.url is None and settings.state.url_env is None:
        message = "several workers need a state to share limits, turns and cooldowns"
        yield SettingsProblem(("server", "workers"), message, SHARED_STATE_HINT)


def _check_numbers(row: Row, path: Path) -> Iterator[SettingsProblem]:
    """Check the range of each number of a row."""
    for name in row.__struct_fields__:
        number = getattr(row, name)
        if isinstance(number, str):
            continue  # `cache` of an upstream
        if name in _POSITIVE_FIELDS and number is not None and not 0 < number < inf:
            yield SettingsProblem((*path, name), f"must be positive and finite, got {number}", "use a number above 0")
        if name in _NON_NEGATIVE_FIELDS and not 0 <= number < inf:
            yield SettingsProblem((*path, name), f"must be at least 0 and finite, got {number}", "use 0 or more")


def _check_model(name: str, model: ModelRow, settings: Settings) -> Iterator[SettingsProblem]:
    """Check the targets, fallbacks, capabilities and emulation of a model."""
    path: Path = ("models", name)
    if (model.upstream is None) == (not model.targets):
        hint = "set `upstream` for one upstream, or `targets` for several"
        yield SettingsProblem(path, "needs exactly one of `upstream` and `targets`", hint)
    elif model.upstream is not None:
        yield from _check_known(model.upstream, settings.upstreams, (*path, "upstream"), "upstream")
    yield from _check_wildcard(name, model.model, (*path, "model"))
    for number, target in enumerate(model.targets):
        target_path = (*path, "targets", number)
        yield from _check_known(target.upstream, settings.upstreams, (*target_path, "upstream"), "upstream")
        yield from _check_wildcard(name, target.model, (*target_path, "model"))
        if not 0 < target.weight < inf:
            message = f"a weight must be positive and finite, got {target.weight}"
            yield SettingsProblem((*target_path, "weight"), message, "use a number above 0")
    try:
        check_capabilities(model.capabilities, "capabilities")
    except ConfigError as error:
        yield SettingsProblem(path, error.message, translate_hint(error.hint, "setting"))
    for number, fallback in enumerate(model.fallbacks):
        yield from _check_known(fallback, settings.models, (*path, "fallbacks", number), "model")
    yield from _check_emulation(name, model)
    yield from _check_retrieval(model, path)
    yield from _check_repair_model(name, model, settings.models)


def _check_wildcard(name: str, model: str | None, path: Path) -> Iterator[SettingsProblem]:
    """Check that `*` in the upstream's name of a model has a counterpart: the only wildcard of the model's own name."""
    if model is None or "*" not in model:
        return
    if (model.count("*"), name.count("*")) != (1, 1) or "?" in name or "[" in name:
        message = f"{model!r} needs exactly one `*` in the name of the model, got {name!r}"
        yield SettingsProblem(path, message, "it stands for the text that `*` matches in the name")


def _check_emulation(name: str, model: ModelRow) -> Iterator[SettingsProblem]:
    """Check the text format and, for the completion endpoint, the chat template of each target."""
    emulation = model.emulation
    if emulation is None:
        return
    try:
        for target in model.targets or (TargetRow("", model.model),):
            emulation.prompt_options(target.model or name)
    except ConfigError as error:
        yield SettingsProblem(("models", name, "emulate"), error.message, translate_hint(error.hint, "setting"))


def _check_retrieval(model: ModelRow, path: Path) -> Iterator[SettingsProblem]:
    """Check the number of tools to offer, and that the model accepts tools."""
    retrieval = model.retrieval
    if retrieval is None:
        return
    if not model.tools:
        yield SettingsProblem((*path, "retrieve"), "the model accepts no tools", "remove retrieve, or tools = false")
    if not 1 <= retrieval.k <= MAX_OFFERED:
        message = f"must be from 1 to {MAX_OFFERED}, got {retrieval.k}"
        yield SettingsProblem((*path, "retrieve", "k"), message, "8 is the default; the model searches for others")
    for number, tool in enumerate(retrieval.always):
        if not tool.strip():
            yield SettingsProblem((*path, "retrieve", "always", number), "is empty", "write the name of a tool")


def _check_repair_model(name: str, model: ModelRow, models: Mapping[str, ModelRow]) -> Iterator[SettingsProblem]:
    """Check that the repairing model exists and has native calls, and that this model has emulated ones."""
    if model.repair_model is None:
        return
    path: Path = ("models", name, "repair_model")
    if model.emulate is None:
        yield SettingsProblem(path, "needs emulated calls", "set `emulate`, or remove it")
        return
    repairing = models.get(model.repair_model)
    if repairing is None:
        yield from _check_known(model.repair_model, models, path, "model")
    elif repairing.emulate is not None or not repairing.tools:
        yield SettingsProblem(path, f"{model.repair_model!r} has no native calls", "choose a model that has them")


def _check_keys(keys: Mapping[str, KeyRow]) -> Iterator[SettingsProblem]:
    """Check names, hashes and limits of keys. Two names for one key would make its owner ambiguous."""
    owners: dict[str, str] = {}
    for name, key in keys.items():
        path: Path = ("keys", name)
        if not name.strip():
            yield SettingsProblem(path, "a key has no name", "write [keys.NAME], with the name of its owner")
        if not re.fullmatch(r"[0-9a-f]{64}", key.hash):
            yield SettingsProblem((*path, "hash"), "is not a SHA-256 hash", "run `toolwire serve keys new NAME`")
        elif owners.setdefault(key.hash, name) != name:
            other = toml_location(("keys", owners[key.hash]))
            yield SettingsProblem(path, f"is the same key as {other}", "remove one of them")
        for limit in _KEY_LIMITS:
            maximum = getattr(key, limit)
            if maximum is not None and maximum < 1:
                hint = "omit it to set no limit; revoke the key to allow no requests"
                yield SettingsProblem((*path, limit), f"must be at least 1, got {maximum}", hint)


def _check_known(name: str, table: Mapping[str, object], path: Path, noun: str) -> Iterator[SettingsProblem]:
    """Check a reference to a row, with the closest known name as a hint. `noun` is the kind of row."""
    if name not in table:
        yield SettingsProblem(path, f"unknown {noun} {name!r}", suggest_name(name, table, f"known {noun}s"))
