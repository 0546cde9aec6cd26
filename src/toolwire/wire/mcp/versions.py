"""The protocol's versions, and the two eras they belong to.

    handshake   2024-11-05 … 2025-11-25   `initialize` first; a session holds what was agreed
    stateless   2026-07-28 …              every request says in its `_meta` what it needs to be understood

Versions are dates, but are compared by their place in the list: an unknown one is never newer than anything.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["HANDSHAKE", "KNOWN", "LATEST", "LATEST_HANDSHAKE", "STATELESS", "Era", "agreed", "era_of", "since"]

Era: TypeAlias = Literal["handshake", "stateless"]

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = ("2026-07-28",)
KNOWN = HANDSHAKE + STATELESS
LATEST_HANDSHAKE = HANDSHAKE[-1]
LATEST = STATELESS[-1]
_PLACE = {version: place for place, version in enumerate(KNOWN)}


def era_of(version: str) -> Era | None:
    """The era of a version; None where it is not known."""
    if version in STATELESS:
        return "stateless"
    return "handshake" if version in HANDSHAKE else None


def since(version: str, first: str) -> bool:
    """Whether `version` has what came with `first`.

    >>> since("2025-06-18", "2025-03-26"), since("2999-01-01", "2025-03-26")
    (True, False)
    """
    return _PLACE.get(version, -1) >= _PLACE[first]


def agreed(asked: str) -> str:
    """What a server answers `initialize` with: the version that was asked for, or the newest that knows a handshake."""
    return asked if asked in HANDSHAKE else LATEST_HANDSHAKE
