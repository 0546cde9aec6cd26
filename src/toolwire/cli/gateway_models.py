"""Find the models of a gateway: from its settings file, or from the running gateway."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ..ir.response import Fault, UpstreamError
from .client_models import AvailableModels, list_models
from .serve_keys import CONFIG

__all__ = ["check_key", "find_models"]

_TIMEOUT = 2.0  # seconds


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


def _read_models(path: Path) -> AvailableModels:
    from ..gateway.settings_file import load_settings
    from ..gateway.upstreams import upstreams_from_environment

    settings = load_settings(path)
    return list_models(settings, () if settings.upstreams else tuple(upstreams_from_environment(os.environ)))


async def _request_models(url: str, key: str) -> tuple[str, ...]:
    """Ask the gateway for the names of the models that the key may use."""
    from ..net.endpoint import endpoint_of
    from ..net.model_list import list_models
    from ..wire.vendors import COMPATIBLE

    endpoint = endpoint_of(COMPATIBLE, "any", {}, base_url=f"{url}/v1", key=key, insecure=True)
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await list_models(endpoint, {}, _TIMEOUT)
    except TimeoutError:
        message = f"{url} did not list its models within {_TIMEOUT:g} s"
        raise UpstreamError(Fault("timeout", message, 504)) from None
