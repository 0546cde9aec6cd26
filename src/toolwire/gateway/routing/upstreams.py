"""The providers that the gateway uses, and the connections to them: one row of the settings each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...asgi.admission import max_requests
from ...ir.errors import ConfigError
from ...ir.hints import translate_hint
from ...net.http.client import HttpTransport
from ...net.http.transport import Transport, load_transport
from ...net.model.aws.credentials import AwsSigning
from ...net.model.endpoint import Endpoint, endpoint_of
from ...net.model.key_command import KeyCommand
from ...net.model.saved_rows import use_saved_rows
from ...net.model.server_facts import ContextSizes, ProbedTransport, has_model_list, is_answering
from ...wire.models.capabilities import CapabilityRow
from ...wire.models.vendor_types import Vendor
from ...wire.models.vendors import COMPATIBLE, find, names
from ..config.notation import toml_location
from ..config.settings import Settings, UpstreamRow

if TYPE_CHECKING:
    from ...net.http.websocket import WebSocketTransport

_MAX_CACHED_ENDPOINTS = 1024  # endpoints; clients may request any number of models


class ConfiguredUpstream:
    """A provider, the key for it and the connections to it."""

    def __init__(
        self,
        name: str,
        row: UpstreamRow,
        transport: Transport,
        environment: Mapping[str, str],
        *,
        on_key: Callable[[str], None] | None = None,
        capability_rows: tuple[CapabilityRow, ...] = (),
    ) -> None:
        """Read the key and check the row. `on_key` is called with every new key of a key command, for redaction.

        Raise ConfigError if the row is wrong.
        """
        use_saved_rows(environment)
        self.name = name
        self.row = row
        self._vendor = find_vendor(name, row)
        self.transport = transport if self._vendor.transport is None else load_transport(self._vendor.transport)
        self._environment = environment
        self._capability_rows = capability_rows
        self._key = _read_key(name, row, environment)
        self._key_command = _make_key_command(name, row, environment, on_key)  # shared by all models
        self._endpoints: dict[tuple[str, tuple[str, ...] | None], Endpoint] = {}
        self._signing: AwsSigning | None = None  # shared by all models
        endpoint = self.endpoint("any")  # report a wrong row at the start, not at the first request
        if endpoint.signing is not None:
            self._signing = endpoint.signing
            self._signing.credentials.on_key = on_key
            with _at_row(name):
                self._signing.credentials.find_source()
        if row.websocket and endpoint.wire.name != "openai_responses":
            hint = 'set wire = "openai_responses", or remove websocket'
            raise ConfigError(f"{_location(name)}: only OpenAI Responses has WebSockets", hint=hint)
        if row.websocket and endpoint.signing is not None:
            raise ConfigError(f"{_location(name)}: a WebSocket cannot be signed", hint="remove websocket, or set a key")
        self.prober = None  # sends the requests of `is_answering`
        if isinstance(self.transport, ProbedTransport) and has_model_list(endpoint):
            self.prober = self.transport.for_probes()
        self.context_sizes = ContextSizes() if endpoint.wire.name == "ollama" else None

    @property
    def keeps_responses(self) -> bool:
        """True if it stores OpenAI Responses itself, so that their ids can be sent to it.

        Without a setting, this is known only of the provider's own address.
        """
        endpoint = self.endpoint("any")
        if endpoint.wire.name != "openai_responses":
            return False
        if self.row.keeps_responses is not None:
            return self.row.keeps_responses
        return self._vendor.keeps_responses and endpoint.is_own_origin

    async def is_answering(self, seconds: float) -> bool:
        """Return whether the upstream answers a request for its list of models, with any status."""
        return self.prober is None or await is_answering(self.endpoint("any"), self.prober, seconds)

    def endpoint(self, model: str, kept_tokens: tuple[str, ...] | None = None) -> Endpoint:
        """Return the endpoint of `model`, which is cached.

        With `kept_tokens`, it is the raw completion endpoint, which keeps these tokens in its answers.
        """
        endpoint = self._endpoints.get((model, kept_tokens))
        if endpoint is None:
            if len(self._endpoints) >= _MAX_CACHED_ENDPOINTS:
                self._endpoints.clear()
            endpoint = self._resolve(model)
            endpoint = endpoint if kept_tokens is None else endpoint.at_completions(kept_tokens)
            self._endpoints[model, kept_tokens] = endpoint
        return endpoint

    def _resolve(self, model: str) -> Endpoint:
        """Return the endpoint of a model by the row. Raise ConfigError, with the location of the row, if it is wrong."""
        row = self.row
        if row.provider is None and row.base_url is None:
            raise ConfigError(f"{_location(self.name)}: needs a provider or a base_url")
        try:
            return endpoint_of(
                self._vendor,
                model,
                self._environment,
                base_url=row.base_url,
                key=self._key,
                key_command=self._key_command,
                auth=row.auth,
                wire=row.wire,
                insecure=row.insecure,
                capability_rows=self._capability_rows,
                api_version=row.api_version,
                project=row.project,
                location=row.location,
                workspace=row.workspace,
                profile=row.profile,
                signing=self._signing,
                headers=row.headers,
                extra_body=row.extra_body,
                defaults=row.defaults,
                context_max=row.context_max,
            )
        except ConfigError as error:
            hint = translate_hint(error.hint, "setting")
            raise ConfigError(f"{_location(self.name)}: {error.message}", hint=hint) from None


def find_vendor(name: str, row: UpstreamRow) -> Vendor:
    """Return the provider of a row. Raise ConfigError, with the location of the row, if there is no such provider."""
    with _at_row(name):
        return COMPATIBLE if row.provider is None else find(row.provider)


def _location(name: str) -> str:
    return toml_location(("upstreams", name))


def upstreams_from_environment(environment: Mapping[str, str]) -> dict[str, UpstreamRow]:
    """List the providers whose key is set, and the settings that they require."""
    use_saved_rows(environment)
    return {name: UpstreamRow(name) for name in names() if _is_configured(find(name), environment)}


def _is_configured(vendor: Vendor, environment: Mapping[str, str]) -> bool:
    """Check the environment variables of a provider: a key, and an address and other settings where they are required."""

    def is_set(*variables: str | None) -> bool:
        return any(environment.get(variable or "", "").strip() for variable in variables)

    has_own_base = is_set(vendor.base_variable)
    has_address = bool(vendor.base_url) or has_own_base
    required = [
        name
        for name in vendor.variables
        if name != "api_version"
        and not (name == "location" and vendor.location)
        and not (has_own_base and f"{{{name}}}" in vendor.base_url and not vendor.surfaces)
    ]
    has_settings = all(is_set(*vendor.variables[name]) for name in required)
    return has_address and has_settings and is_set(*(key.variable for key in vendor.keys))


def known_keys(rows: Mapping[str, UpstreamRow], environment: Mapping[str, str]) -> list[str]:
    """Collect the keys for upstreams, for redaction: of the rows, in their headers, and in usual variables."""
    found = [_read_key(name, row, environment) for name, row in rows.items()]
    found += [
        environment.get(variable, "").strip()
        for row in rows.values()
        for value in row.headers.values()
        for variable in re.findall(r"\$\{(\w+)\}", value)
    ]
    found += [environment.get(key.variable, "").strip() for name in names() for key in find(name).keys]
    return [key for key in found if key]


def _read_key(name: str, row: UpstreamRow, environment: Mapping[str, str]) -> str | None:
    """Return the key from the variable or file of the row, or None for a key command or the provider's usual variable.

    Raise ConfigError if it cannot be read or is empty, or if the row names several sources.
    """
    sources = [source for source in ("key_env", "key_file", "key_command") if getattr(row, source) is not None]
    if len(sources) > 1:
        raise ConfigError(f"{_location(name)}: has {' and '.join(sources)}", hint="keep one of them")
    if row.key_env is not None:
        key = environment.get(row.key_env, "").strip()
        if not key:
            raise ConfigError(f"{_location(name)}: environment variable {row.key_env} is not set")
        return key
    if row.key_file is not None:
        try:
            key = Path(row.key_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"{_location(name)}: cannot read key_file: {reason}") from None
        if not key:
            raise ConfigError(f"{_location(name)}: key_file {row.key_file} is empty")
        return key
    return None


def _make_key_command(
    name: str, row: UpstreamRow, environment: Mapping[str, str], on_key: Callable[[str], None] | None
) -> KeyCommand | None:
    """Return the key command of the row, or None. Raise ConfigError if its program cannot be run."""
    if row.key_command is None:
        return None
    with _at_row(name):
        command = KeyCommand(row.key_command, timeout=row.key_timeout, ttl=row.key_ttl, on_key=on_key)
        command.check(environment)
    return command


# The connections of the gateway to its upstreams: one pool for all, and one for each client certificate; WebSockets beside.


class UpstreamTransports:
    """The transports of upstreams. The environment names proxies and trusted certificates."""

    def __init__(self, environment: Mapping[str, str], settings: Settings) -> None:
        limits = settings.limits
        self._environment = environment
        self._connections = limits.connections or limits.requests or max_requests(settings.server.workers)
        self._max_wait = limits.queue
        self._shared = HttpTransport(environment=environment, connections=self._connections, max_wait=limits.queue)
        self._by_certificate: dict[tuple[str, str | None], HttpTransport] = {}
        self._sockets: dict[HttpTransport, WebSocketTransport] = {}

    def for_answers(self, name: str, row: UpstreamRow) -> Transport:
        """Return the transport of an upstream for requests to its models; see `of`."""
        transport = self.of(name, row)
        if not row.websocket:
            return transport
        from ...net.http.websocket import WebSocketTransport

        if transport not in self._sockets:
            self._sockets[transport] = WebSocketTransport(transport)
        return self._sockets[transport]

    def of(self, name: str, row: UpstreamRow) -> HttpTransport:
        """Return the transport of an upstream; upstreams with the same client certificate share it.

        Raise ConfigError, with the location of the row, if the certificate cannot be used.
        """
        if row.client_certificate is None:
            return self._shared
        files = (row.client_certificate, row.client_key)
        transport = self._by_certificate.get(files)
        if transport is None:
            with _at_row(name):
                transport = HttpTransport(
                    environment=self._environment,
                    connections=self._connections,
                    max_wait=self._max_wait,
                    client_certificate=row.client_certificate,
                    client_key=row.client_key,
                )
            self._by_certificate[files] = transport
        return transport

    def reload(self, rows: Mapping[str, UpstreamRow]) -> None:
        """Use the current content of the certificates for new connections. On ConfigError, the old ones stay in use."""
        for name, row in rows.items():
            transport = self.of(name, row)
            with _at_row(name):
                transport.reload_certificate()

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a connection."""
        return sum(transport.waiting for transport in (self._shared, *self._by_certificate.values()))

    async def aclose(self) -> None:
        for sockets in self._sockets.values():
            await sockets.aclose()
        for transport in (self._shared, *self._by_certificate.values()):
            await transport.aclose()


@contextmanager
def _at_row(name: str) -> Iterator[None]:
    """Add the location of the row to errors."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{_location(name)}: {error.message}", hint=error.hint) from None
