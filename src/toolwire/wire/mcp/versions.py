"""The versions of the protocol, and their two eras.

    handshake   2024-11-05 … 2025-11-25   `initialize` first; a session holds the agreed version and capabilities
    stateless   2026-07-28 …              every request states its version and capabilities in its `_meta`

Versions are dates, but they are compared by their position in the list: an unknown one is never newer than a known one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Era: TypeAlias = Literal["handshake", "stateless"]

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = ("2026-07-28",)
KNOWN = HANDSHAKE + STATELESS
LATEST_HANDSHAKE = HANDSHAKE[-1]
LATEST = STATELESS[-1]
_PLACE = {version: place for place, version in enumerate(KNOWN)}


def era_of(version: str) -> Era | None:
    """Return the era of a version, or None if the version is unknown."""
    if version in STATELESS:
        return "stateless"
    return "handshake" if version in HANDSHAKE else None


def since(version: str, first: str) -> bool:
    """Return True if `version` supports the features that came with `first`.

    >>> since("2025-06-18", "2025-03-26"), since("2999-01-01", "2025-03-26")
    (True, False)
    """
    return _PLACE.get(version, -1) >= _PLACE[first]


def negotiate_version(asked: str) -> str:
    """Return the version for the answer to `initialize`: the requested one, or else the newest of the handshake era."""
    return asked if asked in HANDSHAKE else LATEST_HANDSHAKE
