"""Cooldowns shared by several machines, in Redis, by its clock.

toolwire:cooldowns     a sorted set of labels by the end of their cooldown, in seconds since 1970
"""

from __future__ import annotations

from collections.abc import Mapping

from .cooldowns import MAX_COOLDOWNS
from .redis_link import RedisLink

__all__ = ["RedisCooldowns"]

_KEY = "toolwire:cooldowns"
_NOW = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
"""
# pairs of a label and the remaining seconds
_LOAD = (
    _NOW
    + """
local found = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.6f', now), '+inf', 'WITHSCORES')
for at = 2, #found, 2 do found[at] = string.format('%.6f', found[at] - now) end
return found
"""
)
# ARGV: pairs of a label and its seconds, after the maximum number of labels
_SAVE = (
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
        [found] = await self._link.execute(("EVAL", _LOAD, 1, _KEY))
        labels = [label.decode("utf-8", "surrogatepass") for label in found[::2]]
        return {label: float(seconds) for label, seconds in zip(labels, found[1::2], strict=True)}

    async def save(self, changes: Mapping[str, float]) -> None:
        pairs = [
            value
            for label, seconds in changes.items()
            for value in (label.encode("utf-8", "surrogatepass"), repr(float(seconds)))
        ]
        await self._link.execute(("EVAL", _SAVE, 1, _KEY, MAX_COOLDOWNS, *pairs))
