"""Limits shared by many machines: the windows of `limits.py` in Redis, by its clock.

Each step is one script and one round trip.

{toolwire:limit:KEY}:requests|tokens|day     a hash of amounts by slice number; it expires after its last slice
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .keys import Caller
from .limits import MAX_AHEAD, SLICES, Limit, limits_of, rate_limit_error
from .redis_link import Command, RedisLink

__all__ = ["RedisLimiter"]

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
