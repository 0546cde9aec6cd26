"""Recognise hosts that are this machine."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["is_address", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Return True for `localhost`, names below it (RFC 6761) and loopback addresses, IPv4-mapped ones included."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address is not None and address.is_loopback


def is_address(host: str) -> bool:
    """Return True for an IP address, False for a name."""
    return _address(host) is not None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        return None
