"""Cooldowns, limits, turns and stored responses in Redis (or Valkey), for any number of machines.

toolwire:cooldowns     a sorted set of labels by the end of their cooldown, in seconds since 1970

{toolwire:limit:KEY}:requests|tokens|day     a hash of amounts by slice number; it expires after its last slice

toolwire:turn:HASH     a stored turn, as JSON; the hash is that of the caller's name and the turn's key
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
like that of `state.database`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from logging import getLogger
from secrets import token_hex
from typing import Any, TypeAlias

import msgspec

from ..._extras import install_command
from ...ir.errors import MissingExtra, StoreError
from ...net.stores.address import display_name, invalid_address, redact
from ..keys import MAX_AHEAD, SLICES, Caller, Limit, limits_of, rate_limit_error
from ..responses.store import OwnerBounds, entry_key
from ..routing.health import MAX_COOLDOWNS
from .shared import Gap

# A Redis (or Valkey) that several gateways share, and that may be unavailable for a while.
#
# Commands that arrive while a reply is pending are sent together as the next batch: under load, many requests share a
# round trip and its cost here. A request waits at most one second for Redis. After a failure Redis is not used for a
# moment, so that an outage delays few requests. The log has a line for the start of an outage, and one for its end.


try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError:
    raise MissingExtra("the package redis is not installed", hint=install_command("redis")) from None

Command: TypeAlias = tuple[str | bytes | int | float, ...]
_QueuedCommands: TypeAlias = tuple[tuple[Command, ...], asyncio.Future[list[Any]]]
_log = getLogger("toolwire.gateway")
_TIMEOUT = 1.0  # seconds, as in `StateRow.timeout`; a reply takes less than a millisecond in one network
_COOLDOWN = 1.0  # seconds after a failure; an outage delays the requests of one in two seconds at most
_BATCH = 100  # requests, so that the scripts of a batch end far within the timeout; not measured


class RedisLink:
    """A connection to Redis, opened on first use."""

    def __init__(
        self, url: str, clock: Callable[[], float], setting: str = "[state] url", *, timeout: float = _TIMEOUT
    ) -> None:
        """Prepare the connection. `setting` is the name of the address, for errors. `timeout`: seconds for a batch."""
        self._url = url
        self._timeout = timeout
        self._clock = clock
        self._cooldown_until: float | None = None  # set during an outage
        self._queue: list[_QueuedCommands] = []  # commands for the next batch
        self._send_task: asyncio.Task[None] | None = None
        try:
            # retry once: the server may have closed an idle connection
            self.client: Any = Redis.from_url(url, socket_timeout=timeout, retry=Retry(NoBackoff(), 1))
        except (ValueError, RedisError):
            raise invalid_address("Redis", setting, url) from None

    async def execute(self, *commands: Command) -> list[Any]:
        """Return the replies; StoreError, with a message fit for a client, unless each command has one."""
        if self._cooldown_until is not None and self._clock() < self._cooldown_until:
            raise _unavailable_error()
        replies: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._queue.append((commands, replies))
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.ensure_future(self._send_queued())
        return await replies

    async def _send_queued(self) -> None:
        """Send the queue batch by batch. After a failure, everything in the queue fails at once."""
        while self._queue:
            batch, self._queue = self._queue[:_BATCH], self._queue[_BATCH:]
            outcome: list[Any] | Exception
            try:
                async with asyncio.timeout(self._timeout):
                    outcome = await self._exchange([command for commands, _ in batch for command in commands])
            except Exception as error:  # noqa: BLE001  # whatever the error is, no caller may wait forever
                outcome = error
                batch, self._queue = [*batch, *self._queue], []  # they would wait in vain
            self._deliver_replies(batch, outcome)

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    def _deliver_replies(self, batch: list[_QueuedCommands], outcome: list[Any] | Exception) -> None:
        """Give each caller its replies, or an error if one of them failed.

        Any failure starts the cooldown, and a success ends it.
        """
        for commands, replies in batch:
            own_replies = [outcome] if isinstance(outcome, Exception) else [outcome.pop(0) for _ in commands]
            fault = next((reply for reply in own_replies if isinstance(reply, Exception)), None)
            if fault is not None:
                self._start_cooldown(fault)
            elif self._cooldown_until is not None:
                self._cooldown_until = None
                _log.warning("the shared state at %s is available again", display_name(self._url))
            if replies.done():
                continue  # the caller was cancelled
            if fault is None:
                replies.set_result(own_replies)
            else:
                replies.set_exception(_unavailable_error())

    def _start_cooldown(self, fault: Exception) -> None:
        if self._cooldown_until is None:
            message = redact(str(fault), self._url) or type(fault).__name__
            _log.error("the shared state at %s is unavailable: %s", display_name(self._url), message)
        self._cooldown_until = self._clock() + _COOLDOWN

    async def aclose(self) -> None:
        if self._send_task is not None:
            await self._send_task
        await self.client.aclose()


def _unavailable_error() -> StoreError:
    return StoreError("the shared state of the gateways is unavailable", hint="try again in a moment")


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
        """Check and count a request in one script.

        It returns the index of the exceeded limit, or 0, and the seconds to wait.
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
# KEYS: the sorted set, the hash. ARGV: prefix, id, data, milliseconds, now, bytes, entries, seconds for the sums.
_SAVE_ENTRY = """
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
_DELETE_ENTRIES = """
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
_LOCK_ENTRY = """
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
        await self._link.execute(("EVAL", _SAVE_ENTRY, 2, f"{prefix}:used", f"{prefix}:size", *values))

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
        await self._link.execute(
            ("EVAL", _DELETE_ENTRIES, 2, f"{prefix}:used", f"{prefix}:size", f"{prefix}:e:", *members)
        )

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        [is_locked] = await self._link.execute(
            ("EVAL", _LOCK_ENTRY, 1, _lock_key(owner, entry_id), token, _milliseconds(seconds))
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
