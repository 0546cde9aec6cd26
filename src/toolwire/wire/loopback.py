"""Recognise hosts that are this machine, or on a private network."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

_LEGACY_ADDRESS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}", re.IGNORECASE)


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


def is_private(host: str) -> bool:
    """Return True for this machine, for addresses that are not public, and for addresses in an old notation.

    >>> is_private("10.0.0.1"), is_private("2130706433"), is_private("printer"), is_private("example.com")
    (True, True, True, False)
    """
    name = host.lower().removesuffix(".")
    address = _address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address is not None:
        return not address.is_global
    is_local_name = "." not in name or name.endswith((".local", ".internal", ".home.arpa", ".lan"))
    return is_loopback(host) or is_local_name or _LEGACY_ADDRESS.fullmatch(name) is not None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        return None
