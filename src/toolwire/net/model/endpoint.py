"""Resolve a `provider/model` string, settings and the environment to URLs and headers.

A key belongs to an origin. A key from the environment is sent only to the provider's own address, or to the address in
the provider's own variable. A caller that passes another `base_url` must also pass its `key`. Keys are never shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Unpack

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...wire.codec import WireCodec
from ...wire.models.capabilities import CapabilityRow, ModelCapabilities
from ...wire.models.litellm import find_prefixed
from ...wire.models.profiles import match_capabilities, split_model
from ...wire.models.vendor_codecs import surface_codec, vendor_codec
from ...wire.models.vendor_types import Surface, Vendor
from ...wire.models.vendors import COMPATIBLE, find, names
from ...wire.protocol import Wire
from ..http.head import CustomHeaders, expand_headers
from .endpoint_credentials import EndpointCredentials, EndpointOptions, find_credentials, is_own_origin, with_region
from .endpoint_settings import (
    AddressSettings,
    EndpointAddress,
    RequestDefaults,
    check_extra_body,
    find_renamed_fields,
    merge_body,
    parse_defaults,
    resolve_address,
    vendor_at,
    vendor_headers,
)

_UNAUTHORISED, _FORBIDDEN = 401, 403  # RFC 9110, 15.5.2 and 15.5.4


class Endpoint:
    """A model on a server, and the key for it."""

    __slots__ = (
        "_address",
        "_hosted",
        "_key_header",
        "capabilities",
        "changes_body",
        "changes_streams",
        "context_max",
        "custom_headers",
        "defaults",
        "extra_body",
        "has_fixed_secrets",
        "headers",
        "is_pinned",
        "key_command",
        "key_variable",
        "model",
        "renamed_fields",
        "secrets",
        "signing",
        "vendor",
        "window",
        "wire",
    )

    def __init__(
        self,
        vendor: Vendor,
        wire: Wire,
        model: str,
        address: EndpointAddress,
        credentials: EndpointCredentials,
        custom: CustomHeaders,
        extra_body: Mapping[str, JSON],
        defaults: RequestDefaults,
        *,
        is_pinned: bool = False,
        capability_rows: tuple[CapabilityRow, ...] = (),
        context_max: int | None = None,
    ) -> None:
        """Create the endpoint. `is_pinned`: the caller chose the version of the wire."""
        self.context_max = context_max
        self.vendor = vendor
        self.extra_body = extra_body
        described = vendor_at(address.origin) if vendor is COMPATIBLE else vendor
        self._hosted = described.hosted
        self.wire = self._fit_wire(wire, address.surface)
        self.model = model
        self.is_pinned = is_pinned
        known = match_capabilities(wire, model, vendor=described.name, rows=capability_rows)
        self.capabilities: ModelCapabilities = known.capabilities
        row = known.rows.get("window")
        is_own_row = row is not None and row.vendors != ("*",) and bool(described.base_url)
        is_certain = is_own_row and is_own_origin(described, address, address.origin)
        self.window: int | None = known.capabilities.window if is_certain or row in capability_rows else None
        """The window by which a longer prompt can be refused before it is sent: a fact about this server.

        It is from a row of the user, or from a row about the vendor's own API at the vendor's own address. Any other
        server may give a model of this name another length, and so may a deployment, whose name is free.
        """
        self.key_command = credentials.command
        self.key_variable = credentials.variable
        self.signing = credentials.signing
        self.has_fixed_secrets: bool = self.key_command is None and self.signing is None
        """True if the secret headers of all requests are `secrets`."""
        self.custom_headers: Mapping[str, str] = custom.literal
        self.defaults = defaults
        self._set_address(address)
        self._key_header = credentials.header
        self.headers: Mapping[str, str] = self._headers_of(wire)
        key = {} if credentials.key is None else self._write_key(credentials.key)
        self.secrets: Mapping[str, str] = {**custom.secret, **key}
        """Headers that must not be logged or shown. A key of a command is not among them; see `authorise`."""

    def _set_address(self, address: EndpointAddress) -> None:
        self._address = address
        surface = address.surface
        is_surface_different = surface is not None and bool(surface.omitted_fields or surface.version_field)
        self.changes_body: bool = bool(self.extra_body) or is_surface_different
        """True if the body of a request on the same wire has to be changed, apart from the model."""
        self.changes_streams: bool = surface is not None and surface.in_chunks
        """True if a stream on the same wire has to be decoded, because its framing is another one."""
        self.renamed_fields: Mapping[str, str] = find_renamed_fields(self.vendor, self.wire, surface, self.capabilities)
        """Fields of a request that the vendor names differently."""

    def _fit_wire(self, wire: Wire, surface: Surface | None) -> Wire:
        wire = surface_codec(wire, surface, self._hosted)
        if not self.has_body_mark or wire.limits.cache_marks is None or not isinstance(wire, WireCodec):
            return wire
        # Anthropic counts the mark of the body: "A maximum of 4 blocks with cache_control" (coder/mux#3112)
        return replace(wire, limits=replace(wire.limits, cache_marks=wire.limits.cache_marks - 1))

    @property
    def has_body_mark(self) -> bool:
        """True if the settings mark the body of every request for the prompt cache. Others are then not placed."""
        return "cache_control" in self.extra_body

    @property
    def origin(self) -> str:
        return self._address.origin

    @property
    def turn_origin(self) -> str:
        """The identity of the model that makes a turn: no other one may receive its reasoning and signatures."""
        return f"{self.wire.name} {self.model} {self.origin}"

    @property
    def is_own_origin(self) -> bool:
        """True if the address is the vendor's own, not another server with its API."""
        return is_own_origin(self.vendor, self._address, self.origin)

    @property
    def key(self) -> str | None:
        """The key, or the latest key of the command; None if requests are signed."""
        if self.key_command is not None:
            return self.key_command.latest
        value = self.secrets.get(self._key_header.header)
        return None if value is None else value.removeprefix(self._key_header.prefix)

    @property
    def known_secrets(self) -> tuple[str, ...]:
        """The key and the secret values of headers, to be removed from error messages."""
        key = self.key
        signing_secrets = () if self.signing is None else self.signing.credentials.secrets
        return (*(() if key is None else (key,)), *self.secrets.values(), *signing_secrets)

    def url(self, *, stream: bool) -> str:
        """Return the URL of requests. The query of the base URL, such as an API version, is kept."""
        return self._address.url(stream=stream)

    def at_path(self, path: str, *, of_model: bool) -> Endpoint:
        """Return another endpoint of the same API, with a path below the version, such as `/embeddings`."""
        other = copy(self)
        other._address = self._address.sibling(path, of_model=of_model)
        return other

    async def authorise(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return the secret headers of a request. Raise KeyCommandError if there is no key and there are no credentials."""
        if self.signing is not None:
            return {**self.secrets, **await self.signing.sign(method, url, headers, body)}
        if self.key_command is None:
            return self.secrets
        return {**self.secrets, **self._write_key(await self.key_command.key())}

    def drop_key(self, status: int, secrets: Mapping[str, str]) -> bool:
        """Forget the key in `secrets`, which the server has refused with `status`. Return whether there can be a new one.

        AWS refuses expired credentials with 403.
        """
        if self.signing is not None:
            return status in (_UNAUTHORISED, _FORBIDDEN) and self.signing.credentials.drop()
        if status != _UNAUTHORISED or self.key_command is None:
            return False
        self.key_command.drop(secrets[self._key_header.header].removeprefix(self._key_header.prefix))
        return True

    def merge_headers(self, client_headers: Mapping[str, str]) -> dict[str, str]:
        """Merge our headers with a client's on the same wire.

        Lists of beta features are joined. Else configured headers win, then the client's. A version in the body is omitted.
        """
        merged = dict(self.headers)
        surface = self._address.surface
        in_body = self.wire.headers if surface is not None and surface.version_field is not None else ()
        for name, value in client_headers.items():
            configured = self.custom_headers.get(name)
            if configured is None and name not in in_body:
                merged[name] = value
            elif configured is not None and name.endswith("-beta"):
                merged[name] = f"{configured},{value}"
        return merged

    def finish_body(self, body: Object, wire_version: str | None = None) -> Object:
        """Return an encoded body with the vendor's names and version field, without omitted fields, and with `extra_body`.

        `wire_version` is the version of the wire that the client of a gateway uses, if it is known.
        """
        fields, surface = self.renamed_fields, self._address.surface
        if fields and not fields.keys().isdisjoint(body):
            body = {fields.get(name, name): value for name, value in body.items()}
        if surface is not None and (surface.omitted_fields or surface.version_field):
            body = {name: value for name, value in body.items() if name not in surface.omitted_fields}
            if surface.version_field is not None:
                version = wire_version or self.wire.version or ""
                body.setdefault(surface.version_field, surface.wire_versions.get(version, version))
        return merge_body(body, self.extra_body) if self.extra_body else body

    def headers_for(self, wire: Wire) -> Mapping[str, str]:
        """Return the headers of a request on `wire`, a version of the endpoint's own."""
        return self.headers if wire is self.wire else self._headers_of(wire)

    def _headers_of(self, wire: Wire) -> dict[str, str]:
        """Return the headers on a version of the wire, unless the server reads the version from the body."""
        surface = self._address.surface
        version_headers = wire.headers if surface is None or surface.version_field is None else {}
        return {"content-type": "application/json", **version_headers, **self.custom_headers}

    def _write_key(self, key: str) -> dict[str, str]:
        return {self._key_header.header: self._key_header.prefix + key}

    def with_version(self, version: str) -> Endpoint:
        """Return a copy pinned to a version of its wire, or this endpoint if the version is unknown."""
        if version != self.wire.version and version not in getattr(self.wire, "versions", {}):
            return self
        other = copy(self)
        other.is_pinned = True
        if version != self.wire.version:
            codec = vendor_codec(self.vendor, f"{self.wire.name}@{version}")
            other.wire, other.headers = self._fit_wire(codec, self._address.surface), self._headers_of(codec)
        return other

    def at_completions(self, kept_tokens: Sequence[str]) -> Endpoint:
        """Return the raw completion endpoint of the same server. Raise ConfigError if it is not known to have one.

        `kept_tokens` are special tokens that the server must not remove from the text.
        """
        if not self.vendor.raw_completions or not isinstance(self.wire, WireCodec):
            hint = (
                'use provider = "ollama"'
                if self.vendor.dialect == "ollama"
                else 'use via = "chat"; for a compatible server, remove provider and set base_url'
            )
            raise ConfigError(f"{self.vendor.name} has no raw completion endpoint", hint=hint)
        other = copy(self)
        other.wire = self.wire.at_completions(kept_tokens)
        other.is_pinned = True
        other._set_address(self._address.with_path(other.wire.path(self.model, stream=False)))
        return other

    def __repr__(self) -> str:
        return f"<{self.model!r} at {self.origin} over {self.wire.name}>"


def resolve(model: str, environment: Mapping[str, str], **options: Unpack[EndpointOptions]) -> Endpoint:
    """Resolve the model string of a user. Raise ConfigError if it is not valid."""
    vendor, name = _split_model(model, options.get("base_url"))
    return endpoint_of(vendor, name, environment, **options)


def endpoint_of(
    vendor: Vendor, model: str, environment: Mapping[str, str], **options: Unpack[EndpointOptions]
) -> Endpoint:
    """Resolve a model of a known vendor. Raise ConfigError if a setting is missing or invalid."""
    wire = vendor_codec(vendor, options.get("wire"))
    settings = AddressSettings(
        options.get("base_url"),
        options.get("api_version"),
        options.get("project"),
        options.get("location"),
        options.get("workspace"),
        options.get("insecure", False),
    )
    profile = options.get("profile")
    if vendor.signing_name is not None:
        settings = with_region(vendor, settings, environment, profile)
    elif profile is not None or options.get("auth") == "sigv4":
        raise ConfigError(f"{vendor.name} takes no credentials of AWS", hint='remove profile, and auth = "sigv4"')
    address = resolve_address(vendor, wire, model, settings, environment)
    credentials = find_credentials(vendor, address, settings, environment, options)
    extra_body = options.get("extra_body") or {}
    check_extra_body(extra_body, wire)
    custom = expand_headers(options.get("headers") or {}, environment, credentials.header.header)
    headers = vendor_headers(vendor, settings, environment)
    return Endpoint(
        vendor,
        wire,
        model,
        address,
        credentials,
        replace(custom, literal={**headers, **custom.literal}),
        extra_body,
        parse_defaults(options.get("defaults") or {}),
        is_pinned="@" in (options.get("wire") or ""),
        capability_rows=options.get("capability_rows", ()),
        context_max=_check_context_max(options.get("context_max")),
    )


def _check_context_max(context_max: int | None) -> int | None:
    if context_max is not None and context_max < 1:
        raise ConfigError(f"context_max must be positive, got {context_max}", hint="use a number of tokens, as 65536")
    return context_max


def _split_model(model: str, base_url: str | None) -> tuple[Vendor, str]:
    """Split the name; with a base URL, one without a known provider is the server's own. ConfigError if a part is missing."""
    provider, name = split_model(model, names())
    is_known = provider.lower() in names()
    if base_url is not None and model and not is_known:
        return COMPATIBLE, model
    if name == model:
        example = f", as in ollama/{model}" if ":" in model else ""
        hint = f"write PROVIDER/MODEL{example}, or pass the address of the server: base_url=…"
        raise ConfigError(f"{model!r} has no provider", hint=hint)
    vendor = (None if is_known else find_prefixed(provider, name)) or find(provider)
    if not name:
        raise ConfigError(f"{model!r} names a provider but no model", hint=f"write {provider}/MODEL")
    return vendor, name
