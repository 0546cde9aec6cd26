"""Refuse to listen on an address that other machines can reach without authentication."""

from __future__ import annotations

import socket

from ..ir.errors import ConfigError
from ..wire.loopback import is_loopback

__all__ = ["refuse_open"]


def refuse_open(host: str, *, without: str, hint: str) -> None:
    """Raise ConfigError if other machines can reach `host`, an address or a name to listen on."""
    if not _is_local(host):
        exposed = host or "every interface"
        raise ConfigError(f"without {without}, {exposed} would be open to every client that can reach it", hint=hint)


def _is_local(host: str) -> bool:
    """Return True if all addresses of the host are loopback addresses: a resolver may map `x.localhost` elsewhere."""
    if not is_loopback(host):
        return False
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return True  # nothing can listen on it
    return all(is_loopback(str(address[0])) for *_, address in addresses)
