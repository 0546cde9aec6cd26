"""Store runs in Redis or Valkey: one hash per run with a time to live, one script per operation, the server's clock."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ...run.stored_runs import WEEK, RunStatus, StoredRun, check_run_size
from .expiry import sweep_in_batches
from .redis_client import PREFIX, SWEEP_BATCH, RedisClient
from .rows import as_bytes, run_from_row
from .run_rules import is_listed, is_repeated_put

__all__ = ["RedisRuns"]

_INDEX = PREFIX + b"runs"
_ENDS = PREFIX + b"run_ends"

# KEYS: the run, the index by creation, the index by expiry. ARGV[1]: the id of the run. Times are in seconds, with microseconds.
_HEAD = """
local run, index, ends, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function after(seconds) return string.format('%.6f', now + tonumber(seconds)) end
local function fields(...)
  return redis.call('HMGET', run,
    'version', 'status', 'token', 'summary', 'lease_until', 'expires_at', 'created_at', 'updated_at', 'tenant', ...)
end
local function exists(found)
  return found[1] and math.max(tonumber(found[5]), tonumber(found[6])) > now
end
local function is_free(found, token)
  return found[3] == '' or found[3] == token or tonumber(found[5]) <= now
end
local function expire()
  local found = redis.call('HMGET', run, 'lease_until', 'expires_at')
  local over = math.max(tonumber(found[1]), tonumber(found[2]))
  redis.call('ZADD', ends, string.format('%.6f', over), id)
  if over < 1e11 then redis.call('PEXPIREAT', run, string.format('%.0f', math.ceil(over * 1000)))
  else redis.call('PERSIST', run) end
end
"""
_PUT = """
local expected, status, token, summary, tenant, state, ttl, lease, leased = unpack(ARGV, 2)
local found = fields()
if exists(found) then
  if found[1] ~= expected or found[9] ~= tenant or not is_free(found, token) then return nil end
elseif expected ~= '0' then return nil
else found = {'0', nil, nil, nil, nil, nil, after(0)} end
local lease_until = '0'
if leased == '1' then lease_until = after(lease) else token = '' end
redis.call('HSET', run, 'version', string.format('%.0f', found[1] + 1), 'status', status, 'token', token,
  'summary', summary, 'tenant', tenant, 'state', state, 'lease_until', lease_until, 'expires_at', after(ttl),
  'created_at', found[7], 'updated_at', after(0))
redis.call('ZADD', index, found[7], id)
expire()
return fields('state')
"""
_GET = """
local found = fields('state')
if exists(found) then return found end
return nil
"""
_GET_WITHOUT_STATE = """
local found = fields()
if exists(found) then return found end
return nil
"""
_LEASE = """
local token, seconds = unpack(ARGV, 2)
local found = fields()
if not exists(found) or not is_free(found, token) then return nil end
redis.call('HSET', run, 'token', token, 'lease_until', after(seconds))
expire()
return fields('state')
"""
_RENEW = """
local token, seconds = unpack(ARGV, 2)
if token == '' or redis.call('HGET', run, 'token') ~= token then return 0 end
redis.call('HSET', run, 'lease_until', after(seconds))
expire()
return 1
"""
_RELEASE = """
local token = ARGV[2]
if token == '' or redis.call('HGET', run, 'token') ~= token then return 0 end
redis.call('HSET', run, 'token', '', 'lease_until', '0')
expire()
return 1
"""
_DELETE = """
local found = fields()
if not exists(found) or not is_free(found, '') then return 0 end
redis.call('DEL', run)
redis.call('ZREM', index, id)
redis.call('ZREM', ends, id)
return 1
"""
_SWEEP = """
if exists(fields()) then return 0 end
redis.call('DEL', run)
redis.call('ZREM', index, id)
return redis.call('ZREM', ends, id)
"""


class RedisRuns:
    """The runs of a `RedisStore`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        bodies = (_PUT, _GET, _GET_WITHOUT_STATE, _LEASE, _RENEW, _RELEASE, _DELETE, _SWEEP)
        self._scripts = {body: client.script(_HEAD + body) for body in bodies}

    def put(self, run: StoredRun, expected_version: int, *, ttl: float = WEEK, lease: float = 60.0) -> StoredRun | None:
        """Store a run if its version is `expected_version`; 0 for a new run."""
        check_run_size(run)
        leased = int(run.status == "running" and run.token != "")
        texts = (run.status, run.token, run.summary, run.tenant, run.state)
        numbers = (repr(float(ttl)), repr(float(lease)), leased)
        stored = self._run(_PUT, run.run_id, expected_version, *map(as_bytes, texts), *numbers)
        if stored is not None:
            return _to_run(as_bytes(run.run_id), stored)
        existing = self.get(run.run_id)
        return existing if is_repeated_put(existing, run, expected_version) else None

    def get(self, run_id: str) -> StoredRun | None:
        found = self._run(_GET, run_id)
        return None if found is None else _to_run(as_bytes(run_id), found)

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs without their state, the newest first."""
        with self._client.use() as client:
            ids = client.zrevrange(_INDEX, 0, -1)
        inputs = [(_key_names(run_id), [run_id]) for run_id in ids]
        replies = self._client.run_for_each(self._scripts[_GET_WITHOUT_STATE], inputs)
        found = (
            _to_run(run_id, [*reply, b""]) for run_id, reply in zip(ids, replies, strict=True) if reply is not None
        )
        return tuple(islice((run for run in found if is_listed(run, status, tenant)), limit))

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease of a run."""
        found = self._run(_LEASE, run_id, as_bytes(token), repr(float(seconds)))
        return None if found is None else _to_run(as_bytes(run_id), found)

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        return bool(self._run(_RENEW, run_id, as_bytes(token), repr(float(seconds))))

    def release(self, run_id: str, token: str) -> bool:
        return bool(self._run(_RELEASE, run_id, as_bytes(token)))

    def delete(self, run_id: str) -> bool:
        return bool(self._run(_DELETE, run_id))

    def sweep(self, limit: int | None = None) -> int:
        """Remove expired runs from the indexes; Redis deletes their hashes itself."""

        def remove(size: int) -> tuple[int, float]:
            ids = self._client.expired_members(_ENDS, size)
            inputs = [(_key_names(run_id), [run_id]) for run_id in ids]
            return sum(self._client.run_for_each(self._scripts[_SWEEP], inputs)), 0.0

        return sweep_in_batches(remove, limit, max_batch=SWEEP_BATCH)

    def _run(self, script: str, run_id: str, *arguments: Any) -> Any:
        name = as_bytes(run_id)
        return self._client.run(self._scripts[script], _key_names(name), [name, *arguments])


def _key_names(run_id: bytes) -> list[bytes]:
    return [PREFIX + b"run:" + run_id, _INDEX, _ENDS]


def _to_run(run_id: bytes, found: Any) -> StoredRun:
    version, status, *others = found
    return run_from_row((run_id, version, status.decode(), *others))
