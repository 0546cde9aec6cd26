"""Store records and runs in Redis or Valkey: one hash for each, one script per operation, with the server's clock.

    {toolwire:1}:record:<key>    the record; has a time to live only when it is done
    {toolwire:1}:open            running and unknown keys by the time of their claim: for listing
    {toolwire:1}:done            done keys by the time of their claim
    {toolwire:1}:ends            done keys by the time they expire: for sweeping
    {toolwire:1}:run:<id>        a run, with a time to live
    {toolwire:1}:rows:<id>       the log of a run: a list with the same time to live
    {toolwire:1}:runs            ids of runs by the time of their creation
    {toolwire:1}:run_ends        ids of runs by the time they expire: for sweeping

All names have the same hash tag, so that a script may access them together on a cluster, too: one store is one slot.

Durability depends on the configuration of Redis. For tools that write, use `appendfsync always`, `maxmemory-policy
noeviction`, and no failover to a replica with replication lag; otherwise a lost claim can cause a second execution.

Safe between threads, processes and machines; a connection is not used after a fork.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...run.records import DAY, Claim, Record, RecordState
from .expiry import sweep_in_batches
from .redis_client import PREFIX, SWEEP_BATCH, RedisClient
from .redis_runs import RedisRuns
from .rows import as_bytes, record_from_row

__all__ = ["RedisStore"]

_INDEXES = (PREFIX + b"open", PREFIX + b"done", PREFIX + b"ends")

# KEYS: the record, open, done, ends. ARGV[1]: the caller's key. Times are in seconds, with microseconds.
_HEAD = """
local record, open, done, ends, key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function after(seconds) return string.format('%.6f', now + tonumber(seconds)) end
local function is(token, state)
  local found = redis.call('HMGET', record, 'token', 'state')
  return found[1] == token and found[2] == state
end
local function fields()
  return redis.call('HMGET', record,
    'tool', 'fingerprint', 'state', 'token', 'lease_until', 'expires_at', 'created_at', 'result')
end
local function effective_record()
  local found = fields()
  if not found[1] then return nil end
  if found[3] == 'done' and tonumber(found[6]) <= now then return nil end
  if found[3] == 'running' and tonumber(found[5]) <= now then found[3] = 'unknown' end
  return found
end
local function forget()
  redis.call('DEL', record)
  for _, index in ipairs({open, done, ends}) do redis.call('ZREM', index, key) end
end
local function finish(result, ttl)
  local over = after(ttl)
  redis.call('HSET', record, 'state', 'done', 'result', result, 'expires_at', over)
  redis.call('ZREM', open, key)
  redis.call('ZADD', done, redis.call('HGET', record, 'created_at'), key)
  redis.call('ZADD', ends, over, key)
  if tonumber(over) < 1e11 then redis.call('PEXPIREAT', record, string.format('%.0f', math.ceil(over * 1000))) end
end
"""
_CLAIM = """
local tool, fingerprint, token, lease, ttl, reclaim = unpack(ARGV, 2)
local there = effective_record()
if there and not (reclaim == '1' and there[3] == 'unknown' and there[2] == fingerprint) then return there end
forget()
redis.call('HSET', record, 'tool', tool, 'fingerprint', fingerprint, 'state', 'running', 'token', token,
  'lease_until', after(lease), 'expires_at', after(ttl), 'created_at', after(0))
redis.call('ZADD', open, after(0), key)
return fields()
"""
_RENEW = """
local token, lease = unpack(ARGV, 2)
if not is(token, 'running') then return 0 end
redis.call('HSET', record, 'lease_until', after(lease))
return 1
"""
_COMPLETE = """
local token, result, ttl, state = unpack(ARGV, 2)
local found = redis.call('HMGET', record, 'token', 'state', 'result')
if found[1] ~= token then return 0 end
if found[2] == 'done' and not (state == 'done' and found[3] == result) then return 0 end
if state == 'done' then finish(result, ttl)
else redis.call('HSET', record, 'state', state, 'result', result, 'expires_at', after(ttl)) end
return 1
"""
_RELEASE = """
if not is(ARGV[2], 'running') then return 0 end
forget()
return 1
"""
_GET = "return effective_record()"
_RESOLVE = """
local forgets, result, ttl = unpack(ARGV, 2)
local there = effective_record()
if not there or there[3] ~= 'unknown' then return 0 end
if forgets == '1' then forget() return 1 end
redis.call('HSET', record, 'token', '')
finish(result, ttl)
return 1
"""
_SWEEP = """
if effective_record() then return 0 end
forget()
return 1
"""


class RedisStore:
    """A store with one client and its connection pool."""

    def __init__(self, url: str) -> None:
        self._client = RedisClient(url)
        self._scripts = {
            body: self._client.script(_HEAD + body)
            for body in (_CLAIM, _RENEW, _COMPLETE, _RELEASE, _GET, _RESOLVE, _SWEEP)
        }
        self.runs = RedisRuns(self._client)

    def claim(self, claim: Claim) -> Record:
        texts = (claim.tool, claim.fingerprint, claim.token)
        numbers = (repr(float(claim.lease)), repr(float(claim.ttl)), int(claim.reclaim))
        return _to_record(as_bytes(claim.key), self._run(_CLAIM, claim.key, *map(as_bytes, texts), *numbers))

    def renew(self, key: str, token: str, lease: float) -> bool:
        return self._change(_RENEW, key, as_bytes(token), repr(float(lease)))

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        return self._change(_COMPLETE, key, as_bytes(token), as_bytes(result), repr(float(ttl)), state)

    def release(self, key: str, token: str) -> bool:
        return self._change(_RELEASE, key, as_bytes(token))

    def get(self, key: str) -> Record | None:
        found = self._run(_GET, key)
        return None if found is None else _to_record(as_bytes(key), found)

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        """List the newest records of the indexes that can contain `state`; `ends` is not listed."""
        found: list[Record] = []
        for index, states in zip(_INDEXES, (("running", "unknown"), ("done",)), strict=False):
            if state is None or state in states:
                wanted = (record for record in self._iterate_index(index) if state in {None, record.state})
                found += islice(wanted, limit)
        return sorted(found, key=lambda record: record.created_at, reverse=True)[:limit]

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        deletes = int(result is None)
        return self._change(_RESOLVE, key, deletes, as_bytes(result or ""), repr(float(ttl)))

    def sweep(self, limit: int | None = None) -> int:
        """Remove expired records and runs from the indexes; Redis deletes their hashes itself."""

        def remove(size: int) -> int:
            return sum(self._run_for_each(_SWEEP, self._client.expired_members(_INDEXES[2], size)))

        swept = sweep_in_batches(remove, limit, max_batch=SWEEP_BATCH)
        return swept + self.runs.sweep(None if limit is None else limit - swept)

    def close(self) -> None:
        self._client.close()

    def _iterate_index(self, index: bytes) -> Iterator[Record]:
        """Iterate over the records of an index, the newest first, without expired ones."""
        with self._client.use() as client:
            keys = client.zrevrange(index, 0, -1)
        for key, found in zip(keys, self._run_for_each(_GET, keys), strict=True):
            if found is not None:
                yield _to_record(key, found)

    def _run_for_each(self, script: str, keys: list[bytes]) -> Iterator[Any]:
        return self._client.run_for_each(self._scripts[script], [(_key_names(key), [key]) for key in keys])

    def _change(self, script: str, key: str, *arguments: Any) -> bool:
        return bool(self._run(script, key, *arguments))

    def _run(self, script: str, key: str, *arguments: Any) -> Any:
        name = as_bytes(key)
        return self._client.run(self._scripts[script], _key_names(name), [name, *arguments])


def _key_names(key: bytes) -> list[bytes]:
    return [PREFIX + b"record:" + key, *_INDEXES]


def _to_record(key: bytes, found: Any) -> Record:
    tool, fingerprint, state, *others = found
    return record_from_row((key, tool, fingerprint, state.decode(), *others))
