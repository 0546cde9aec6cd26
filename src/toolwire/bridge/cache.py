"""Fit prompt-cache marks to the target: whether it supports one at that place, and its time to live."""

from __future__ import annotations

from ..ir.losses import Losses
from ..wire.protocol import Capabilities

__all__ = ["fit_ttl"]

_MINUTES = {"5m": 5, "30m": 30, "1h": 60, "12h": 720}


def fit_ttl(ttl: str, element: str, can: Capabilities, path: str, losses: Losses) -> str | None:
    """Return the target's time to live: the shortest sufficient one, or None if it supports no mark there."""
    if element not in can.cache:
        losses.add(f"{path}/cache", "cache mark", "dropped", f"the target does not support one on a {element}", "info")
        return None
    if ttl == "default" or ttl in can.cache_ttls:
        return ttl
    wanted = _MINUTES.get(ttl, 0)
    fitted = next((known for known in can.cache_ttls if _MINUTES[known] >= wanted), can.cache_ttls[-1])
    losses.add(f"{path}/cache", "cache time to live", "rewritten", f"{ttl} was changed to {fitted}", "info")
    return fitted
