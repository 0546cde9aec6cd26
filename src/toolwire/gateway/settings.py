"""The values of `toolwire.toml`. The error for an unknown name contains its location and the closest known name.

[upstreams.NAME]   a provider and its key        [models.NAME]   a model for clients, and its upstreams
[keys.NAME]        the key of a client           [server] [limits] [state] [responses] [log] [trace]   the rest
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from math import inf
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ..bridge.emulation_settings import EmulationSettings
from ..ir.errors import ConfigError
from ..ir.pointer import JSON
from ..ir.tools import Effect
from ..wire.capability_rows import UNKNOWN_MODEL, ModelCapabilities, check_capabilities

__all__ = [
    "EmulateRow",
    "KeyRow",
    "LimitsRow",
    "LogRow",
    "ModelRow",
    "OpenApiRow",
    "ResponsesRow",
    "ServerRow",
    "Settings",
    "StateRow",
    "TargetRow",
    "ToolsRow",
    "TraceRow",
    "UpstreamRow",
    "parse_settings",
    "resolve_address",
]

_MEGABYTE = 1024 * 1024


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class ServerRow(Row, frozen=True):
    host: str = "127.0.0.1"
    port: int = 4141
    hosts: tuple[str, ...] = ()  # host names that clients may use, besides those of this machine
    origins: tuple[str, ...] = ()  # origins of web pages that may send requests
    drain: float = 30.0  # seconds for in-flight requests when the server stops
    certificate: str | None = None  # a PEM file with the certificate chain; then clients use https
    private_key: str | None = None  # a PEM file; default: in the same file as the certificate


class UpstreamRow(Row, frozen=True):
    """A provider. Its key comes from its usual variable, from `key_env`, from `key_file` or from `key_command`."""

    provider: str | None = None
    wire: str | None = None
    base_url: str | None = None
    api_version: str | None = None
    project: str | None = None  # of Google Cloud
    location: str | None = None  # of Google Cloud
    key_env: str | None = None
    key_file: str | None = None
    key_command: tuple[str, ...] | None = None  # a program and its arguments; it prints the key
    key_timeout: float = 10.0  # seconds for the command
    key_ttl: float = 300.0  # seconds that a key is cached if the command does not report when it expires
    auth: Literal["key", "bearer"] | None = None  # the header of the key: the provider's own, or `Authorization`
    headers: dict[str, str] = {}  # additional headers; `${NAME}` is an environment variable
    extra_body: dict[str, Any] = {}  # fields to merge into the encoded body
    defaults: dict[str, Any] = {}  # parameters for requests that do not set them
    timeout: float = 600.0  # seconds for a whole answer
    idle: float = 300.0  # seconds without a byte
    retries: int = 2
    insecure: bool = False  # allow plain HTTP to other machines
    keeps_responses: bool | None = None  # it stores Responses itself; default: whether its provider does


class TargetRow(Row, frozen=True):
    upstream: str
    model: str | None = None  # the upstream's name for it; default: the name that the client uses
    weight: float = 1.0  # the share of requests, relative to other targets


class EmulateRow(Row, frozen=True):
    """The text format of emulated calls, at the chat endpoint or with a raw prompt at the completion endpoint."""

    format: str
    via: Literal["chat", "completions"] = "chat"
    template: str | None = None  # a chat template, for completions; default: by the names of the model and the format
    reasoning: Literal["open", "closed"] | None = None  # for completions: the prompt opens or excludes reasoning


class ModelRow(Row, frozen=True):
    """A model for clients: one upstream (`upstream`, `model`) or several (`targets`). `fallbacks` are other models."""

    upstream: str | None = None
    model: str | None = None
    targets: tuple[TargetRow, ...] = ()
    fallbacks: tuple[str, ...] = ()
    emulate: str | EmulateRow | None = None  # a text format, for a model without usable native tool calls
    tools: bool = True  # whether the model accepts tools
    repair: Literal["strict", "safe", "aggressive"] | None = None
    repair_model: str | None = None  # another model, with native calls, that repairs emulated calls of this one
    retrieve: bool = False  # choose among the client's tools, if the gateway has a retriever
    cache: float = 0.0  # seconds that a whole answer is cached for an identical request
    capabilities: ModelCapabilities = UNKNOWN_MODEL  # facts about the model; the built-in ones are the default

    @property
    def emulation(self) -> EmulationSettings | None:
        row = self.emulate
        if row is None or isinstance(row, str):
            return None if row is None else EmulationSettings(row)
        return EmulationSettings(row.format, row.via, row.template, row.reasoning)


class KeyRow(Row, frozen=True):
    """A client's key, by its hash. `models` are patterns."""

    hash: str
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None


class LimitsRow(Row, frozen=True):
    """Limits of the gateway: sizes in bytes, times in seconds."""

    body: int = 32 * _MEGABYTE  # bytes of a request
    answer: int = 64 * _MEGABYTE  # bytes of an answer
    values: int = 1_000_000  # JSON values of a request, and of an answer
    memory: int = 1024 * _MEGABYTE  # bytes of all requests in flight, with everything that is made of them
    head: int = 64 * 1024  # bytes of a request before its body
    slow_client: float = 30.0  # seconds for a request's head, for its body, and for reading part of the answer
    ping: float = 15.0  # seconds of silence before a keep-alive
    cooldown: float = 10.0  # seconds of cooldown for a failing target
    connections: int = 256  # to upstreams


class StateRow(Row, frozen=True):
    """State shared by processes: `redis://…` for limits and turns, a file or `postgresql://…` for usage.

    An address with a password comes from a variable: `url_env`, `usage_env`.
    """

    url: str | None = None
    url_env: str | None = None
    usage: str | None = None
    usage_env: str | None = None
    strict: bool = False  # refuse requests while the shared state is unavailable
    turns: int = 10_000  # in the memory of one process
    turn_bytes: int = 64 * _MEGABYTE  # in the memory of one process
    turn_seconds: float = 24 * 3600.0


class ResponsesRow(Row, frozen=True):
    """Responses stored by the gateway, for upstreams that do not: a file, `redis://…` or `postgresql://…`.

    Without a store, nothing is stored. An address with a password comes from a variable: `store_env`.
    """

    store: str | None = None
    store_env: str | None = None
    seconds: float = 24 * 3600.0  # after the last use
    max_turn_bytes: int = _MEGABYTE  # of one response with its input; a larger one is not stored
    max_turns: int = 500  # of one conversation
    max_key_bytes: int = 64 * _MEGABYTE  # of one client's key; beyond it, the oldest responses are dropped
    max_key_entries: int = 10_000  # of one client's key


class LogRow(Row, frozen=True):
    """One line per request, written to `file`, or `to` standard error, Python's logging, or nowhere."""

    to: Literal["stderr", "logger", "nowhere"] | None = None  # default: stderr, if no terminal shows a table
    file: str | None = None
    bodies: bool = False  # also the texts of requests and answers, without apparent secrets
    remove: tuple[str, ...] = ()  # regular expressions for other texts to remove


class TraceRow(Row, frozen=True):
    otel: bool | None = None  # spans over OTLP; default: whether OTEL_EXPORTER_OTLP_ENDPOINT is set
    record: str | None = None  # a folder; every exchange is recorded as a file in it
    shorten_media: bool = False  # in the recorded files


class OpenApiRow(Row, frozen=True):
    """An API whose operations are tools: the file of its OpenAPI document, and the URL that requests are sent to.

    `auth_env` names the environment variable with the credential, or one for each security scheme.
    """

    file: str
    base_url: str
    auth_env: str | dict[str, str] | None = None
    tags: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()  # names of tools, or METHOD /path, with * as a wildcard
    headers: dict[str, str] = {}  # sent with every request; ${NAME} is an environment variable
    timeout: float = 30.0
    insecure: bool = False  # permit http to another machine

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by security scheme; the scheme is empty for the only one."""
        if self.auth_env is None:
            return {}
        return {"": self.auth_env} if isinstance(self.auth_env, str) else self.auth_env


class ToolsRow(Row, frozen=True):
    """Tools run by the gateway: functions in files, MCP servers in the usual `mcpServers` file, OpenAPI documents.

    `publish` also offers them to MCP clients at `/mcp`. `approve`: effects whose calls wait for `toolwire runs approve`.
    """

    files: tuple[str, ...] = ()
    mcp: str | None = None
    openapi: tuple[OpenApiRow, ...] = ()
    store: str = "memory:"  # the store that records calls
    ttl: float = 86400.0  # seconds that the result of a recorded call is kept
    publish: bool = False
    approve: tuple[Effect, ...] = ()


class Settings(Row, frozen=True):
    """The whole file. An empty `upstreams` means: all providers whose key is in the environment."""

    server: ServerRow = ServerRow()
    upstreams: dict[str, UpstreamRow] = {}
    models: dict[str, ModelRow] = {}
    keys: dict[str, KeyRow] = {}
    limits: LimitsRow = LimitsRow()
    state: StateRow = StateRow()
    responses: ResponsesRow = ResponsesRow()
    log: LogRow = LogRow()
    trace: TraceRow = TraceRow()
    tools: dict[str, ToolsRow] = {}  # by model pattern
    capabilities_file: str | None = None  # a JSON file of capability rows, which come before the built-in ones


def parse_settings(document: JSON) -> Settings:
    """Convert a parsed file to settings. ConfigError names the location."""
    _refuse_unknown(document, Settings, "")
    _refuse_shell_commands(document)
    try:
        settings = msgspec.convert(document, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(_format_validation_error(str(error)), hint="see the example in docs/gateway.md") from None
    if settings.server.private_key is not None and settings.server.certificate is None:
        raise ConfigError("server.private_key needs a certificate", hint="set server.certificate, too")
    _check(settings)
    return settings


def _refuse_unknown(value: JSON, kind: object, path: str) -> None:
    """Refuse unknown names and values as far as the shape fits; msgspec reports a wrong shape."""
    if isinstance(kind, type) and issubclass(kind, (Row, ModelCapabilities)) and isinstance(value, dict):
        known = get_type_hints(kind)
        for name, inner in value.items():
            if name not in known:
                close_matches = get_close_matches(name, known, 1, 0.5)
                hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"known settings: {', '.join(known)}"
                raise ConfigError(f"unknown setting {name!r} in {path or 'the file'}", hint=hint)
            _refuse_unknown(inner, known[name], f"{path}.{name}".lstrip("."))
    elif get_origin(kind) is dict and isinstance(value, dict):
        for name, inner in value.items():
            _refuse_unknown(inner, get_args(kind)[1], f"{path}.{name}")
    elif get_origin(kind) in (UnionType, Union):
        for option in get_args(kind):
            _refuse_unknown(value, option, path)
    elif get_origin(kind) is Literal and isinstance(value, str) and value not in get_args(kind):
        options = ", ".join(repr(option) for option in get_args(kind))
        raise ConfigError(f"unknown value {value!r} of {path}", hint=f"use one of {options}")
    elif get_origin(kind) is tuple and isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_unknown(inner, get_args(kind)[0], f"{path}[{number}]")


def _refuse_shell_commands(document: JSON) -> None:
    """Refuse a `key_command` as one string, which would need a shell, with the form that is correct."""
    rows = document.get("upstreams") if isinstance(document, dict) else None
    for name, row in rows.items() if isinstance(rows, dict) else ():
        if isinstance(row, dict) and isinstance(row.get("key_command"), str):
            hint = 'write key_command = ["gcloud", "auth", "print-access-token"]: a list, without a shell'
            raise ConfigError(f"upstreams.{name}.key_command must be a list of arguments, got a string", hint=hint)


def _format_validation_error(message: str) -> str:
    return re.sub(r" - at `\$\.?(.*)`", r" in \1", message)


# settings that must be positive, and settings that may be 0
_POSITIVE_FIELDS = (
    *("body", "answer", "values", "memory", "head", "slow_client", "ping", "connections"),
    *("timeout", "idle", "key_timeout", "key_ttl", "ttl"),
    *("seconds", "max_turn_bytes", "max_turns", "max_key_bytes", "max_key_entries"),
)
_NON_NEGATIVE_FIELDS = ("drain", "retries", "cooldown", "cache", "turns", "turn_bytes", "turn_seconds")


def _check_numbers(row: Row, location: str) -> None:
    """Check the range of each number of a row."""
    for name in row.__struct_fields__:
        number = getattr(row, name)
        if name in _POSITIVE_FIELDS and not 0 < number < inf:
            raise ConfigError(
                f"{location}.{name} must be positive and finite, got {number}", hint="use a number above 0"
            )
        if name in _NON_NEGATIVE_FIELDS and not 0 <= number < inf:
            raise ConfigError(f"{location}.{name} must be at least 0 and finite, got {number}", hint="use 0 or more")


def _check(settings: Settings) -> None:
    """Check the rules that types cannot express: ranges, references between tables, and formats."""
    for section in ("server", "limits", "state", "responses"):
        _check_numbers(getattr(settings, section), section)
    for table in ("upstreams", "models", "tools"):
        for name, row in getattr(settings, table).items():
            _check_numbers(row, f"{table}.{name}")
    for name, model in settings.models.items():
        _check_model(name, model, settings)
    _check_keys(settings.keys)
    for pattern, tools in settings.tools.items():
        if not tools.files and tools.mcp is None and not tools.openapi:
            raise ConfigError(
                f"tools.{pattern} has no tools", hint="set files = […], mcp = a file of servers, or openapi = […]"
            )
    for pattern in settings.log.remove:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"log.remove: {pattern!r} is not a valid regular expression: {error}") from None


def _check_model(name: str, model: ModelRow, settings: Settings) -> None:
    """Check the targets, fallbacks, capabilities and emulation of a model."""
    location = f"models.{name}"
    if (model.upstream is None) == (not model.targets):
        raise ConfigError(f"{location} needs exactly one of `upstream` and `targets`")
    for target in model.targets or (TargetRow(model.upstream or ""),):
        _check_known(target.upstream, settings.upstreams, location, "upstream")
        if not 0 < target.weight < inf:
            raise ConfigError(
                f"{location}: a weight must be positive and finite, got {target.weight}", hint="use a number above 0"
            )
    check_capabilities(model.capabilities, f"{location}.capabilities")
    for fallback in model.fallbacks:
        _check_known(fallback, settings.models, f"{location}.fallbacks", "model")
    _check_emulation(name, model)
    _check_repair_model(name, model, settings.models)


def _check_emulation(name: str, model: ModelRow) -> None:
    """Check the text format and, for the completion endpoint, the chat template of each target."""
    emulation = model.emulation
    if emulation is None:
        return
    try:
        for target in model.targets or (TargetRow("", model.model),):
            emulation.prompt_options(target.model or name)
    except ConfigError as error:
        raise ConfigError(f"models.{name}.emulate: {error.message}", hint=error.hint) from None


def _check_repair_model(name: str, model: ModelRow, models: dict[str, ModelRow]) -> None:
    """Check that the repairing model exists and has native calls, and that this model has emulated ones."""
    if model.repair_model is None:
        return
    location = f"models.{name}.repair_model"
    if model.emulate is None:
        raise ConfigError(f"{location} needs emulated calls", hint="set `emulate`, or remove it")
    _check_known(model.repair_model, models, location, "model")
    repairing = models[model.repair_model]
    if repairing.emulate is not None or not repairing.tools:
        raise ConfigError(
            f"{location}: {model.repair_model!r} has no native calls", hint="choose a model that has them"
        )


def _check_keys(keys: dict[str, KeyRow]) -> None:
    """Check names, hashes and limits of keys. Two names for one key would make its owner ambiguous."""
    owners: dict[str, str] = {}
    for name, key in keys.items():
        if not name.strip():
            raise ConfigError("a key has no name", hint="write [keys.NAME], with the name of its owner")
        if not re.fullmatch(r"[0-9a-f]{64}", key.hash):
            raise ConfigError(f"keys.{name}.hash is not a SHA-256 hash", hint="run `toolwire serve keys new NAME`")
        if owners.setdefault(key.hash, name) != name:
            raise ConfigError(f"keys.{name} and keys.{owners[key.hash]} are the same key", hint="remove one of them")
        for limit in ("requests_per_minute", "tokens_per_minute", "tokens_per_day"):
            maximum = getattr(key, limit)
            if maximum is not None and maximum < 1:
                hint = "omit it to set no limit; revoke the key to allow no requests"
                raise ConfigError(f"keys.{name}.{limit} must be at least 1, got {maximum}", hint=hint)


def _check_known(
    name: str, table: dict[str, object] | dict[str, UpstreamRow] | dict[str, ModelRow], location: str, noun: str
) -> None:
    """Refuse a reference to an unknown row, with the closest known name as a hint. `noun` is the kind of row."""
    if name not in table:
        close_matches = get_close_matches(name, table, 1, 0.5)
        hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"known: {', '.join(table) or 'none'}"
        raise ConfigError(f"{location} names an unknown {noun}: {name!r}", hint=hint)


def resolve_address(value: str | None, variable: str | None, name: str, environment: Mapping[str, str]) -> str | None:
    """Return an address of the settings, or that of the environment variable. `name` is the setting, for errors."""
    if value is not None and variable is not None:
        raise ConfigError(f"{name} and {name}_env are both set", hint="remove one of them")
    if variable is None:
        return value
    found = environment.get(variable, "").strip()
    if not found:
        raise ConfigError(f"{name}_env: environment variable {variable} is not set")
    return found
