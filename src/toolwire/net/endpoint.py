"""Resolve a `provider/model` string, a base URL and the environment to URLs and headers.

A key belongs to an origin. A key from the environment is sent only to the provider's own address, or to the address
in the provider's own variable. A caller that passes another `base_url` must also pass its `key`. Keys are never
shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ..ir.errors import ConfigError
from ..wire.capability_rows import CapabilityRow, ModelCapabilities
from ..wire.loopback import is_loopback
from ..wire.profiles import match_capabilities
from ..wire.protocol import Wire
from ..wire.vendors import COMPATIBLE, ApiKey, Vendor, find, names, vendor_codec

__all__ = ["Endpoint", "endpoint_of", "resolve"]

_is_header_value = re.compile(r"[\x21-\x7e]+").fullmatch
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]").search
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://").match


class Endpoint:
    """A model on a server, and the key for it."""

    __slots__ = (
        "_base",
        "_urls",
        "capabilities",
        "headers",
        "is_pinned",
        "key",
        "model",
        "secrets",
        "vendor",
        "wire",
    )

    def __init__(
        self,
        vendor: Vendor,
        wire: Wire,
        model: str,
        base: SplitResult,
        key: tuple[ApiKey, str] | None,
        *,
        is_pinned: bool = False,
        capability_rows: tuple[CapabilityRow, ...] = (),
    ) -> None:
        """Create the endpoint. `is_pinned`: the caller chose the version of the wire."""
        self.vendor = vendor
        self.wire = wire
        self.model = model
        self.key = None if key is None else key[1]
        self.is_pinned = is_pinned
        self.capabilities: ModelCapabilities = match_capabilities(
            wire, model, vendor=vendor.name, rows=capability_rows
        ).capabilities
        self._base = base
        self._urls: dict[bool, str] = {}  # cached, by `stream`
        self.headers: Mapping[str, str] = {"content-type": "application/json", **wire.headers}
        self.secrets: Mapping[str, str] = {} if key is None else {key[0].header: key[0].prefix + key[1]}
        """Headers that must not be logged or shown."""

    @property
    def origin(self) -> str:
        return _origin(self._base)

    def url(self, *, stream: bool) -> str:
        """Return the URL of requests. The query of the base URL, such as an API version, is kept."""
        found = self._urls.get(stream)
        if found is None:
            path, _, query = self.wire.path(self.model, stream=stream).partition("?")
            query = "&".join(filter(None, (query, self._base.query)))
            base = self._base
            found = urlunsplit((base.scheme, base.netloc, _join_path(base.path, path), query, ""))
            self._urls[stream] = found
        return found

    def with_version(self, version: str) -> Endpoint:
        """Return the endpoint pinned to a version of its wire; an unknown version changes nothing."""
        if version != self.wire.version and version not in getattr(self.wire, "versions", {}):
            return self
        other = copy(self)
        other.is_pinned = True
        if version != self.wire.version:
            other.wire = vendor_codec(self.vendor, f"{self.wire.name}@{version}")
            other.headers = {**self.headers, **other.wire.headers}
        return other

    def __repr__(self) -> str:
        return f"<{self.model!r} at {self.origin} over {self.wire.name}>"


def resolve(
    model: str,
    environment: Mapping[str, str],
    *,
    base_url: str | None = None,
    key: str | None = None,
    wire: str | None = None,
    insecure: bool = False,
) -> Endpoint:
    """Resolve the model string of a user. Raise ConfigError if it is not valid."""
    vendor, name = _split_model(model, base_url)
    return endpoint_of(vendor, name, environment, base_url=base_url, key=key, wire=wire, insecure=insecure)


def endpoint_of(
    vendor: Vendor,
    model: str,
    environment: Mapping[str, str],
    *,
    base_url: str | None = None,
    key: str | None = None,
    wire: str | None = None,
    insecure: bool = False,
    capability_rows: tuple[CapabilityRow, ...] = (),
) -> Endpoint:
    """Resolve a model of a known vendor. `capability_rows` come before the built-in ones."""
    address = base_url
    if address is None and vendor.base_variable is not None:
        address = environment.get(vendor.base_variable) or None
    base = _parse_base_url(address or vendor.base_url, insecure)
    is_own_origin = base_url is None or _origin(base) == _origin(urlsplit(vendor.base_url))
    found: tuple[ApiKey, str] | None = None
    if key is not None:
        found = (vendor.keys[0] if vendor.keys else ApiKey(""), _check_key(key, "the key"))
    elif is_own_origin:
        found = _key_from_environment(environment, vendor)
    if found is None and is_own_origin and not vendor.keyless:
        variables = " or ".join(one.variable for one in vendor.keys)
        raise ConfigError(f"no key for {vendor.name}", hint=f"set {variables}, or pass a key (key=…, --key-env)")
    is_pinned = wire is not None and "@" in wire
    codec = vendor_codec(vendor, wire)
    return Endpoint(vendor, codec, model, base, found, is_pinned=is_pinned, capability_rows=capability_rows)


def _split_model(model: str, base_url: str | None) -> tuple[Vendor, str]:
    """Split `provider/model` or `provider:model`.

    With a base URL, a name without a known provider is the server's own.
    """
    head, separator, rest = model.partition(min((one for one in "/:" if one in model), key=model.index, default="/"))
    if separator and head.lower() in names():
        if not rest:
            raise ConfigError(f"{model!r} names a provider but no model", hint=f"write {head}/MODEL")
        return find(head), rest
    if base_url is not None and model:
        return COMPATIBLE, model
    if not separator:
        raise ConfigError(
            f"{model!r} has no provider",
            hint="write PROVIDER/MODEL, or pass the address of the server (base_url=…, --base-url)",
        )
    return find(head), rest


def _key_from_environment(environment: Mapping[str, str], vendor: Vendor) -> tuple[ApiKey, str] | None:
    for key in vendor.keys:
        if value := environment.get(key.variable, "").strip():
            return key, _check_key(value, f"the key in {key.variable}")
    return None


def _check_key(key: str, label: str) -> str:
    key = key.strip()
    if not _is_header_value(key):
        raise ConfigError(f"{label} is empty or contains characters that are not allowed in a header")
    return key


def _parse_base_url(url: str, insecure: bool) -> SplitResult:
    """Check a base URL that a key will be sent to. Credentials in it are refused and not shown."""
    if not _SCHEME(url) or _FORBIDDEN_CHARACTERS(url):
        raise ConfigError(
            "a base URL must begin with https:// and have no spaces", hint="such as https://example.com/v1"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"invalid base URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("a base URL must not contain a user or a password", hint="pass key=… instead")
    if not host or parts.fragment or parts.scheme not in ("http", "https"):
        raise ConfigError("a base URL must have the form http(s)://host/path", hint="such as https://example.com/v1")
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        hint = "use https, or pass insecure=True if you trust the network"
        raise ConfigError(f"keys and prompts would be sent to {host} unencrypted", hint=hint)
    return parts


def _origin(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}"


def _join_path(base: str, path: str) -> str:
    """Join base and path; the base may already end with the path, or with its version."""
    version = "/" + path.split("/")[1]
    return base.rstrip("/").removesuffix(path).removesuffix(version) + path
