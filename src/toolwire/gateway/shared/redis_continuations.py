"""Signatures shared by many machines: `continuations.py` in Redis, each entry for the time in the settings.

toolwire:kept:HASH     the stored data of a call, as JSON; the hash is that of the caller's name and the call's id
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from ...ir.errors import StoreError
from ..answer.answer_stats import Continuation
from .continuations import ContinuationStore
from .redis_link import Command, RedisLink

__all__ = ["RedisContinuations"]

_encode = msgspec.json.encode  # MessagePack has no integers beyond 64 bits
_decoder = msgspec.json.Decoder(Continuation)


class RedisContinuations:
    """A memory in Redis. Entries are also kept in `local_store`, which is read in an outage unless `strict`."""

    def __init__(self, link: RedisLink, local_store: ContinuationStore, seconds: float, *, strict: bool) -> None:
        self._link = link
        self._local_store = local_store
        self._milliseconds = int(seconds * 1000)
        self._strict = strict

    @property
    def has_any(self) -> bool:
        return True  # this machine cannot know otherwise

    async def save(self, caller: str, kept: Mapping[str, Continuation]) -> None:
        """Store entries locally and in Redis. A failure of Redis is ignored, even if `strict`."""
        await self._local_store.save(caller, kept)
        try:
            await self._link.execute(
                *(self._command(caller, call_id, continuation) for call_id, continuation in kept.items())
            )
        except StoreError:
            pass  # already logged; the client gets its answer anyway

    def _command(self, caller: str, call_id: str, continuation: Continuation) -> Command:
        return ("SET", _redis_key(caller, call_id), _encode(continuation), "PX", self._milliseconds)

    async def load(self, caller: str, call_ids: list[str]) -> dict[str, Continuation]:
        """Load entries from Redis; if it is unavailable, from the local store, unless `strict`."""
        names = [_redis_key(caller, call_id) for call_id in call_ids]
        try:
            [values] = await self._link.execute(("MGET", *names))
        except StoreError:
            if self._strict:
                raise
            return await self._local_store.load(caller, call_ids)
        decoded = {call_id: _decode_entry(data) for call_id, data in zip(call_ids, values, strict=True)}
        return {call_id: continuation for call_id, continuation in decoded.items() if continuation is not None}


def _redis_key(caller: str, call_id: str) -> str:
    return "toolwire:kept:" + sha256(_encode((caller, call_id))).hexdigest()


def _decode_entry(data: bytes | None) -> Continuation | None:
    """Decode an entry; None for one that another version has written."""
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
