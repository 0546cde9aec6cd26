"""Open a fine-tuning service with the key, the address and the proxies of the environment.

    async with open_tuning_service(SubmitSettings(to="openai", model="gpt-4.1-mini-2025-04-14")) as service:
        …

Keys and addresses are those of the vendor's row (`wire.models.vendors`). The vendor's key of the environment is sent to
the vendor's own address only. For another one, of the settings or of the vendor's variable such as `OPENAI_BASE_URL`, the
caller names the variable of the key: a gateway or a proxy for requests to models is seldom meant for training data. Keys
are never written to the folder of a run.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ...ir.errors import ConfigError
from ...net.http.client import HttpTransport
from ...net.http.head import is_header_value, origin_of, parse_base_url
from ...net.model.key_command import KeyCommand
from ...wire.models.vendor_types import Vendor
from ...wire.models.vendors import find
from .mistral_service import MistralService
from .openai_service import OpenAIService
from .service import TuningService
from .service_api import RequestTransport, ServiceApi, ServiceKey
from .submission import SubmitSettings
from .together_service import TogetherService
from .vertex_service import VertexService

_PLAIN: dict[str, type[OpenAIService] | type[MistralService] | type[TogetherService]] = {
    "openai": OpenAIService,
    "mistral": MistralService,
    "together": TogetherService,
}
SERVICES = (*_PLAIN, "vertex")
_LOCATION = "us-central1"  # of tuning, if none is set: it has every model that can be tuned
_API_VERSION = "v1beta1"  # that google-genai requests
_STORAGE = "https://storage.googleapis.com"
_STORAGE_VARIABLE = "STORAGE_EMULATOR_HOST"  # replaces Cloud Storage, as in Google's client libraries
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}").fullmatch


@asynccontextmanager
async def open_tuning_service(
    settings: SubmitSettings,
    *,
    environment: Mapping[str, str] | None = None,
    key_variable: str | None = None,
    key_command: Sequence[str] | None = None,
    transport: RequestTransport | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[TuningService]:
    """Open the service of the settings. Raise ConfigError without a key, and for an unknown service.

    `key_variable`: the environment variable with the key, instead of the vendor's. `key_command`: a command that prints
    one, such as an access token for Vertex AI. `transport` is for tests.
    """
    environment = os.environ if environment is None else environment
    if settings.to not in SERVICES:
        raise ConfigError(f"unknown service {settings.to!r}", hint=f"use one of {', '.join(SERVICES)}")
    vendor = find(settings.to)
    address = _address_of(vendor, settings, environment)
    used = [(address, _located(vendor.base_url, vendor, environment), vendor.base_variable)]
    if settings.to == "vertex":
        used.append((_storage_of(environment), _STORAGE, _STORAGE_VARIABLE))
    for given, own, variable in used:
        is_own = origin_of(parse_base_url(given, insecure=False)) == origin_of(urlsplit(own))
        if not is_own and key_variable is None and key_command is None:
            hint = f"pass key_variable=… for it{f', or unset {variable}' if variable else ''}"
            raise ConfigError(f"the key of {vendor.name} is not sent to another server", hint=hint)
    credentials = _find_credentials(vendor, environment, key_variable, key_command)
    # A request on a reused connection that was closed is not sent again by the client: it may create a job.
    client = HttpTransport(environment=environment, resends=False)
    api = ServiceApi(address, credentials, transport or client, sleep=sleep)
    try:
        if settings.to == "vertex":
            yield _open_vertex(api, settings, vendor, environment)
        else:
            yield _PLAIN[settings.to](api)
    finally:
        await client.aclose()


def _address_of(vendor: Vendor, settings: SubmitSettings, environment: Mapping[str, str]) -> str:
    """Return the base URL: of the settings, the vendor's variable, or the vendor's row. Vertex AI adds its version."""
    address = settings.base_url or environment.get(vendor.base_variable or "", "").strip() or vendor.base_url
    if settings.to != "vertex":
        return address
    return f"{_located(address, vendor, environment).rstrip('/')}/{_API_VERSION}"


def _located(address: str, vendor: Vendor, environment: Mapping[str, str]) -> str:
    return address.replace("{location}", _location(vendor, environment)) if "{location}" in address else address


def _find_credentials(
    vendor: Vendor,
    environment: Mapping[str, str],
    key_variable: str | None,
    key_command: Sequence[str] | None,
) -> ServiceKey:
    if key_command is not None:
        return ServiceKey(None, KeyCommand(key_command))
    variable = key_variable or vendor.keys[0].variable
    key = environment.get(variable, "").strip()
    if not is_header_value(key):
        hint = (
            f"export {variable}=…"
            if key_variable or vendor.name != "vertex"
            else f"pass key_command=…, or export {variable}=…"
        )
        raise ConfigError(f"environment variable {variable} has no key", hint=hint)
    return ServiceKey(key, None, vendor.keys[0].header, vendor.keys[0].prefix)


def _open_vertex(
    api: ServiceApi, settings: SubmitSettings, vendor: Vendor, environment: Mapping[str, str]
) -> VertexService:
    project = _setting("project", vendor, environment)
    if project is None:
        raise ConfigError("Vertex AI needs a project", hint=f"export {vendor.variables['project'][0]}=…")
    storage = _storage_of(environment)
    parent = f"projects/{project}/locations/{_location(vendor, environment)}"
    return VertexService(api, parent, storage, settings.bucket)


def _storage_of(environment: Mapping[str, str]) -> str:
    return environment.get(_STORAGE_VARIABLE, "").strip() or _STORAGE


def _location(vendor: Vendor, environment: Mapping[str, str]) -> str:
    location = _setting("location", vendor, environment) or _LOCATION
    return _LOCATION if location == "global" else location


def _setting(name: str, vendor: Vendor, environment: Mapping[str, str]) -> str | None:
    """Return a project or a location of the environment. Raise ConfigError if it cannot be part of a path."""
    values = (environment.get(variable, "").strip() for variable in vendor.variables[name])
    value = next((value for value in values if value), None)
    if value is not None and not _is_name(value):
        raise ConfigError(f"invalid {name} {value!r}", hint="use letters, digits and . _ : -")
    return value
