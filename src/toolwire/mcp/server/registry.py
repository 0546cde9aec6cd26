"""`server.json`: the description of a server for the MCP registry (schema of 2025-12-11)."""

from __future__ import annotations

import re

from ...ir.errors import ConfigError
from ...ir.pointer import Object

_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_NAME = re.compile(
    r"[a-zA-Z0-9][a-zA-Z0-9-]*(?:\.[a-zA-Z0-9-]++)++/[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?"
).fullmatch
_RANGE = re.compile(r"[\^~><=|*\s]|latest").search
_MAX_NAME_LENGTH, _MAX_DESCRIPTION_LENGTH = 200, 100


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
    """Return `server.json` for a package on PyPI, a URL, or both.

    Raise ConfigError for values that the registry rejects.
    """
    _check(name, version, description)
    if pypi is None and url is None:
        raise ConfigError("neither a package nor a URL is given", hint="pass pypi=…, url=…, or both")
    out: Object = {"$schema": _SCHEMA, "name": name}
    if title is not None:
        out["title"] = title
    out.update(description=description, version=version)
    if repository is not None:
        out["repository"] = {"url": repository, "source": _repository_source(repository)}
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
            raise ConfigError(f"url must start with https://, got {url}", hint="use https://, as the registry requires")
        out["remotes"] = [{"type": "streamable-http", "url": url}]
    return out


def _check(name: str, version: str, description: str) -> None:
    """Raise ConfigError for a name, version or description that the schema of the registry rejects."""
    if not _NAME(name) or len(name) > _MAX_NAME_LENGTH:
        raise ConfigError(f"invalid registry name {name!r}", hint="use reverse DNS and a name: io.github.me/weather")
    if not version or _RANGE(version):
        raise ConfigError(f"version must be one exact version, got {version!r}", hint='pass version="1.0.0"')
    if not 0 < len(description) <= _MAX_DESCRIPTION_LENGTH:
        message = f"description must have 1 to {_MAX_DESCRIPTION_LENGTH} characters, got {len(description)}"
        raise ConfigError(message, hint="pass a shorter description=…")


def _repository_source(repository: str) -> str:
    for host in ("github", "gitlab"):
        if f"//{host}.com/" in repository:
            return host
    raise ConfigError(
        f"repository must be on github.com or gitlab.com, got {repository}", hint="leave out repository=…"
    )
