"""The values of `toolwire.toml`; `config.parsing` reads and checks them.

[upstreams.NAME]   a provider and its key        [models.NAME]   a model for clients, and its upstreams
[keys.NAME]        the key of a client           [server] [limits] [state] [responses] [log] [trace]   the rest
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ...bridge.emulation.settings import EmulationSettings
from ...ir.errors import ConfigError
from ...ir.hosted import HOSTED_KINDS, HostedKind
from ...ir.tools import Effect
from ...wire.models.capabilities import UNKNOWN_MODEL, ModelCapabilities

_MEGABYTE = 1024 * 1024  # bytes
MIN_SECRET = 32
"""Characters of `[server] secret`: 128 bits if they are hexadecimal, too many to try out."""


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class ServerRow(Row, frozen=True):
    host: str = "127.0.0.1"
    port: int | None = None  # exact; default: 4141, or the next free port if there are no keys
    workers: int = 1  # processes on the port; several need `state.url`
    hosts: tuple[str, ...] = ()  # host names that clients may use, besides the names of this machine
    origins: tuple[str, ...] = ()  # origins of web pages that may send requests
    cors: bool = False  # let browsers show the answers to pages of `origins`
    drain: float = 30.0  # seconds for in-flight requests when the server stops
    heartbeat: float = 30.0  # seconds after which a worker whose event loop does not run is replaced; 0: never
    certificate: str | None = None  # a PEM file with the certificate chain; then clients use https
    private_key: str | None = None  # a PEM file; default: in the same file as the certificate
    secret: str | None = None  # signs reasoning for clients; default: made once, in a file beside the settings
    secret_env: str | None = None  # the environment variable with the secret
    previous_secret: str | None = None  # is still accepted, while the secret is replaced
    previous_secret_env: str | None = None
    metrics_key: str | None = None  # the key for /metrics, where clients need keys; theirs do not read it
    metrics_key_env: str | None = None  # the environment variable with it


class UpstreamRow(Row, frozen=True):
    """A provider. Its key comes from its usual variable, from `key_env`, from `key_file` or from `key_command`."""

    provider: str | None = None
    wire: str | None = None
    base_url: str | None = None
    api_version: str | None = None
    project: str | None = None  # of Google Cloud
    location: str | None = None  # of Google Cloud; the region of AWS
    workspace: str | None = None  # of Claude in the account of a cloud's customer
    profile: str | None = None  # of AWS, in its shared files
    key_env: str | None = None
    key_file: str | None = None
    key_command: tuple[str, ...] | None = None  # a program and its arguments; it prints the key
    key_timeout: float = 10.0  # seconds for the command
    key_ttl: float = 300.0  # seconds that a key is cached if the command does not report when it expires
    # The header of the key: the provider's own, or `Authorization`; or a signature with credentials of AWS
    auth: Literal["key", "bearer", "sigv4"] | None = None
    headers: dict[str, str] = {}  # additional headers; `${NAME}` is an environment variable
    extra_body: dict[str, Any] = {}  # fields to merge into the encoded body
    defaults: dict[str, Any] = {}  # parameters for requests that do not set them
    timeout: float = 600.0  # seconds for a whole answer
    idle: float = 300.0  # seconds without a byte of a stream
    first_event: float = 30.0  # seconds until the first event of a stream; then the next target is tried
    retries: int = 2
    retry_budget: float = 0.2  # retries, as a share of the requests; three a second are always allowed
    insecure: bool = False  # allow plain HTTP to other machines
    client_certificate: str | None = None  # a PEM file, for an upstream that requires a certificate
    client_key: str | None = None  # a PEM file; default: in the same file as the certificate
    context_max: int | None = None  # tokens of prompt and answer, at most; default: the model's own length
    keeps_responses: bool | None = None  # it stores Responses itself; default: whether its provider does
    websocket: bool = False  # OpenAI Responses over WebSockets, if the upstream has them
    cache: Literal["auto", "client", "off"] = "auto"
    """Prompt-cache marks of translated requests: the gateway's or else the client's, the client's only, or none."""


class TargetRow(Row, frozen=True):
    upstream: str
    model: str | None = None  # the upstream's name for it, where `*` is the text matched by `*`; default: the client's
    weight: float = 1.0  # the share of requests, relative to other targets


class EmulateRow(Row, frozen=True):
    """The text format of emulated calls, at the chat endpoint or with a raw prompt at the completion endpoint."""

    format: str
    via: Literal["chat", "completions"] = "chat"
    template: str | None = None  # a chat template, for completions; default: by the names of the model and the format
    reasoning: Literal["open", "closed"] | None = None  # for completions: the prompt opens or excludes reasoning


class RetrieveRow(Row, frozen=True):
    """The selection of tools for a model: the `k` best for a conversation, and those in `always`."""

    k: int = 8
    always: tuple[str, ...] = ()  # names; a client need not have all of them


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
    vision: str | None = None  # another model that describes images and files, if this one does not accept them
    retrieve: bool | RetrieveRow = False  # offer only the best of many tools, and `search_tools` for the others
    cache: float = 0.0  # seconds that a whole answer is cached for an identical request
    first_event: float | None = None  # seconds; default: the upstream's, or 300 for a reasoning model
    capabilities: ModelCapabilities = UNKNOWN_MODEL  # facts about the model; the built-in ones are the default

    @property
    def emulation(self) -> EmulationSettings | None:
        row = self.emulate
        if row is None or isinstance(row, str):
            return None if row is None else EmulationSettings(row)
        return EmulationSettings(row.format, row.via, row.template, row.reasoning)

    @property
    def retrieval(self) -> RetrieveRow | None:
        """The selection of tools; None if all are offered."""
        if isinstance(self.retrieve, RetrieveRow):
            return self.retrieve
        return RetrieveRow() if self.retrieve else None


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
    stream_body: int = _MEGABYTE  # bytes of a request that is held; a larger one is sent on while it arrives
    answer: int = 64 * _MEGABYTE  # bytes of an answer
    values: int = 1_000_000  # JSON values of a request, and of an answer
    memory: int = 1024 * _MEGABYTE  # bytes of all requests in flight, with everything that is made of them
    translations: int = 64 * _MEGABYTE  # bytes of conversations that are kept for their next request
    head: int = 64 * 1024  # bytes of a request before its body
    slow_client: float = 30.0  # seconds for a request's head, for its body, and for reading part of the answer
    ping: float = 15.0  # seconds of silence before a keep-alive
    cooldown: float = 10.0  # seconds of cooldown for a failing target
    requests: int | None = (
        None  # in flight; more are refused; default: by the memory and the descriptors of the process
    )
    loop_delay: float = 0.01  # seconds; while the event loop is later than this, some requests are refused
    queue: float = 5.0  # seconds that a request waits for a connection to an upstream
    connections: int | None = None  # to the same host and port; default: as many as requests in flight


class StateRow(Row, frozen=True):
    """State shared by processes: a file, `redis://…` or `postgresql://…` for limits, turns and cooldowns (`url`).

    `usage` is a file or `postgresql://…`.

    An address with a password comes from a variable: `url_env`, `usage_env`.
    """

    url: str | None = None
    url_env: str | None = None
    usage: str | None = None
    usage_env: str | None = None
    strict: bool = False  # refuse requests while the shared state is unavailable
    timeout: float = 1.0  # seconds for a reply, or for the lock of a limits file; then the state counts as unavailable
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
    max_response_bytes: int = _MEGABYTE  # of one response with its input; a larger one is not stored
    max_responses: int = 500  # of one conversation; items that a client adds together count as one
    max_key_bytes: int = 64 * _MEGABYTE  # of one client's key; beyond it, the oldest responses are dropped
    max_key_entries: int = 10_000  # of one client's key

    @property
    def is_persistent(self) -> bool:
        """True if entries outlive the process."""
        return self.store_env is not None or self.store not in (None, "memory:")


class RelayRow(Row, frozen=True):
    """Endpoints besides chats, such as embeddings, images, audio and files, which are relayed to an upstream with the same API.

    Files, batches and other objects belong to the key that creates them, so they need a persistent store in [responses].
    """

    enabled: bool = True
    paths: tuple[str, ...] = ()  # further endpoints, as "POST /v1/ocr", where `*` matches any text
    upstreams: tuple[str, ...] = ()  # the preferred ones, for requests that name no model
    objects: bool | None = None  # files, batches and jobs; default: whether [responses] has a persistent store
    max_bytes: int = 2048 * _MEGABYTE  # bytes of a body that is sent on while it arrives


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
    keep_files: int | None = None  # of the recorded files, the newest; older ones are deleted
    keep_days: float | None = None
    keep_bytes: int | None = None  # of all recorded files together


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


class HostedRow(Row, frozen=True):
    """The tool of an MCP server that replaces a hosted tool where the upstream has none: a URL or a command."""

    mcp: str | None = None  # the URL of the server
    command: str | None = None  # a command line that starts the server
    tool: str | None = None  # its name; default: the only tool of the server
    max_calls: int = 8  # for one answer
    timeout: float = 30.0  # seconds for one call
    max_bytes: int = 50_000  # of the text of one result


class HostedSection(Row, frozen=True):
    """The tools that replace hosted tools, by kind."""

    web_search: HostedRow | None = None
    web_fetch: HostedRow | None = None
    code_execution: HostedRow | None = None

    @property
    def rows(self) -> dict[HostedKind, HostedRow]:
        rows = {kind: getattr(self, kind) for kind in HOSTED_KINDS}
        return {kind: row for kind, row in rows.items() if row is not None}


class Settings(Row, frozen=True):
    """The whole file. An empty `upstreams` means: all providers whose key is in the environment."""

    server: ServerRow = ServerRow()
    upstreams: dict[str, UpstreamRow] = {}
    models: dict[str, ModelRow] = {}
    keys: dict[str, KeyRow] = {}
    limits: LimitsRow = LimitsRow()
    state: StateRow = StateRow()
    responses: ResponsesRow = ResponsesRow()
    relay: RelayRow = RelayRow()
    log: LogRow = LogRow()
    trace: TraceRow = TraceRow()
    tools: dict[str, ToolsRow] = {}  # by model pattern
    hosted: HostedSection = HostedSection()
    capabilities_file: str | None = None  # a JSON file of capability rows, which come before the built-in ones


def resolve_address(value: str | None, variable: str | None, name: str, environment: Mapping[str, str]) -> str | None:
    """Return `value`, or the content of the environment variable, or None if neither is set.

    Raise ConfigError if both are set, or the variable is empty; `name` is the setting, for the message.
    """
    if value is not None and variable is not None:
        raise ConfigError(f"{name} and {name}_env are both set", hint="remove one of them")
    if variable is None:
        return value
    content = environment.get(variable, "").strip()
    if not content:
        raise ConfigError(f"{name}_env: environment variable {variable} is not set")
    return content


# Check that the folder of a file exists when the gateway starts, not at the first request.


def require_store_folder(address: str | None, setting: str) -> None:
    """Check the folder of a store in a file. An address of a server has none."""
    path = "" if address is None or address == "memory:" else address.removeprefix("sqlite:///")
    if path and "://" not in path:
        require_folder(path, setting)


def require_folder(file: str, setting: str) -> None:
    """Raise ConfigError if the folder of a file does not exist. `setting` is the location of the path."""
    folder = Path(file).parent
    if not folder.is_dir():
        raise ConfigError(f"{setting}: the folder {folder} does not exist", hint="create it, or change the path")
