"""Find the models of a gateway and their limits: from its settings file, or from the running gateway."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ..ir.errors import ProtocolError
from ..ir.response import Fault, UpstreamError
from .client_models import AvailableModels, list_models
from .serve_keys import CONFIG

__all__ = ["UNKNOWN_LIMITS", "ModelLimits", "check_key", "find_limits", "find_models"]

_TIMEOUT = 2.0  # seconds
_MAX_DESCRIPTION = 64 * 1024  # bytes; ours have a few hundred


class ModelLimits(NamedTuple):
    """The tokens of prompt and answer together, and of the answer; None if unknown."""

    window: int | None = None
    max_output: int | None = None


UNKNOWN_LIMITS = ModelLimits()


def find_models(url: str, key: str, config: str | None = None) -> AvailableModels:
    """Return the models of the settings file `config`, else of the gateway at `url`, else of `toolwire.toml`.

    Raise UpstreamError if the gateway rejects the key, or if it does not list its models and there is no settings file.
    """
    if config is not None:
        return _read_models(Path(config))
    listed = _read_models(Path(CONFIG)) if Path(CONFIG).is_file() else None
    try:
        names = asyncio.run(_request_models(url, key))
    except UpstreamError as error:
        if listed is None or error.fault.kind == "authentication":
            raise
        return listed
    if listed is not None and set(names) <= set(listed.names):  # the file also has facts that the gateway does not list
        agent_names = tuple(name for name in listed.agent_names if name in names)
        return listed._replace(agent_names=agent_names, requires_key=False)
    return AvailableModels(names, names)


def check_key(url: str, key: str) -> None:
    """Raise UpstreamError if the gateway rejects the key. A gateway that cannot be reached does not reject it."""
    try:
        asyncio.run(_request_models(url, key))
    except UpstreamError as error:
        if error.fault.kind == "authentication":
            raise


def find_limits(url: str, key: str, model: str | None, config: str | None = None) -> ModelLimits:
    """Return the limits of a model, from the same sources as `find_models`."""
    if model is None:
        return UNKNOWN_LIMITS
    limits = UNKNOWN_LIMITS if config is not None else asyncio.run(_request_limits(url, key, model))
    path = Path(config or CONFIG)
    return _read_limits(path, model) if limits == UNKNOWN_LIMITS and path.is_file() else limits


def _read_limits(path: Path, model: str) -> ModelLimits:
    from ..gateway.settings import UpstreamRow
    from ..gateway.settings_file import load_settings
    from ..gateway.upstreams import find_vendor
    from ..net.model.endpoint_settings import load_capability_rows
    from ..wire import get
    from ..wire.models.profiles import match_capabilities, overlay

    settings = load_settings(path)
    row = settings.models.get(model)
    if row is None:
        return UNKNOWN_LIMITS
    target = row.targets[0] if row.targets else row
    name = target.upstream or ""
    upstream = settings.upstreams.get(name) or UpstreamRow(name)
    vendor = find_vendor(name, upstream)
    rows = () if settings.capabilities_file is None else load_capability_rows(settings.capabilities_file)
    wire = get(upstream.wire or vendor.wire)
    known = match_capabilities(wire, target.model or model, vendor=vendor.name, rows=rows).capabilities
    facts = overlay(row.capabilities, known)
    known_windows = [window for window in (facts.window, upstream.context_max) if window is not None]
    return ModelLimits(min(known_windows, default=None), facts.max_output)


async def _request_limits(url: str, key: str, model: str) -> ModelLimits:
    """Ask the gateway for the description of a model, in the format of Anthropic, which has both limits."""
    from ..net.http.client import HttpTransport
    from ..stream.strict import parse_object

    address = f"{url}/v1/models/{quote(model, safe='')}"
    async with aclosing(HttpTransport(environment={})) as transport:
        try:
            headers = {"anthropic-version": "2023-06-01"}
            async with transport.send("GET", address, headers, {"x-api-key": key}, b"", _TIMEOUT) as reply:
                received = bytearray()
                while len(received) <= _MAX_DESCRIPTION and (piece := await reply.read()):
                    received += piece
            document: Any = parse_object(bytes(received)) if reply.status == 200 else {}
        except (OSError, TimeoutError, ProtocolError):
            return UNKNOWN_LIMITS
    values = [document.get(field) for field in ("max_input_tokens", "max_tokens")]
    return ModelLimits(*[value if type(value) is int and value > 0 else None for value in values])


def _read_models(path: Path) -> AvailableModels:
    from ..gateway.settings_file import load_settings
    from ..gateway.upstreams import upstreams_from_environment

    settings = load_settings(path)
    return list_models(settings, () if settings.upstreams else tuple(upstreams_from_environment(os.environ)))


async def _request_models(url: str, key: str) -> tuple[str, ...]:
    """Ask the gateway for the names of the models that the key may use."""
    from ..net.model.endpoint import endpoint_of
    from ..net.model.server_facts import list_models
    from ..wire.models.vendors import COMPATIBLE

    endpoint = endpoint_of(COMPATIBLE, "any", {}, base_url=f"{url}/v1", key=key, insecure=True)
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await list_models(endpoint, {}, _TIMEOUT)
    except TimeoutError:
        message = f"{url} did not list its models within {_TIMEOUT:g} s"
        raise UpstreamError(Fault("timeout", message, 504)) from None
