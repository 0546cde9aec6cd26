"""Store runs in Redis or Valkey: a hash and a list of rows per run with a time to live, one script per operation.

A large append is staged in a list of its own, page by page, because a script receives its arguments in one message; the
script that compares the version moves the rows to the log. A staged list that no script takes expires by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ...run.stored_runs import PAGE_ROWS, WEEK, RunStatus, StoredRun, append_digest, check_run
from .expiry import sweep_in_batches
from .redis_client import OLD_FORM, PREFIX, SWEEP_BATCH, RedisClient
from .rows import as_bytes, run_from_row
from .run_rules import is_listed, is_repeated_append

__all__ = ["RedisRuns"]

_INDEX = PREFIX + b"runs"
_ENDS = PREFIX + b"run_ends"
_STAGED_SECONDS = 3600  # a process that stages rows takes them within seconds, unless it is killed

# KEYS: the run, the indexes by creation and by expiry, the log. ARGV[1]: the id of the run. Times are in seconds, with
# microseconds.
_HEAD = f"""
local run, index, ends, log, id = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function after(seconds) return string.format('%.6f', now + tonumber(seconds)) end
local function fields()
  local found = redis.call('HMGET', run, 'version', 'status', 'token', 'summary', 'lease_until', 'expires_at',
    'created_at', 'updated_at', 'tenant', 'rows', 'digest')
  if found[1] and not found[10] then error('{OLD_FORM}') end
  return found
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
  for _, key in ipairs({{run, log}}) do
    if over < 1e11 then redis.call('PEXPIREAT', key, string.format('%.0f', math.ceil(over * 1000)))
    else redis.call('PERSIST', key) end
  end
end
"""
# KEYS[5]: the staged rows; without them the rows are the last arguments.
_APPEND = """
local expected, status, token, summary, tenant, digest, ttl, lease, leased, restart, count = unpack(ARGV, 2, 12)
local found = fields()
if exists(found) then
  if found[1] ~= expected or found[9] ~= tenant or not is_free(found, token) then return nil end
elseif expected ~= '0' then return nil
else found, restart = {'0', nil, nil, nil, nil, nil, after(0)}, '1' end
local lease_until = '0'
if leased == '1' then lease_until = after(lease) else token = '' end
-- a command that was repeated after a lost connection may have staged a page twice
if KEYS[5] and redis.call('LLEN', KEYS[5]) ~= tonumber(count) then error('the staged rows do not belong to the append') end
if restart == '1' then redis.call('DEL', log) end
for number = 13, #ARGV do redis.call('RPUSH', log, ARGV[number]) end
if KEYS[5] then while redis.call('LMOVE', KEYS[5], log, 'LEFT', 'RIGHT') do end end
redis.call('HSET', run, 'version', string.format('%.0f', found[1] + 1), 'status', status, 'token', token,
  'summary', summary, 'tenant', tenant, 'digest', digest, 'rows', redis.call('LLEN', log),
  'lease_until', lease_until, 'expires_at', after(ttl), 'created_at', found[7], 'updated_at', after(0))
redis.call('ZADD', index, found[7], id)
expire()
return fields()
"""
_GET = """
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
return fields()
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
redis.call('DEL', run, log)
redis.call('ZREM', index, id)
redis.call('ZREM', ends, id)
return 1
"""
_SWEEP = """
local found = redis.call('HMGET', run, 'lease_until', 'expires_at')
if found[1] and math.max(tonumber(found[1]), tonumber(found[2])) > now then return 0 end
redis.call('DEL', run, log)
redis.call('ZREM', index, id)
return redis.call('ZREM', ends, id)
"""


class RedisRuns:
    """The runs of a `RedisStore`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        bodies = (_APPEND, _GET, _LEASE, _RENEW, _RELEASE, _DELETE, _SWEEP)
        self._scripts = {body: client.script(_HEAD + body) for body in bodies}

    def append(
        self,
        run: StoredRun,
        rows: Sequence[bytes],
        expected_version: int,
        *,
        ttl: float = WEEK,
        lease: float = 60.0,
        restart: bool = False,
    ) -> StoredRun | None:
        """Append to the log of a run if its version is `expected_version`; 0 for a new run."""
        check_run(run, rows)
        texts = (run.status, run.token, run.summary, run.tenant, append_digest(run, rows))
        leased = run.status == "running" and run.token != ""
        numbers = (repr(float(ttl)), repr(float(lease)), int(leased), int(restart), len(rows))
        arguments = [as_bytes(run.run_id), expected_version, *map(as_bytes, texts), *numbers]
        keys = _key_names(as_bytes(run.run_id))
        if len(rows) > PAGE_ROWS:
            keys.append(self._stage(rows))
        else:
            arguments += rows
        stored = self._client.run(self._scripts[_APPEND], keys, arguments)
        if stored is not None:
            return _to_run(as_bytes(run.run_id), stored)
        if len(rows) > PAGE_ROWS:
            with self._client.use() as client:
                client.delete(keys[-1])
        existing = self.get(run.run_id)
        return existing if is_repeated_append(existing, run, rows, expected_version) else None

    def _stage(self, rows: Sequence[bytes]) -> bytes:
        """Write rows to a list of their own, and return its key."""
        key = PREFIX + b"staged:" + secrets.token_hex(16).encode()
        with self._client.use() as client:
            for start in range(0, len(rows), PAGE_ROWS):
                client.rpush(key, *rows[start : start + PAGE_ROWS])
                client.expire(key, _STAGED_SECONDS)
        return key

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        with self._client.use() as client:
            found: list[bytes] = client.lrange(_key_names(as_bytes(run_id))[3], start, stop - 1)
        return found

    def get(self, run_id: str) -> StoredRun | None:
        found = self._run(_GET, run_id)
        return None if found is None else _to_run(as_bytes(run_id), found)

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs, the newest first."""
        with self._client.use() as client:
            ids = client.zrevrange(_INDEX, 0, -1)
        inputs = [(_key_names(run_id), [run_id]) for run_id in ids]
        replies = self._client.run_for_each(self._scripts[_GET], inputs)
        found = (_to_run(run_id, reply) for run_id, reply in zip(ids, replies, strict=True) if reply is not None)
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

        def remove(size: int) -> int:
            ids = self._client.expired_members(_ENDS, size)
            inputs = [(_key_names(run_id), [run_id]) for run_id in ids]
            return sum(self._client.run_for_each(self._scripts[_SWEEP], inputs))

        return sweep_in_batches(remove, limit, max_batch=SWEEP_BATCH)

    def _run(self, script: str, run_id: str, *arguments: Any) -> Any:
        name = as_bytes(run_id)
        return self._client.run(self._scripts[script], _key_names(name), [name, *arguments])


def _key_names(run_id: bytes) -> list[bytes]:
    return [PREFIX + b"run:" + run_id, _INDEX, _ENDS, PREFIX + b"rows:" + run_id]


def _to_run(run_id: bytes, found: Any) -> StoredRun:
    version, status, *others = found
    return run_from_row((run_id, version, status.decode(), *others))
