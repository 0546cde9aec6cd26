"""Store records and runs in Redis or Valkey: one script per operation, with the server's clock.

A record is a hash. A run is a hash and a list of rows with a time to live.

    {toolwire:1}:record:<key>    the record; has a time to live only when it is done
    {toolwire:1}:open            running and unknown keys by the time of their claim: for listing
    {toolwire:1}:done            done keys by the time of their claim
    {toolwire:1}:ends            done keys by the time they expire: for sweeping
    {toolwire:1}:run:<id>        a run, with a time to live
    {toolwire:1}:rows:<id>       the log of a run: a list with the same time to live
    {toolwire:1}:runs            ids of runs by the time of their creation
    {toolwire:1}:run_ends        ids of runs by the time they expire: for sweeping
    {toolwire:1}:run_ready       ids of running runs without a lease by the time of their last change: for workers

All names have the same hash tag, so that a script may access them together on a cluster, too: one store is one slot.

Durability depends on the configuration of Redis. For tools that write, use `appendfsync always`, `maxmemory-policy
noeviction`, and no failover to a replica with replication lag; otherwise a lost claim can cause a second execution.

Safe between threads, processes and machines; a connection is not used after a fork.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ...run.values.records import (
    DAY,
    MAX_LEASE,
    PAGE_ROWS,
    WEEK,
    Claim,
    Record,
    RecordState,
    RunStatus,
    StoredRun,
    append_digest,
    check_run,
)
from .redis_client import OLD_FORM, PREFIX, SWEEP_BATCH, RedisClient
from .rules import as_bytes, is_listed, is_repeated_append, record_from_row, run_from_row, sweep_in_batches

# A large append is staged in a list of its own, page by page, because a script receives its arguments in one message;
# the script that compares the version moves the rows to the log. A staged list that no script takes expires by
# itself.


_RUN_INDEX = PREFIX + b"runs"
_RUN_ENDS = PREFIX + b"run_ends"
_RUN_READY = PREFIX + b"run_ready"
_STAGED_SECONDS = 3600  # a process that stages rows takes them within seconds, unless it is killed

# A lease that has ended, or that was made while the clock was ahead.
_LEASE_RULE = f"""
local function is_over(lease_until)
  return tonumber(lease_until) <= now or tonumber(lease_until) > now + {MAX_LEASE}
end
"""
# KEYS: the run, the indexes by creation and by expiry, the log, the index of ready runs. ARGV[1]: the id of the run. Times are in seconds, with
# microseconds.
_RUN_HEAD = f"""
local run, index, ends, log, ready, id = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function after(seconds) return string.format('%.6f', now + tonumber(seconds)) end
{_LEASE_RULE}
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
  return found[3] == '' or found[3] == token or is_over(found[5])
end
local function update_indexes()
  local found = redis.call('HMGET', run, 'lease_until', 'expires_at', 'status', 'token', 'updated_at')
  local over = math.max(tonumber(found[1]), tonumber(found[2]))
  redis.call('ZADD', ends, string.format('%.6f', over), id)
  if found[3] == 'running' and found[4] == '' then redis.call('ZADD', ready, found[5], id)
  else redis.call('ZREM', ready, id) end
  for _, key in ipairs({{run, log}}) do
    if over < 1e11 then redis.call('PEXPIREAT', key, string.format('%.0f', math.ceil(over * 1000)))
    else redis.call('PERSIST', key) end
  end
end
"""
# KEYS[6]: the staged rows; without them the rows are the last arguments.
_APPEND_ROWS = """
local expected, status, token, summary, tenant, digest, ttl, lease, leased, restart, count = unpack(ARGV, 2, 12)
local found = fields()
if exists(found) then
  if found[1] ~= expected or found[9] ~= tenant or not is_free(found, token) then return nil end
elseif expected ~= '0' then return nil
else found, restart = {'0', nil, nil, nil, nil, nil, after(0)}, '1' end
local lease_until = '0'
if leased == '1' then lease_until = after(lease) else token = '' end
-- a command that was repeated after a lost connection may have staged a page twice
if KEYS[6] and redis.call('LLEN', KEYS[6]) ~= tonumber(count) then error('the staged rows do not belong to the append') end
if restart == '1' then redis.call('DEL', log) end
for number = 13, #ARGV do redis.call('RPUSH', log, ARGV[number]) end
if KEYS[6] then while redis.call('LMOVE', KEYS[6], log, 'LEFT', 'RIGHT') do end end
redis.call('HSET', run, 'version', string.format('%.0f', found[1] + 1), 'status', status, 'token', token,
  'summary', summary, 'tenant', tenant, 'digest', digest, 'rows', redis.call('LLEN', log),
  'lease_until', lease_until, 'expires_at', after(ttl), 'created_at', found[7], 'updated_at', after(0))
redis.call('ZADD', index, found[7], id)
local stored = fields()
update_indexes()  -- last: it deletes a run whose time to live is over
return stored
"""
_GET_RUN = """
local found = fields()
if exists(found) then return found end
return nil
"""
_TAKE_LEASE = """
local token, seconds = unpack(ARGV, 2)
local found = fields()
if not exists(found) or not is_free(found, token) then return nil end
redis.call('HSET', run, 'token', token, 'lease_until', after(seconds))
local leased = fields()
update_indexes()
return leased
"""
_RENEW_LEASE = """
local token, seconds = unpack(ARGV, 2)
if token == '' or redis.call('HGET', run, 'token') ~= token then return 0 end
redis.call('HSET', run, 'lease_until', after(seconds))
update_indexes()
return 1
"""
_RELEASE_LEASE = """
local token = ARGV[2]
if token == '' or redis.call('HGET', run, 'token') ~= token then return 0 end
redis.call('HSET', run, 'token', '', 'lease_until', '0')
update_indexes()
return 1
"""
_DELETE_RUN = """
local found = fields()
if not exists(found) or not is_free(found, '') then return 0 end
redis.call('DEL', run, log)
redis.call('ZREM', index, id)
redis.call('ZREM', ends, id)
redis.call('ZREM', ready, id)
return 1
"""
_SWEEP_RUNS = """
local found = redis.call('HMGET', run, 'lease_until', 'expires_at')
if found[1] and math.max(tonumber(found[1]), tonumber(found[2])) > now then return 0 end
redis.call('DEL', run, log)
redis.call('ZREM', index, id)
redis.call('ZREM', ready, id)
return redis.call('ZREM', ends, id)
"""


class RedisRuns:
    """The runs of a `RedisStore`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        bodies = (_APPEND_ROWS, _GET_RUN, _TAKE_LEASE, _RENEW_LEASE, _RELEASE_LEASE, _DELETE_RUN, _SWEEP_RUNS)
        self._scripts = {body: client.script(_RUN_HEAD + body) for body in bodies}

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
        """Append to the log of a run if its version is `expected_version`, 0 for a new run. Return the stored run.

        `restart` replaces the log. Return None if another process has changed or leased the run. An identical append that
        succeeded before is accepted.
        """
        check_run(run, rows)
        texts = (run.status, run.token, run.summary, run.tenant, append_digest(run, rows))
        leased = run.status == "running" and run.token != ""
        numbers = (repr(float(ttl)), repr(float(lease)), int(leased), int(restart), len(rows))
        arguments = [as_bytes(run.run_id), expected_version, *map(as_bytes, texts), *numbers]
        keys = _run_key_names(as_bytes(run.run_id))
        if len(rows) > PAGE_ROWS:
            keys.append(self._stage(rows))
        else:
            arguments += rows
        stored = self._client.run(self._scripts[_APPEND_ROWS], keys, arguments)
        if stored is not None:
            return _to_run(as_bytes(run.run_id), stored)
        if len(rows) > PAGE_ROWS:
            with self._client.use() as client:
                client.delete(keys[-1])
        existing = self.get(run.run_id)
        return existing if is_repeated_append(existing, run, rows, expected_version) else None

    def _stage(self, rows: Sequence[bytes]) -> bytes:
        """Write rows to a list of their own, page by page, and return its key. It expires by itself."""
        key = PREFIX + b"staged:" + secrets.token_hex(16).encode()
        with self._client.use() as client:
            for start in range(0, len(rows), PAGE_ROWS):
                client.rpush(key, *rows[start : start + PAGE_ROWS])
                client.expire(key, _STAGED_SECONDS)
        return key

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        with self._client.use() as client:
            found: list[bytes] = client.lrange(_run_key_names(as_bytes(run_id))[3], start, stop - 1)
        return found

    def get(self, run_id: str) -> StoredRun | None:
        found = self._run(_GET_RUN, run_id)
        return None if found is None else _to_run(as_bytes(run_id), found)

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs, the newest first."""
        found = self._read_index(_RUN_INDEX)
        return tuple(islice((run for run in found if is_listed(run, status, tenant)), limit))

    def ready(self, limit: int = 1000) -> Sequence[str]:
        """Return the ids of running runs that no process continues, the latest change first."""
        return [run.run_id for run in islice(self._read_index(_RUN_READY), limit)]

    def _read_index(self, index: bytes) -> Iterator[StoredRun]:
        """Read the runs of an index, the newest first, without those that have expired."""
        with self._client.use() as client:
            ids = client.zrevrange(index, 0, -1)
        inputs = [(_run_key_names(run_id), [run_id]) for run_id in ids]
        replies = self._client.run_for_each(self._scripts[_GET_RUN], inputs)
        return (_to_run(run_id, reply) for run_id, reply in zip(ids, replies, strict=True) if reply is not None)

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease of a run."""
        found = self._run(_TAKE_LEASE, run_id, as_bytes(token), repr(float(seconds)))
        return None if found is None else _to_run(as_bytes(run_id), found)

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        return bool(self._run(_RENEW_LEASE, run_id, as_bytes(token), repr(float(seconds))))

    def release(self, run_id: str, token: str) -> bool:
        return bool(self._run(_RELEASE_LEASE, run_id, as_bytes(token)))

    def delete(self, run_id: str) -> bool:
        return bool(self._run(_DELETE_RUN, run_id))

    def sweep(self, limit: int | None = None) -> int:
        """Remove expired runs from the indexes; Redis deletes their hashes itself."""

        def remove(size: int) -> int:
            ids = self._client.expired_members(_RUN_ENDS, size)
            inputs = [(_run_key_names(run_id), [run_id]) for run_id in ids]
            return sum(self._client.run_for_each(self._scripts[_SWEEP_RUNS], inputs))

        return sweep_in_batches(remove, limit, max_batch=SWEEP_BATCH)

    def _run(self, script: str, run_id: str, *arguments: Any) -> Any:
        name = as_bytes(run_id)
        return self._client.run(self._scripts[script], _run_key_names(name), [name, *arguments])


def _run_key_names(run_id: bytes) -> list[bytes]:
    return [PREFIX + b"run:" + run_id, _RUN_INDEX, _RUN_ENDS, PREFIX + b"rows:" + run_id, _RUN_READY]


def _to_run(run_id: bytes, found: Any) -> StoredRun:
    version, status, *others = found
    return run_from_row((run_id, version, status.decode(), *others))


_INDEXES = (PREFIX + b"open", PREFIX + b"done", PREFIX + b"ends")

# KEYS: the record, open, done, ends. ARGV[1]: the caller's key. Times are in seconds, with microseconds.
_HEAD = (
    """
local record, open, done, ends, key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local function after(seconds) return string.format('%.6f', now + tonumber(seconds)) end
"""
    + _LEASE_RULE
    + """
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
  if found[3] == 'running' and is_over(found[5]) then found[3] = 'unknown' end
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
)
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
