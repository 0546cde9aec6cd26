"""Convert a parsed settings file to settings, or list every problem in it.

Names and types are checked first, then the rules that types cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from math import inf
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ...ir.errors import ConfigError
from ...ir.hints import translate_hint
from ...ir.pointer import JSON
from ...wire.models.capabilities import check_capabilities
from .notation import SettingsPath, toml_location
from .settings import KeyRow, ModelRow, Row, Settings, TargetRow

_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": "nothing",
    "date": "a date",
    "datetime": "a time",
}
_KEY_COMMAND_HINT = 'write key_command = ["gcloud", "auth", "print-access-token"]: a list, without a shell'
_HOSTED_HINT = 'set mcp = "http://127.0.0.1:8931/mcp", or command = "npx -y a-server"'
_RETRIEVE_HINT = 'write retrieve = true, or retrieve = {k = 8, always = ["NAME"]}'
_replace_type_lists = re.compile(r"`([^`]*)`").sub  # of messages such as: Expected `int | null`, got `str`


class SettingsProblem(NamedTuple):
    """A problem of the settings: its location, a description, and the way to fix it."""

    path: SettingsPath
    message: str
    hint: str = ""

    @property
    def location(self) -> str:
        return toml_location(self.path)

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.path else self.message


def find_shape_problems(document: JSON) -> list[SettingsProblem]:
    """List unknown names, missing settings and values of a wrong type."""
    return list(_check_value(document, Settings, ()))


def suggest_name(name: str, known: Any, label: str) -> str:
    """Return a hint with the closest known name, or with all of them."""
    close_matches = get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close_matches[0]!r}?" if close_matches else f"{label}: {', '.join(known) or 'none'}"


def _check_value(value: JSON, kind: Any, path: SettingsPath) -> Iterator[SettingsProblem]:
    """Yield the problems of a value of type `kind`. Tables and lists are entered, so that each problem has its path."""
    origin = get_origin(kind)
    if origin in (UnionType, Union):
        kind = _choose_option(value, get_args(kind)) or kind
        origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        yield from _check_table(value, kind, path)
    elif origin is dict and isinstance(value, dict) and get_args(kind)[1] is not Any:
        for name, inner in value.items():
            yield from _check_value(inner, get_args(kind)[1], (*path, name))
    elif origin is tuple and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _check_value(inner, get_args(kind)[0], (*path, number))
    elif origin is Literal and isinstance(value, str):
        if value not in get_args(kind):
            options = ", ".join(repr(option) for option in get_args(kind))
            yield SettingsProblem(path, f"unknown value {value!r}", f"use one of {options}")
    elif path[-1:] == ("key_command",) and isinstance(value, str):
        yield SettingsProblem(path, "must be a list of arguments, got a string", _KEY_COMMAND_HINT)
    else:
        yield from _check_type(value, kind, path)


def _check_table(value: dict[str, Any], kind: type[Struct], path: SettingsPath) -> Iterator[SettingsProblem]:
    """Yield the unknown names, the problems of the values, and the missing names of a table."""
    known, required = _table_shape(kind)
    for name, inner in value.items():
        if name in known:
            yield from _check_value(inner, known[name], (*path, name))
        else:
            yield SettingsProblem((*path, name), "unknown setting", suggest_name(name, known, "known settings"))
    for name in required:
        if name not in value:
            yield SettingsProblem(path, f"{name} is missing", f"set {name}")


@cache  # evaluating the annotations takes 1 ms, for every row of a file
def _table_shape(kind: type[Struct]) -> tuple[dict[str, Any], list[str]]:
    """Return the types of the settings of a table by name, and the names of those without a default."""
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name: hints[field.name] for field in fields(kind)}
    return known, [field.name for field in fields(kind) if field.required]


def _choose_option(value: JSON, options: tuple[Any, ...]) -> Any:
    """Return the option of a union whose shape fits a table, a list or a string, or None if none does.

    Only such options have problems inside the value; any other value is compared with the whole union.
    """
    for option in options:
        is_struct = isinstance(option, type) and issubclass(option, Struct)
        if isinstance(value, dict) and (is_struct or get_origin(option) is dict):
            return option
        if isinstance(value, list) and get_origin(option) is tuple:
            return option
        if isinstance(value, str) and get_origin(option) is Literal:
            return option
    return None


def _check_type(value: JSON, kind: Any, path: SettingsPath) -> Iterator[SettingsProblem]:
    """Yield a problem if msgspec refuses the value, with its message in the terms of TOML."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message = _replace_type_lists(_name_types, str(error).partition(" - at ")[0])
        hint = _RETRIEVE_HINT if path[:1] == ("models",) and path[2:3] == ("retrieve",) else ""
        yield SettingsProblem(path, message[:1].lower() + message[1:], hint)


def _name_types(match: re.Match[str]) -> str:
    """Return the types of msgspec's message in the terms of TOML."""
    names = [name.strip() for name in match[1].split("|")]
    return " or ".join(_TYPES.get(name, name) for name in names if name != "null" or len(names) == 1)


# The rules of the settings that types cannot express: ranges, references between tables, and formats.


MAX_OFFERED = 1_000
"""The maximum of `retrieve.k`: far more than a selection is for, and bounded work for each request."""

SHARED_STATE_HINT = (
    "set url in [state]: a file such as state.db, redis://host:6379/0 or postgresql://user@host/database"
)
"""The hint for several workers without a shared state."""

_POSITIVE_FIELDS = (
    *("workers", "body", "stream_body", "answer", "values", "memory", "head", "slow_client", "ping", "connections"),
    *("requests", "loop_delay", "queue"),
    *("timeout", "idle", "first_event", "key_timeout", "key_ttl", "ttl", "context_max"),
    *("keep_files", "keep_days", "keep_bytes"),
    *("seconds", "max_response_bytes", "max_responses", "max_key_bytes", "max_key_entries", "max_calls", "max_bytes"),
)
_NON_NEGATIVE_FIELDS = (
    *("drain", "heartbeat", "retries", "retry_budget", "cooldown", "cache", "turns", "turn_bytes", "turn_seconds"),
)
_KEY_LIMITS = ("requests_per_minute", "tokens_per_minute", "tokens_per_day")


def find_rule_problems(settings: Settings) -> Iterator[SettingsProblem]:
    """Yield the violated rules of all tables."""
    yield from _check_server(settings)
    for name, row in settings.upstreams.items():
        if row.client_key is not None and row.client_certificate is None:
            path = ("upstreams", name, "client_key")
            yield SettingsProblem(path, "needs a client_certificate", "set client_certificate, too")
    for section in ("server", "limits", "state", "responses", "relay", "trace"):
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
    yield from _check_hosted(settings)
    yield from _check_relay(settings)
    for number, expression in enumerate(settings.log.remove):
        try:
            re.compile(expression)
        except re.error as error:
            message = f"{expression!r} is not a valid regular expression: {error}"
            yield SettingsProblem(("log", "remove", number), message, "use the syntax of Python's re")


def _check_hosted(settings: Settings) -> Iterator[SettingsProblem]:
    for kind, row in settings.hosted.rows.items():
        yield from _check_numbers(row, ("hosted", kind))
        if bool(row.mcp) == bool(row.command):
            yield SettingsProblem(("hosted", kind), "needs exactly one of `mcp` and `command`", _HOSTED_HINT)


def _check_relay(settings: Settings) -> Iterator[SettingsProblem]:
    """Yield the problems of the relay: unknown upstreams, invalid paths, and objects without a persistent store."""
    relay, responses = settings.relay, settings.responses
    for number, name in enumerate(relay.upstreams):
        if settings.upstreams:
            yield from _check_known(name, settings.upstreams, ("relay", "upstreams", number), "upstream")
    for number, path in enumerate(relay.paths):
        if not re.fullmatch(r"(?:GET|POST|DELETE) /\S+", path):
            message = f"{path!r} is not a method and a path"
            yield SettingsProblem(("relay", "paths", number), message, 'write "POST /v1/ocr"')
    if relay.objects and not responses.is_persistent:
        hint = 'set store in [responses], as in store = "objects.db"'
        yield SettingsProblem(("relay", "objects"), "needs a store that outlives the process", hint)


def _check_server(settings: Settings) -> Iterator[SettingsProblem]:
    if settings.server.private_key is not None and settings.server.certificate is None:
        yield SettingsProblem(("server", "private_key"), "needs a certificate", "set certificate, too")
    if settings.server.workers > 1 and settings.state.url is None and settings.state.url_env is None:
        message = "several workers need a state to share limits, turns and cooldowns"
        yield SettingsProblem(("server", "workers"), message, SHARED_STATE_HINT)


def _check_numbers(row: Row, path: SettingsPath) -> Iterator[SettingsProblem]:
    """Yield the numbers of a row that are out of range, by the names of their settings."""
    for name in row.__struct_fields__:
        number = getattr(row, name)
        if isinstance(number, str):
            continue  # `cache` of an upstream
        if name in _POSITIVE_FIELDS and number is not None and not 0 < number < inf:
            yield SettingsProblem((*path, name), f"must be positive and finite, got {number}", "use a number above 0")
        if name in _NON_NEGATIVE_FIELDS and not 0 <= number < inf:
            yield SettingsProblem((*path, name), f"must be at least 0 and finite, got {number}", "use 0 or more")


def _check_model(name: str, model: ModelRow, settings: Settings) -> Iterator[SettingsProblem]:
    """Yield the problems of a model: its targets, fallbacks, capabilities, emulation, retrieval and repair model."""
    path: SettingsPath = ("models", name)
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
    yield from _check_vision(name, model, settings)


def _check_wildcard(name: str, model: str | None, path: SettingsPath) -> Iterator[SettingsProblem]:
    """Check that `*` in the upstream's name of a model has a counterpart: the only wildcard of the model's own name."""
    if model is None or "*" not in model:
        return
    if (model.count("*"), name.count("*")) != (1, 1) or "?" in name or "[" in name:
        message = f"{model!r} needs exactly one `*` in the name of the model, got {name!r}"
        yield SettingsProblem(path, message, "it stands for the text that `*` matches in the name")


def _check_emulation(name: str, model: ModelRow) -> Iterator[SettingsProblem]:
    """Yield a problem if the text format is unknown or, for the completion endpoint, a target's chat template."""
    emulation = model.emulation
    if emulation is None:
        return
    try:
        for target in model.targets or (TargetRow("", model.model),):
            emulation.prompt_options(target.model or name)
    except ConfigError as error:
        yield SettingsProblem(("models", name, "emulate"), error.message, translate_hint(error.hint, "setting"))


def _check_retrieval(model: ModelRow, path: SettingsPath) -> Iterator[SettingsProblem]:
    """Yield the problems of a selection of tools: its number, empty names, and a model that accepts no tools."""
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
    """Yield a problem unless this model has emulated calls, and the repairing model exists and has native calls."""
    if model.repair_model is None:
        return
    path: SettingsPath = ("models", name, "repair_model")
    if model.emulate is None:
        yield SettingsProblem(path, "needs emulated calls", "set `emulate`, or remove it")
        return
    repairing = models.get(model.repair_model)
    if repairing is None:
        yield from _check_known(model.repair_model, models, path, "model")
    elif repairing.emulate is not None or not repairing.tools:
        yield SettingsProblem(path, f"{model.repair_model!r} has no native calls", "choose a model that has them")


def _check_vision(name: str, model: ModelRow, settings: Settings) -> Iterator[SettingsProblem]:
    """Yield a problem unless the model that describes images exists and accepts them."""
    if model.vision is None:
        return
    path: SettingsPath = ("models", name, "vision")
    upstream, is_direct, _ = model.vision.partition("/")
    describing = settings.models.get(model.vision, ModelRow() if is_direct and upstream in settings.upstreams else None)
    if describing is None:
        yield from _check_known(model.vision, settings.models, path, "model")
    elif describing.vision is not None or describing.capabilities.media == ():
        yield SettingsProblem(path, f"{model.vision!r} accepts no images", "choose a model that does")


def _check_keys(keys: Mapping[str, KeyRow]) -> Iterator[SettingsProblem]:
    """Yield the problems of names, hashes and limits of keys. Two names for one key would make its owner ambiguous."""
    owners: dict[str, str] = {}
    for name, key in keys.items():
        path: SettingsPath = ("keys", name)
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


def _check_known(name: str, table: Mapping[str, object], path: SettingsPath, noun: str) -> Iterator[SettingsProblem]:
    """Check a reference to a row, with the closest known name as a hint. `noun` is the kind of row."""
    if name not in table:
        yield SettingsProblem(path, f"unknown {noun} {name!r}", suggest_name(name, table, f"known {noun}s"))


_NAMED_TABLES = ("upstreams", "models", "keys", "tools")  # `hosted` has a fixed set of names


class ParsedSettings(msgspec.Struct, frozen=True):
    """The valid part of a settings file, and the problems of the rest."""

    settings: Settings
    problems: tuple[SettingsProblem, ...] = ()


def parse_settings(document: JSON) -> Settings:
    """Convert a parsed file to settings. Raise ConfigError with the first problem and the number of the others."""
    parsed = parse_valid_part(document)
    if parsed.problems:
        raise _make_error(parsed.problems)
    return parsed.settings


def parse_valid_part(document: JSON) -> ParsedSettings:
    """Convert the valid part of a parsed file, and list all problems.

    The rules of a table are checked only if its names and types are valid: a misspelt setting is one problem.
    """
    problems = find_shape_problems(document)
    settings = msgspec.convert(_without(document, problems) if problems else document, Settings)
    invalid = {problem.path[:2] for problem in problems}
    problems += [problem for problem in find_rule_problems(settings) if problem.path[:2] not in invalid]
    return ParsedSettings(settings, tuple(problems))


def _make_error(problems: Sequence[SettingsProblem]) -> ConfigError:
    message = str(problems[0])
    if len(problems) > 1:
        noun = "problem" if len(problems) == 2 else "problems"
        message += f"; {len(problems) - 1} more {noun}: run `toolwire serve check`"
    return ConfigError(message, hint=problems[0].hint or "`toolwire serve init` writes an example")


def _without(document: JSON, problems: Sequence[SettingsProblem]) -> Any:
    """Return the document without the settings that have problems, so that the rest can be converted.

    Named rows stay, because other tables refer to them, except for keys without their hash, which is required.
    """
    if not isinstance(document, dict):
        return {}
    removed: set[SettingsPath] = set()
    for path, *_ in problems:
        keeps_row = path[0] in _NAMED_TABLES and path[::2] != ("keys", "hash")
        removed.add(path[: 3 if keeps_row else 2])
    return _prune(document, (), removed)


def _prune(value: Any, path: SettingsPath, removed: set[SettingsPath]) -> Any:
    if not isinstance(value, dict) or len(path) == 3:
        return value
    inner = {name: (entry, (*path, name)) for name, entry in value.items()}
    return {name: _prune(entry, where, removed) for name, (entry, where) in inner.items() if where not in removed}
