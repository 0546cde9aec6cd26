"""Find the key for an endpoint, the command that prints it, or the credentials that sign its requests.

A key belongs to an origin: one from the environment is sent only to the provider's own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import JSON
from ...wire.models.capabilities import CapabilityRow
from ...wire.models.vendor_types import ApiKey, Vendor
from ..http.head import is_header_value, origin_of
from .aws.credentials import AwsCredentialCache, AwsSigning, command_source
from .aws.profiles import region_of_profile
from .aws.signature import SigningScope
from .endpoint_settings import AddressSettings, EndpointAddress, read_setting
from .key_command import KeyCommand

_BEARER = ApiKey("")


class EndpointOptions(TypedDict, total=False):
    """Settings of an endpoint. A setting that is missing or None comes from the environment, or has a default."""

    base_url: str | None
    key: str | None
    key_command: KeyCommand | Sequence[str] | None  # a command that prints the key, as an argument vector
    # The form of a key: the provider's own header, or a bearer token; or a signature with credentials of AWS.
    auth: Literal["key", "bearer", "sigv4"] | None
    profile: str | None  # of AWS, in its shared files
    signing: AwsSigning | None  # credentials of AWS that several endpoints share
    wire: str | None
    insecure: bool  # allow plain HTTP to other machines
    api_version: str | None
    project: str | None  # of Google Cloud
    location: str | None  # of Google Cloud; the region of AWS
    workspace: str | None  # of Claude in the account of a cloud's customer
    headers: Mapping[str, str] | None  # additional headers; `${NAME}` is an environment variable
    extra_body: Mapping[str, JSON] | None  # fields to merge into the encoded body
    defaults: Mapping[str, JSON] | None  # parameters for requests that do not set them
    capability_rows: tuple[CapabilityRow, ...]  # descriptions of models, before the built-in ones
    context_max: int | None  # tokens of prompt and answer, at most; for Ollama, also the largest context to load


class EndpointCredentials(NamedTuple):
    """The header of the key, and a key or a command for it."""

    header: ApiKey
    key: str | None = None
    command: KeyCommand | None = None
    variable: str | None = None  # the environment variable with the key, if it was not passed
    signing: AwsSigning | None = None  # signs requests instead of sending a key


def with_region(
    vendor: Vendor, settings: AddressSettings, environment: Mapping[str, str], profile: str | None
) -> AddressSettings:
    """Return the settings with the region of the profile if neither they nor the environment name a region."""
    if settings.location is not None or any(environment.get(name) for name in vendor.variables["location"]):
        return settings
    return replace(settings, location=region_of_profile(environment, profile))


def _find_signing(
    vendor: Vendor, settings: AddressSettings, environment: Mapping[str, str], options: EndpointOptions
) -> AwsSigning:
    """Return the signature of requests, with credentials of the command or else of the environment and AWS's files."""
    if (signing := options.get("signing")) is not None:
        return signing
    if options.get("key") is not None:
        raise ConfigError("a key and credentials of AWS are set", hint='remove the key, or profile and auth = "sigv4"')
    region, command = read_setting("location", vendor, settings, environment), options.get("key_command")
    source = None
    if command is not None:
        command = command if isinstance(command, KeyCommand) else KeyCommand(command)
        source = command_source(command.arguments, command.timeout)
    cache = AwsCredentialCache(environment, profile=options.get("profile"), region=region, command=source)
    return AwsSigning(cache, SigningScope(region, vendor.signing_name or ""))


def find_credentials(
    vendor: Vendor,
    address: EndpointAddress,
    settings: AddressSettings,
    environment: Mapping[str, str],
    options: EndpointOptions,
) -> EndpointCredentials:
    """Find the key: passed, printed by a command, or from the environment at the vendor's origin; or sign requests.

    Raise ConfigError for an invalid key, for two sources, and if the vendor needs a key and there is none.
    """
    key, command, auth = options.get("key"), options.get("key_command"), options.get("auth")
    if auth == "sigv4" or options.get("profile") is not None:
        return EndpointCredentials(_BEARER, signing=_find_signing(vendor, settings, environment, options))
    if key is not None and command is not None:
        raise ConfigError("both a key and a key_command are set", hint="remove one of them")
    if key is not None:
        return EndpointCredentials(_header_of(vendor, auth, is_token=False), _check_key(key, "the key"))
    if command is not None:
        command = command if isinstance(command, KeyCommand) else KeyCommand(command)
        return EndpointCredentials(_header_of(vendor, auth, is_token=True), command=command)
    if not is_own_origin(vendor, address, options.get("base_url")):
        return EndpointCredentials(_header_of(vendor, auth, is_token=False))
    for candidate in vendor.keys:
        if value := environment.get(candidate.variable, "").strip():
            header = candidate if auth is None else _header_of(vendor, auth, is_token=False)
            key = _check_key(value, f"the key in {candidate.variable}")
            return EndpointCredentials(header, key, variable=candidate.variable)
    if vendor.signing_name is not None:
        return EndpointCredentials(_BEARER, signing=_find_signing(vendor, settings, environment, options))
    if not vendor.keyless:
        variables = " or ".join(key.variable for key in vendor.keys)
        raise ConfigError(f"no key for {vendor.name}", hint=f"set {variables}, or pass key=… or key_command=…")
    return EndpointCredentials(_header_of(vendor, auth, is_token=False))


def _header_of(vendor: Vendor, auth: str | None, *, is_token: bool) -> ApiKey:
    """Return the header for a key that is not from the environment. `is_token`: it is from a command."""
    if auth == "bearer" or not vendor.keys:
        return _BEARER
    if auth == "key":
        return next((key for key in vendor.keys if key.header != _BEARER.header), vendor.keys[0])
    return next((key for key in vendor.keys if key.is_token == is_token), vendor.keys[0])


def is_own_origin(vendor: Vendor, address: EndpointAddress, base_url: str | None) -> bool:
    """Return whether a base URL is an address of the vendor, to which a key from the environment may be sent."""
    if base_url is None or address.origin == origin_of(urlsplit(vendor.base_url)):
        return True
    if not address.origin.startswith("https:"):
        return False
    is_listed = vendor.hosts is not None and re.fullmatch(vendor.hosts, address.host) is not None
    return is_listed or any(address.host.endswith(f".{domain}") for domain in vendor.domains)


def _check_key(key: str, label: str) -> str:
    """Return a key without white space around it. Raise ConfigError if it is empty or cannot be a header's value."""
    key = key.strip()
    if not is_header_value(key):
        raise ConfigError(f"{label} is empty or contains characters that are not allowed in a header")
    return key
