"""Turns shared by several machines, in Redis, each for the time in the settings.

toolwire:turn:HASH     a stored turn, as JSON; the hash is that of the caller's name and the turn's key
toolwire:turns         a random text; if it changes, Redis has lost its contents
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from secrets import token_hex

import msgspec

from ...ir.errors import StoreError
from .redis_link import RedisLink
from .shared_turns import Gap

__all__ = ["RedisTurns"]

_MARK = "toolwire:turns"


class RedisTurns:
    """Turns in Redis. `gap` is noted if Redis has lost its contents."""

    def __init__(self, link: RedisLink, seconds: float, gap: Gap) -> None:
        self._link = link
        self._milliseconds = int(seconds * 1000)
        self._gap = gap
        self._mark: bytes | None = None  # the last known value of `toolwire:turns`

    async def open(self) -> None:
        """Learn the mark. A failure is logged, and has no other effect."""
        try:
            _, self._mark = await self._link.execute(("SET", _MARK, token_hex(8), "NX"), ("GET", _MARK))
        except StoreError:
            pass  # an outage at the start is one like any other

    async def save(self, caller: str, keys: Sequence[str], data: bytes) -> None:
        """Store a turn, and the mark if there is none."""
        commands = [("SET", _redis_key(caller, key), data, "PX", self._milliseconds) for key in keys]
        await self._link.execute(*commands, ("SET", _MARK, token_hex(8), "NX"))

    async def load(self, caller: str, keys: Sequence[str]) -> dict[str, bytes]:
        [[mark, *values]] = await self._link.execute(("MGET", _MARK, *(_redis_key(caller, key) for key in keys)))
        if mark is None or mark != self._mark:
            self._gap.note()
        self._mark = mark
        return {key: data for key, data in zip(keys, values, strict=True) if data is not None}


def _redis_key(caller: str, key: str) -> str:
    return "toolwire:turn:" + sha256(msgspec.json.encode((caller, key))).hexdigest()
