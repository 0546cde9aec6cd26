"""Find the models of a gateway: from its settings file, or from the running gateway."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ..ir.errors import ToolwireError
from .client_models import AvailableModels, list_models
from .serve_keys import CONFIG

__all__ = ["find_models"]

_TIMEOUT = 2.0  # seconds
_MAX_BYTES = 4 * 1024 * 1024
_MAX_MODELS = 10_000


def find_models(url: str, key: str, config: str | None = None) -> AvailableModels | None:
    """Return the models of the settings file `config`, else of the gateway at `url`, else of `toolwire.toml`.

    Return None if no gateway answers and there is no settings file.
    """
    if config is not None:
        return _read_models(Path(config))
    try:
        names = asyncio.run(_request_models(url, key))
    except (OSError, TimeoutError, ToolwireError):
        return _read_models(Path(CONFIG)) if Path(CONFIG).is_file() else None
    listed = _read_models(Path(CONFIG)) if Path(CONFIG).is_file() else None
    if listed is not None and set(names) <= set(listed.names):  # the file also has facts that the gateway does not list
        usable = set(names)
        return listed._replace(agent_names=tuple(name for name in listed.agent_names if name in usable))
    return AvailableModels(names, names)


def _read_models(path: Path) -> AvailableModels:
    from ..gateway.settings_file import load_settings
    from ..gateway.upstreams import upstreams_from_environment

    settings = load_settings(path)
    return list_models(settings, () if settings.upstreams else tuple(upstreams_from_environment(os.environ)))


async def _request_models(url: str, key: str) -> tuple[str, ...]:
    """Ask the gateway for the names of the models that the key may use."""
    from ..ir.errors import ProtocolError
    from ..net.h1 import H1Transport
    from ..net.replies import read_reply_body
    from ..stream.strict import parse_object

    transport = H1Transport(connect_timeout=_TIMEOUT)
    try:
        async with asyncio.timeout(_TIMEOUT):
            secrets = {"authorization": f"Bearer {key}"}
            async with transport.send("GET", f"{url}/v1/models", {}, secrets, b"", _TIMEOUT) as reply:
                body = await read_reply_body(reply, _MAX_BYTES)
    finally:
        await transport.aclose()
    entries = parse_object(body).get("data") if reply.status == 200 else None
    if not isinstance(entries, list):
        raise ProtocolError(f"{url}/v1/models returned status {reply.status} without a list of models")
    names = [entry.get("id") for entry in entries[:_MAX_MODELS] if isinstance(entry, dict)]
    return tuple(name for name in names if isinstance(name, str))
