"""The Responses state in Redis, for any number of machines. Each step is one script or one pipeline.

{toolwire:responses:OWNER}:e:ID     an entry, which expires by itself
{toolwire:responses:OWNER}:used     a sorted set: ids by the time of their last use
{toolwire:responses:OWNER}:size     a hash: bytes by id, and their sum as `total`
{toolwire:responses:OWNER}:l:ID     the token of a lock, which expires by itself

An id that has expired is counted until it is the least recently used, and is then dropped first. If the values of one
owner expire, so does the rest after `_IDLE_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .redis_link import RedisLink
from .response_store import OwnerBounds, entry_key

__all__ = ["RedisResponses"]

_IDLE_SECONDS = 40 * 24 * 3600
# KEYS: the sorted set, the hash. ARGV: prefix, id, data, milliseconds, now, bytes, entries, seconds for the sums.
_SAVE = """
local function drop(id)
  local size = tonumber(redis.call('HGET', KEYS[2], id) or '0')
  redis.call('DEL', ARGV[1] .. id)
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
  return redis.call('HINCRBY', KEYS[2], 'total', string.format('%.0f', 0 - size))
end
drop(ARGV[2])
redis.call('SET', ARGV[1] .. ARGV[2], ARGV[3], 'PX', ARGV[4])
redis.call('ZADD', KEYS[1], ARGV[5], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], #ARGV[3])
local total = redis.call('HINCRBY', KEYS[2], 'total', #ARGV[3])
while total > tonumber(ARGV[6]) or redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[7]) do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)
  total = drop(oldest[1])
end
redis.call('EXPIRE', KEYS[1], ARGV[8])
redis.call('EXPIRE', KEYS[2], ARGV[8])
return total
"""
# KEYS: the sorted set, the hash. ARGV: prefix, then ids.
_DELETE = """
for at = 2, #ARGV do
  local size = tonumber(redis.call('HGET', KEYS[2], ARGV[at]) or '0')
  redis.call('DEL', ARGV[1] .. ARGV[at])
  redis.call('ZREM', KEYS[1], ARGV[at])
  redis.call('HDEL', KEYS[2], ARGV[at])
  redis.call('HINCRBY', KEYS[2], 'total', string.format('%.0f', 0 - size))
end
return 1
"""
# KEYS: the lock. ARGV: token, milliseconds.
_LOCK = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"


class RedisResponses:
    """Entries in Redis. Entries expire by its clock; `clock` only orders their uses."""

    def __init__(self, link: RedisLink, bounds: OwnerBounds, clock: Callable[[], float]) -> None:
        self._link = link
        self._bounds = bounds
        self._clock = clock

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float) -> None:
        prefix = _prefix(owner)
        bounds = (self._bounds.max_bytes, self._bounds.max_entries, _IDLE_SECONDS)
        values = (f"{prefix}:e:", _member(owner, entry_id), data, _milliseconds(seconds), self._clock(), *bounds)
        await self._link.execute(("EVAL", _SAVE, 2, f"{prefix}:used", f"{prefix}:size", *values))

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        """Load entries; only those that were found are renewed, so that dropped ids are not counted again."""
        if not entry_ids:
            return {}
        prefix, members = _prefix(owner), [_member(owner, entry_id) for entry_id in entry_ids]
        [values] = await self._link.execute(("MGET", *(f"{prefix}:e:{member}" for member in members)))
        found = [
            (entry_id, member, data)
            for entry_id, member, data in zip(entry_ids, members, values, strict=True)
            if data is not None
        ]
        if renew is not None and found:
            now = self._clock()
            expiry = [("PEXPIRE", f"{prefix}:e:{member}", _milliseconds(renew)) for _, member, _ in found]
            uses = [item for _, member, _ in found for item in (now, member)]
            await self._link.execute(*expiry, ("ZADD", f"{prefix}:used", "XX", *uses))
        return {entry_id: data for entry_id, _, data in found}

    async def delete(self, owner: str, entry_ids: Sequence[str]) -> None:
        prefix, members = _prefix(owner), [_member(owner, entry_id) for entry_id in entry_ids]
        await self._link.execute(("EVAL", _DELETE, 2, f"{prefix}:used", f"{prefix}:size", f"{prefix}:e:", *members))

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        [is_locked] = await self._link.execute(
            ("EVAL", _LOCK, 1, _lock_key(owner, entry_id), token, _milliseconds(seconds))
        )
        return bool(is_locked)

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        await self._link.execute(("EVAL", _UNLOCK, 1, _lock_key(owner, entry_id), token))

    async def aclose(self) -> None:
        await self._link.aclose()


def _prefix(owner: str) -> str:
    """Return the prefix of an owner's keys; the braces keep them on one node of a cluster."""
    return f"{{toolwire:responses:{entry_key(owner).hex()}}}"


def _member(owner: str, entry_id: str) -> str:
    return entry_key(owner, entry_id).hex()


def _lock_key(owner: str, entry_id: str) -> str:
    return f"{_prefix(owner)}:l:{_member(owner, entry_id)}"


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
