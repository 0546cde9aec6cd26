"""`server.json`: how a server is described to the MCP registry (schema of 2025-12-11)."""

from __future__ import annotations

import re

from ..ir.errors import ConfigError
from ..ir.pointer import Object

__all__ = ["server_json"]

_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_NAME = re.compile(
    r"[a-zA-Z0-9][a-zA-Z0-9-]*(?:\.[a-zA-Z0-9-]++)++/[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?"
).fullmatch
_RANGE = re.compile(r"[\^~><=|*\s]|latest").search
_LONGEST_NAME, _LONGEST_WORDS = 200, 100


def server_json(
    name: str,
    version: str,
    description: str,
    *,
    title: str | None = None,
    repository: str | None = None,
    pypi: str | None = None,
    url: str | None = None,
) -> Object:
    """The document; ConfigError for what the registry would refuse."""
    _check(name, version, description)
    if pypi is None and url is None:
        raise ConfigError("nobody could find the server", hint="--pypi PACKAGE, or --url URL, or both")
    out: Object = {"$schema": _SCHEMA, "name": name}
    if title is not None:
        out["title"] = title
    out.update(description=description, version=version)
    if repository is not None:
        out["repository"] = {"url": repository, "source": _source(repository)}
    if pypi is not None:
        out["packages"] = [
            {
                "registryType": "pypi",
                "identifier": pypi,
                "version": version,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
            }
        ]
    if url is not None:
        if not url.startswith("https://"):
            raise ConfigError(f"{url} is not https", hint="the registry lists servers that anybody can reach safely")
        out["remotes"] = [{"type": "streamable-http", "url": url}]
    return out


def _check(name: str, version: str, description: str) -> None:
    if not _NAME(name) or len(name) > _LONGEST_NAME:
        raise ConfigError(f"{name!r} is no name for the registry", hint="reverse DNS and a name: io.github.me/weather")
    if not version or _RANGE(version):
        raise ConfigError(f"{version!r} is not one version", hint="--version 1.0.0")
    if not 0 < len(description) <= _LONGEST_WORDS:
        words = f"a description has 1 to {_LONGEST_WORDS} characters, not {len(description)}"
        raise ConfigError(words, hint="--description, or the first line of the file's docstring")


def _source(repository: str) -> str:
    for known in ("github", "gitlab"):
        if f"//{known}.com/" in repository:
            return known
    raise ConfigError(f"{repository} is on neither github.com nor gitlab.com", hint="leave --repository out")
