"""Find model servers on this machine: one short request to the usual address of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ..ir.errors import ToolwireError

__all__ = ["LocalServer", "find_local_servers"]

_PROVIDERS = ("ollama", "vllm", "llamacpp", "lmstudio", "sglang")
_TIMEOUT = 1.0  # seconds
_MAX_NAME = 200  # characters


class LocalServer(NamedTuple):
    """A server that answered with a list of models."""

    provider: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(
    addresses: Mapping[str, str] | None = None, *, seconds: float = _TIMEOUT
) -> list[LocalServer]:
    """Ask the usual address of each kind of server for its models, all at the same time. No key is sent."""
    from ..wire.models.vendors import find

    wanted = {name: find(name).base_url for name in _PROVIDERS} if addresses is None else addresses
    found = await asyncio.gather(*(_ask(provider, base_url, seconds) for provider, base_url in wanted.items()))
    return [server for server in found if server is not None]


async def _ask(provider: str, base_url: str, seconds: float) -> LocalServer | None:
    """Return the server at an address; None if there is none, or another program uses its port."""
    from ..net.model.server_facts import list_vendor_models
    from ..wire.models.vendors import find

    try:
        async with asyncio.timeout(seconds):
            names = await list_vendor_models(find(provider), {}, base_url=base_url, seconds=seconds)
    except (TimeoutError, ToolwireError):
        return None
    return LocalServer(provider, base_url, tuple(name for name in names if 0 < len(name) <= _MAX_NAME))
