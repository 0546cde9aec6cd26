"""`toolwire.toml` as values. An unknown name is an error that says where, and which one was meant.

[upstreams.NAME]   a provider and its key        [models.NAME]   what clients ask for, and who answers it
[keys.NAME]        who may ask                   [server] [limits] [state] [log] [trace]   the rest
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ..ir.errors import ConfigError
from ..ir.pointer import JSON

__all__ = [
    "KeyRow",
    "LimitsRow",
    "LogRow",
    "ModelRow",
    "ServerRow",
    "Settings",
    "StateRow",
    "TargetRow",
    "ToolsRow",
    "TraceRow",
    "UpstreamRow",
    "from_document",
    "load",
]

_MEGABYTE = 1024 * 1024


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class ServerRow(Row, frozen=True):
    host: str = "127.0.0.1"
    port: int = 4141
    hosts: tuple[str, ...] = ()  # names that clients may call us by, besides those of this machine
    origins: tuple[str, ...] = ()  # web pages that may ask us
    drain: float = 30.0  # seconds that running requests get when the server stops


class UpstreamRow(Row, frozen=True):
    """A provider. Its key comes from the variable that the provider is known for, from `key_env` or from `key_file`."""

    provider: str | None = None
    wire: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    timeout: float = 600.0  # seconds for a whole answer
    idle: float = 300.0  # seconds without a byte
    retries: int = 2
    insecure: bool = False


class TargetRow(Row, frozen=True):
    upstream: str
    model: str | None = None  # as the upstream calls it; the name that the client uses where nothing is said
    weight: float = 1.0


class ModelRow(Row, frozen=True):
    """What a client asks for. One upstream (`upstream`, `model`) or several (`targets`), then `fallbacks`: other models."""

    upstream: str | None = None
    model: str | None = None
    targets: tuple[TargetRow, ...] = ()
    fallbacks: tuple[str, ...] = ()
    emulate: str | None = None  # a text format, for a model without native calls
    tools: bool = True  # whether it can be given tools at all
    repair: Literal["strict", "safe", "aggressive"] | None = None
    retrieve: bool = False  # choose among the client's tools, where the gateway has something to choose with
    cache: float = 0.0  # seconds that a whole answer is kept for the same request


class KeyRow(Row, frozen=True):
    """A client's key, by its hash. `models` are patterns."""

    hash: str
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None


class LimitsRow(Row, frozen=True):
    body: int = 32 * _MEGABYTE
    answer: int = 64 * _MEGABYTE
    head: int = 64 * 1024  # bytes of a request before its body
    slow_client: float = 30.0  # seconds for a request's head, for its body, and for taking something of the answer
    ping: float = 15.0  # seconds of silence before a sign of life
    cooldown: float = 10.0  # seconds that a failing target is left alone
    connections: int = 256  # to upstreams


class StateRow(Row, frozen=True):
    """What processes share: `redis://…` for limits and signatures, a file or `postgresql://…` for usage.

    Addresses with a password in them come from variables: `url_env`, `usage_env`.
    """

    url: str | None = None
    url_env: str | None = None
    usage: str | None = None
    usage_env: str | None = None
    strict: bool = False  # rather no answer than one without what is shared
    signatures: int = 10_000  # in the memory of one process
    signature_bytes: int = 64 * _MEGABYTE  # the same
    signature_seconds: float = 24 * 3600.0


class LogRow(Row, frozen=True):
    """One line a request: into `file`, or `to` standard error, Python's logging, or nowhere."""

    to: Literal["stderr", "logger", "nowhere"] | None = None  # standard error, but for a terminal with a table
    file: str | None = None
    bodies: bool = False  # what was said, too, without what looks like a secret
    remove: tuple[str, ...] = ()  # regular expressions for more that nobody may see


class TraceRow(Row, frozen=True):
    otel: bool | None = None  # spans over OTLP; where nothing is said, if OTEL_EXPORTER_OTLP_ENDPOINT is set
    record: str | None = None  # a folder: every exchange becomes a file in it
    shorten_media: bool = False  # in these files


class ToolsRow(Row, frozen=True):
    """Tools that the gateway runs itself: functions in files, MCP servers in the usual `mcpServers` file. `publish` offers them
    to MCP clients, too, at `/mcp`."""

    files: tuple[str, ...] = ()
    mcp: str | None = None
    store: str = "memory:"  # where calls are remembered
    publish: bool = False


class Settings(Row, frozen=True):
    server: ServerRow = ServerRow()
    upstreams: dict[str, UpstreamRow] = {}
    models: dict[str, ModelRow] = {}
    keys: dict[str, KeyRow] = {}
    limits: LimitsRow = LimitsRow()
    state: StateRow = StateRow()
    log: LogRow = LogRow()
    trace: TraceRow = TraceRow()
    tools: dict[str, ToolsRow] = {}  # by a pattern of models


def load(path: Path) -> Settings:
    """The settings in a file: ours (TOML), or the part of LiteLLM's (YAML) that we know."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="--config names another file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from None
    if path.suffix in (".yaml", ".yml"):
        from .litellm_config import from_litellm

        return from_litellm(text)
    try:
        return from_document(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not TOML: {error}") from None


def from_document(document: JSON) -> Settings:
    """The settings in a parsed file; ConfigError that names the place."""
    _refuse_unknown(document, Settings, "")
    try:
        settings = msgspec.convert(document, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(_plain(str(error)), hint="docs/gateway.md has an example") from None
    _check(settings)
    return settings


def _refuse_unknown(value: JSON, kind: object, path: str) -> None:
    """As far as the shape fits; what does not is for msgspec to say."""
    if isinstance(kind, type) and issubclass(kind, Row) and isinstance(value, dict):
        known = get_type_hints(kind)
        for name, inner in value.items():
            if name not in known:
                near = get_close_matches(name, known, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                raise ConfigError(f"unknown setting {name!r} in {path or 'the file'}", hint=hint)
            _refuse_unknown(inner, known[name], f"{path}.{name}".lstrip("."))
    elif get_origin(kind) is dict and isinstance(value, dict):
        for name, inner in value.items():
            _refuse_unknown(inner, get_args(kind)[1], f"{path}.{name}")
    elif get_origin(kind) is tuple and isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_unknown(inner, get_args(kind)[0], f"{path}[{number}]")


def _plain(words: str) -> str:
    return re.sub(r" - at `\$\.?(.*)`", r" in \1", words)


# what has to be more than nothing, and what may be nothing
_ABOVE_0 = ("body", "answer", "head", "slow_client", "ping", "connections", "timeout", "idle")
_FROM_0 = ("drain", "retries", "cooldown", "cache", "signatures", "signature_bytes", "signature_seconds")


def _check_numbers(row: Row, where: str) -> None:
    for name in row.__struct_fields__:
        number = getattr(row, name)
        if name in _ABOVE_0 and not 0 < number < inf:
            raise ConfigError(f"{where}.{name} is {number}", hint="a number above 0")
        if name in _FROM_0 and not 0 <= number < inf:
            raise ConfigError(f"{where}.{name} is {number}", hint="0 or more")


def _check(settings: Settings) -> None:
    for section in ("server", "limits", "state"):
        _check_numbers(getattr(settings, section), section)
    for name, upstream in settings.upstreams.items():
        _check_numbers(upstream, f"upstreams.{name}")
    for name, model in settings.models.items():
        _check_numbers(model, f"models.{name}")
    for name, model in settings.models.items():
        where = f"models.{name}"
        if (model.upstream is None) == (not model.targets):
            raise ConfigError(f"{where} needs `upstream` or `targets`, and not both")
        for target in model.targets or (TargetRow(model.upstream or ""),):
            _known(target.upstream, settings.upstreams, where, "upstream")
            if not 0 < target.weight < inf:
                raise ConfigError(f"{where} has a target with a weight of {target.weight}", hint="weights are above 0")
        for fallback in model.fallbacks:
            _known(fallback, settings.models, f"{where}.fallbacks", "model")
        if model.emulate is not None:
            from ..text import get

            get(model.emulate)
    _check_keys(settings.keys)
    for pattern, row in settings.tools.items():
        if not row.files and row.mcp is None:
            raise ConfigError(f"tools.{pattern} has no tools", hint="files = […], or mcp = a file of servers")
    for pattern in settings.log.remove:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"log.remove: {pattern!r} is no regular expression: {error}") from None


def _check_keys(keys: dict[str, KeyRow]) -> None:
    owners: dict[str, str] = {}
    for name, key in keys.items():
        if not name.strip():
            raise ConfigError("a key without a name", hint="nobody could tell whose it is: [keys.NAME]")
        if not re.fullmatch(r"[0-9a-f]{64}", key.hash):
            raise ConfigError(f"keys.{name}.hash is not a SHA-256", hint="`toolwire serve keys new NAME` makes a key")
        if owners.setdefault(key.hash, name) != name:
            raise ConfigError(f"keys.{name} and keys.{owners[key.hash]} are the same key", hint="one of them is enough")
        for limit in ("requests_per_minute", "tokens_per_minute", "tokens_per_day"):
            most = getattr(key, limit)
            if most is not None and most < 1:
                hint = "at least 1; leave it out where there is no limit, revoke the key where nothing is allowed"
                raise ConfigError(f"keys.{name}.{limit} is {most}", hint=hint)


def _known(
    name: str, table: dict[str, object] | dict[str, UpstreamRow] | dict[str, ModelRow], where: str, what: str
) -> None:
    if name not in table:
        near = get_close_matches(name, table, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(table) or 'none'}"
        raise ConfigError(f"{where} names an {what} that is not there: {name!r}", hint=hint)
