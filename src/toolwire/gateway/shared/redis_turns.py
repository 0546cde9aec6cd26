"""Turns shared by many machines: `turns.py` in Redis, each entry for the time in the settings.

toolwire:turn:HASH     a stored turn, as JSON; the hash is that of the caller's name and the turn's key
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from ...bridge.turns import StoredTurn, TurnStore
from ...ir.errors import StoreError
from .redis_link import Command, RedisLink

__all__ = ["RedisTurns"]

_decoder = msgspec.json.Decoder(StoredTurn)


class RedisTurns:
    """Turns in Redis. They are also kept in `local_store`, which is read in an outage unless `strict`."""

    def __init__(self, link: RedisLink, local_store: TurnStore, seconds: float, *, strict: bool) -> None:
        self._link = link
        self._local_store = local_store
        self._milliseconds = int(seconds * 1000)
        self._strict = strict

    @property
    def has_any(self) -> bool:
        return True  # this machine cannot know otherwise

    async def save(self, caller: str, keys: Sequence[str], turn: StoredTurn, data: bytes) -> None:
        """Store a turn locally and in Redis. A failure of Redis is ignored, even if `strict`."""
        await self._local_store.save(caller, keys, turn, data)
        try:
            await self._link.execute(*(self._command(caller, key, data) for key in keys))
        except StoreError:
            pass  # already logged; the client gets its answer anyway

    def _command(self, caller: str, key: str, data: bytes) -> Command:
        return ("SET", _redis_key(caller, key), data, "PX", self._milliseconds)

    async def load(self, caller: str, keys: list[str]) -> dict[str, StoredTurn]:
        """Load turns from Redis; if it is unavailable, from the local store, unless `strict`."""
        names = [_redis_key(caller, key) for key in keys]
        try:
            [values] = await self._link.execute(("MGET", *names))
        except StoreError:
            if self._strict:
                raise
            return await self._local_store.load(caller, keys)
        decoded = {key: _decode_entry(data) for key, data in zip(keys, values, strict=True)}
        return {key: turn for key, turn in decoded.items() if turn is not None}


def _redis_key(caller: str, key: str) -> str:
    return "toolwire:turn:" + sha256(msgspec.json.encode((caller, key))).hexdigest()


def _decode_entry(data: bytes | None) -> StoredTurn | None:
    """Decode an entry; None for one that another version has written."""
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
