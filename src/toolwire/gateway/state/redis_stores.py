"""Cooldowns, limits, turns and stored responses in Redis (or Valkey), for any number of machines.

toolwire:cooldowns     a sorted set of labels by the end of their cooldown, in seconds since 1970

{toolwire:limit:KEY}:requests|tokens|day     a hash of amounts by slice number; it expires after its last slice

toolwire:turn:HASH     a stored turn, as JSON; the caller's name and the turn's key are hashed
toolwire:turns         a random text; if it changes, Redis has lost its contents

{toolwire:responses:OWNER}:e:ID     an entry, which expires by itself
{toolwire:responses:OWNER}:used     a sorted set: ids by the time of their last use
{toolwire:responses:OWNER}:size     a hash: bytes by id, and their sum as `total`
{toolwire:responses:OWNER}:l:ID     the token of a lock, which expires by itself

Decisions that read and write are Lua scripts, which Redis runs without others in between; a pipeline of commands would
let two gateways read the same count. The keys of a script share a hash tag, the part in braces, so that Redis Cluster has
them on one node (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags). Limits and
cooldowns use the clock of the Redis server, because the clocks of the gateways differ.

Commands of concurrent requests are sent as one batch: while a batch is on its way, further commands wait for the next, so
a busy gateway needs fewer round trips instead of more connections. A failure fails the whole queue, and starts a cooldown
like a failure of `state.database`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from secrets import token_hex

import msgspec

from ...ir.errors import StoreError
from ..keys import MAX_AHEAD, SLICES, Caller, Limit, limits_of, rate_limit_error
from ..responses.store import HeldLock, LockReleases, OwnerBounds, entry_key, lock_lost
from ..routing.health import MAX_COOLDOWNS
from .redis_link import Command, RedisLink
from .shared import Gap

# Cooldowns shared by several machines, in Redis, by its clock.


_KEY = "toolwire:cooldowns"
_NOW = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
"""
# pairs of a label and the remaining seconds
_LOAD_COOLDOWNS = (
    _NOW
    + """
local found = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.6f', now), '+inf', 'WITHSCORES')
for at = 2, #found, 2 do found[at] = string.format('%.6f', found[at] - now) end
return found
"""
)
# ARGV: pairs of a label and its seconds, after the maximum number of labels
_SAVE_COOLDOWN = (
    _NOW
    + """
for at = 2, #ARGV, 2 do
  local seconds = tonumber(ARGV[at + 1])
  if seconds > 0 then
    redis.call('ZADD', KEYS[1], string.format('%.6f', now + seconds), ARGV[at])
  else
    redis.call('ZREM', KEYS[1], ARGV[at])
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - tonumber(ARGV[1]))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last * 1000 + 1000)) end
"""
)


class RedisCooldowns:
    """Cooldowns in Redis."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    async def load(self) -> dict[str, float]:
        [found] = await self._link.execute(("EVAL", _LOAD_COOLDOWNS, 1, _KEY))
        labels = [label.decode("utf-8", "surrogatepass") for label in found[::2]]
        return {label: float(seconds) for label, seconds in zip(labels, found[1::2], strict=True)}

    async def save(self, changes: Mapping[str, float]) -> None:
        pairs = [
            value
            for label, seconds in changes.items()
            for value in (label.encode("utf-8", "surrogatepass"), repr(float(seconds)))
        ]
        await self._link.execute(("EVAL", _SAVE_COOLDOWN, 1, _KEY, MAX_COOLDOWNS, *pairs))


# Limits shared by many machines: the windows of `limits.py` in Redis, by its clock.
#
# Each step is one script and one round trip.


# ARGV[1] is the time; empty for the server's clock.
_SCRIPT_HEAD = f"""
local SLICES, MAX_AHEAD = {SLICES}, {MAX_AHEAD}
local now = tonumber(ARGV[1])
if not now then
  local clock = redis.call('TIME')
  now = clock[1] + clock[2] / 1000000
end
local function add(key, slice, amount)
  redis.call('HINCRBY', key, string.format('%.0f', math.floor(now / slice)), amount)
  redis.call('PEXPIRE', key, string.format('%.0f', (SLICES + 2) * slice * 1000))
end
"""
# Then for every key: the limit, the seconds of a slice, the amount that a request adds.
_ADMIT = (
    _SCRIPT_HEAD
    + """
local function wait(key, most, slice)
  local current, found = math.floor(now / slice), redis.call('HGETALL', key)
  local numbers, amounts, left = {}, {}, 0
  for at = 1, #found, 2 do
    local number, amount = tonumber(found[at]), tonumber(found[at + 1])
    if number < current - SLICES then
      redis.call('HDEL', key, found[at])
    else
      if number > current + MAX_AHEAD then
        redis.call('HDEL', key, found[at])
        number = current + MAX_AHEAD
        redis.call('HINCRBY', key, string.format('%.0f', number), amount)
      end
      if not amounts[number] then numbers[#numbers + 1], amounts[number] = number, 0 end
      amounts[number], left = amounts[number] + amount, left + amount
    end
  end
  table.sort(numbers)
  local free = now
  for _, number in ipairs(numbers) do
    if left < most then break end
    left, free = left - amounts[number], (number + SLICES + 1) * slice
  end
  return free - now
end
for at, key in ipairs(KEYS) do
  local seconds = wait(key, tonumber(ARGV[3 * at - 1]), tonumber(ARGV[3 * at]))
  if seconds > 0 then return {at, string.format('%.6f', seconds)} end
end
for at, key in ipairs(KEYS) do
  if ARGV[3 * at + 1] == '1' then add(key, tonumber(ARGV[3 * at]), 1) end
end
return {0, ''}
"""
)
# Then the tokens, and for every key the seconds of a slice.
_SPEND = _SCRIPT_HEAD + "for at, key in ipairs(KEYS) do add(key, tonumber(ARGV[at + 2]), ARGV[2]) end"


class RedisLimiter:
    """Limits in Redis. Both methods raise StoreError while it is unavailable. `clock` replaces the server's clock."""

    def __init__(self, link: RedisLink, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._clock = clock

    async def admit(self, caller: Caller) -> None:
        """Check and count a request in one script. Raise RateLimited if a limit is reached.

        The script returns the index of the exceeded limit, from 1, or 0, and the seconds to wait.
        """
        limits = limits_of(caller)
        if not limits:
            return
        numbers = [value for limit in limits for value in (limit.maximum, limit.slice, int(limit.counts_requests))]
        [(index, wait)] = await self._link.execute(self._command(_ADMIT, caller, limits, numbers))
        if index:
            raise rate_limit_error(caller, limits[index - 1], float(wait))

    async def spend(self, caller: Caller, tokens: int) -> None:
        limits = [limit for limit in limits_of(caller) if not limit.counts_requests]
        if limits:
            numbers = [tokens, *(limit.slice for limit in limits)]
            await self._link.execute(self._command(_SPEND, caller, limits, numbers))

    def _command(self, script: str, caller: Caller, limits: Sequence[Limit], numbers: list[float]) -> Command:
        """Build a command with the whole script, not its hash: the server caches it, and never has to request it."""
        now = "" if self._clock is None else repr(self._clock())
        keys = [f"{{toolwire:limit:{caller.name}}}:{limit.name}" for limit in limits]
        return ("EVAL", script, len(keys), *keys, now, *numbers)


# Turns shared by several machines, in Redis, each for the time in the settings.


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


# The Responses state in Redis, for any number of machines. Each step is one script or one pipeline.
#
# An id that has expired is counted until it is the least recently used, and is then dropped first. If the values of
# one owner expire, so does the rest after `_IDLE_SECONDS`.


_IDLE_SECONDS = 40 * 24 * 3600  # of the sums: longer than a pin, which lives for 30 days
# KEYS: the sorted set, the hash, the lock. ARGV: prefix, id, data, milliseconds, now, bytes, entries, seconds for the sums,
# token of the lock or nothing.
_SAVE_ENTRY = """
if ARGV[9] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[9] then return -1 end
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
# KEYS: the sorted set, the hash, the lock. ARGV: prefix, token of the lock or nothing, then ids.
_DELETE_ENTRIES = """
if ARGV[2] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[2] then return -1 end
for at = 3, #ARGV do
  local size = tonumber(redis.call('HGET', KEYS[2], ARGV[at]) or '0')
  redis.call('DEL', ARGV[1] .. ARGV[at])
  redis.call('ZREM', KEYS[1], ARGV[at])
  redis.call('HDEL', KEYS[2], ARGV[at])
  redis.call('HINCRBY', KEYS[2], 'total', string.format('%.0f', 0 - size))
end
return 1
"""
# KEYS: the lock. ARGV: token, milliseconds.
_LOCK_ENTRY = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_LOST = -1  # the reply of a script that has written nothing
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"


class RedisResponses:
    """Entries in Redis. Entries expire by its clock; `clock` only orders their uses."""

    def __init__(self, link: RedisLink, bounds: OwnerBounds, clock: Callable[[], float]) -> None:
        self._link = link
        self._bounds = bounds
        self._clock = clock
        self._releases = LockReleases(self._unlock)

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float, lock: HeldLock | None = None) -> None:
        bounds = (self._bounds.max_bytes, self._bounds.max_entries, _IDLE_SECONDS)
        values = (_member(owner, entry_id), data, _milliseconds(seconds), self._clock(), *bounds)
        await self._write(_SAVE_ENTRY, owner, lock, (*values, "" if lock is None else lock.token))

    async def _write(
        self, script: str, owner: str, lock: HeldLock | None, values: Sequence[bytes | str | float]
    ) -> None:
        """Run a script that changes entries. Raise LockLost if it reports that the lock is lost."""
        prefix = _prefix(owner)
        keys = (f"{prefix}:used", f"{prefix}:size", _lock_key(owner, "" if lock is None else lock.entry_id))
        [reply] = await self._link.execute(("EVAL", script, len(keys), *keys, f"{prefix}:e:", *values))
        if reply == _LOST:
            raise lock_lost()

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        """Load entries. `renew` extends only entries that were found, so that dropped ids are not counted again."""
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

    async def delete(self, owner: str, entry_ids: Sequence[str], lock: HeldLock | None = None) -> None:
        members = [_member(owner, entry_id) for entry_id in entry_ids]
        await self._write(_DELETE_ENTRIES, owner, lock, ("" if lock is None else lock.token, *members))

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        [is_locked] = await self._link.execute(
            ("EVAL", _LOCK_ENTRY, 1, _lock_key(owner, entry_id), token, _milliseconds(seconds))
        )
        return bool(is_locked)

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        await self._releases.release(owner, entry_id, token)

    async def _unlock(self, owner: str, entry_id: str, token: str) -> None:
        await self._link.execute(("EVAL", _UNLOCK, 1, _lock_key(owner, entry_id), token))

    async def aclose(self) -> None:
        await self._releases.aclose()
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
