"""Find model servers on this machine: one short request to the usual port of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ..ir.errors import ProtocolError, ToolwireError
from ..ir.pointer import Object

__all__ = ["LocalServer", "find_local_servers", "get_json", "model_names"]

_PORTS = {"ollama": 11434, "vllm": 8000, "llamacpp": 8080, "lmstudio": 1234, "sglang": 30000}
_OWNERS = {"vllm": "vllm", "llamacpp": "llamacpp", "sglang": "sglang"}  # `owned_by` of the models of a server
_TIMEOUT = 1.0  # seconds
_MAX_BYTES = 1024 * 1024
_MAX_NAME = 200  # characters


class LocalServer(NamedTuple):
    """A server that answered: its provider, its base URL and the names of its models."""

    provider: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(ports: Mapping[str, int] | None = None, *, seconds: float = _TIMEOUT) -> list[LocalServer]:
    """Ask the usual port of each kind of server for its models, all at the same time."""
    wanted = (_PORTS if ports is None else ports).items()
    found = await asyncio.gather(*(_ask(provider, port, seconds) for provider, port in wanted))
    return [server for server in found if server is not None]


async def _ask(provider: str, port: int, seconds: float) -> LocalServer | None:
    """Return the server on a port, or None if there is none with a list of models: another program may use the port."""
    root = f"http://127.0.0.1:{port}"
    is_ollama = provider == "ollama"
    try:
        document = await get_json(f"{root}/api/tags" if is_ollama else f"{root}/v1/models", seconds=seconds)
        names = model_names(document)
    except (OSError, TimeoutError, ToolwireError):
        return None
    provider = provider if is_ollama else _OWNERS.get(_owner(document), provider)
    return LocalServer(provider, root if is_ollama else f"{root}/v1", tuple(names))


async def get_json(url: str, *, seconds: float, secrets: Mapping[str, str] | None = None) -> Object:
    """Request a JSON object within `seconds`. ProtocolError for another status than 200 or another content."""
    from ..net.h1 import H1Transport
    from ..net.replies import read_reply_body
    from ..stream.strict import parse_object

    transport = H1Transport(connect_timeout=seconds, reuse=False)
    try:
        async with (
            asyncio.timeout(seconds),
            transport.send("GET", url, {"accept": "application/json"}, secrets or {}, b"", seconds) as reply,
        ):
            body = await read_reply_body(reply, _MAX_BYTES)
    finally:
        await transport.aclose()
    if reply.status != 200:
        raise ProtocolError(f"{url} returned status {reply.status}")
    return parse_object(body)


def model_names(document: Object) -> list[str]:
    """Return the names in a list of models, of OpenAI's or Ollama's API. ProtocolError if it is no such list."""
    entries = document.get("data", document.get("models"))
    if not isinstance(entries, list):
        raise ProtocolError("the answer is not a list of models")
    names = [entry.get("id", entry.get("name")) for entry in entries if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str) and 0 < len(name) <= _MAX_NAME]


def _owner(document: Object) -> str:
    entries = document.get("data")
    first = entries[0] if isinstance(entries, list) and entries else None
    owner = first.get("owned_by") if isinstance(first, dict) else None
    return owner if isinstance(owner, str) else ""
