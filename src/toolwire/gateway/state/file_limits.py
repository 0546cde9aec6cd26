"""Limits shared by the processes of one machine: the windows of `gateway.keys` in a file.

A decision is a read and a write of each limit's record under a lock of the file, some microseconds, so it is made on the
event loop. A transaction of SQLite for every request costs more than the rest of a request. The kernel releases the
lock of a process that ends.

The file has a fixed number of records, found by hash: [hash, hash, expiry, slice number, 61 amounts], each 8 bytes.

- The event loop never waits for the lock. A worker that was preempted inside a decision releases it within
  milliseconds, so requests poll for it without blocking the loop. A stopped process or another program may hold it for any
  time. After `timeout` seconds the state counts as unavailable, as Redis or PostgreSQL would.
- The file is read and written, not mapped: access to a mapped page that another program has truncated away ends the
  process with SIGBUS, and so does a full disk.
- A process that is killed inside a write of a record that crosses a page may leave half of it. Its amounts are then
  wrong for at most one window.
- The times are from the wall clock, because the file outlives a restart of the machine; see `keys.MAX_AHEAD`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from logging import getLogger
from pathlib import Path
from struct import Struct, unpack
from typing import NamedTuple, TypeVar

from ...ir.errors import ConfigError, StoreError
from ..keys import (
    MAX_AHEAD,
    MAX_LIFETIME,
    SLICES,
    Caller,
    Limit,
    LimitWindow,
    LocalLimiter,
    admit_request,
    limits_of,
    rate_limit_error,
)

R = TypeVar("R")
_log = getLogger("toolwire.gateway")
_MAGIC = b"toolwire limits, version 1".ljust(64, b"\0")
_RECORDS = 4096  # of three limits for each key: more than 1,000 keys, in 2 MB
_AMOUNTS = SLICES + 1
_LAYOUT = Struct(f"={4 + _AMOUNTS}q")
_MAX_PROBES = 64  # records that are searched for a hash; a file that is half full rarely needs more than ten
_SIZE = len(_MAGIC) + _RECORDS * _LAYOUT.size
_LOCK_TRIES = 20  # about 20 microseconds, as long as another process needs for a decision
_LOCK_PAUSE = 0.001  # seconds between further tries; a preempted process runs again after some milliseconds
_COOLDOWN = 1.0  # seconds after a timeout in which no request waits, as in `state.database`


class _LimitRecord(NamedTuple):
    """The window of one limit, and its place in the file. The amounts are a ring, up to the slice with number `head`."""

    offset: int
    identity: tuple[int, int]
    limit: Limit
    window: LimitWindow

    def encode(self, now: float) -> bytes:
        seconds, amounts, ring = self.limit.slice, self.window.amounts, [0] * _AMOUNTS
        head = max(amounts, default=int(now // seconds))
        for number, amount in amounts.items():
            if number >= head - SLICES:
                ring[number % _AMOUNTS] = amount
        return _LAYOUT.pack(*self.identity, int(now + (SLICES + 2) * seconds) + 1, head, *ring)


class FileLimiter:
    """Limits in a file, which is opened on first use. While it cannot be used, `fallback` counts.

    Without a fallback, requests are then refused. `timeout` is the number of seconds that a request waits for the lock.
    """

    def __init__(
        self,
        file: Path,
        fallback: LocalLimiter | None,
        clock: Callable[[], float] = time.time,
        *,
        timeout: float = 1.0,
    ) -> None:
        self._file = file
        self._path = str(file)
        self._fallback = fallback
        self._clock = clock
        self._timeout = timeout
        self._descriptor: int | None = None
        self._identity = (0, 0)  # device and inode of the open file
        self._is_initialised = False
        self._hashes: dict[tuple[str, str], tuple[int, int]] = {}  # by key name and limit name
        self._polling = asyncio.Lock()  # held by the only request that polls for the lock of the file
        self._cooldown_until: float | None = None  # set during an outage

    async def admit(self, caller: Caller) -> None:
        """Count a request in the file, or by the fallback. Raise RateLimited, or StoreError without a fallback."""
        limits = limits_of(caller)
        if not limits:
            return
        try:
            exceeded = await self._run_locked(lambda: self._admit(caller.name, limits))
        except StoreError:
            if self._fallback is None:
                raise
            await self._fallback.admit(caller)
            return
        if exceeded is not None:
            raise rate_limit_error(caller, *exceeded)

    async def spend(self, caller: Caller, tokens: int) -> None:
        """Count tokens. Without a fallback, those that cannot be counted are not."""
        limits = [limit for limit in limits_of(caller) if not limit.counts_requests]
        if not limits:
            return
        try:
            await self._run_locked(lambda: self._change(caller.name, limits, tokens))
        except StoreError:
            if self._fallback is not None:
                await self._fallback.spend(caller, tokens)

    async def refund(self, caller: Caller) -> None:
        limits = [limit for limit in limits_of(caller) if limit.counts_requests]
        try:
            await self._run_locked(lambda: self._change(caller.name, limits, None))
        except StoreError:
            if self._fallback is not None:
                await self._fallback.refund(caller)

    async def open(self) -> None:
        """Create the file. A failure is logged, and has no other effect."""
        try:
            await self._run_locked(lambda: None)
        except StoreError:
            pass

    async def aclose(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _admit(self, name: str, limits: Sequence[Limit]) -> tuple[Limit, float] | None:
        """Check all limits, then count the request and return None.

        Return the exceeded limit and the seconds until there is room, if there is one; then nothing is counted.
        """
        now = self._clock()
        records = [self._load(name, limit, now) for limit in limits]
        exceeded = admit_request([(record.limit, record.window) for record in records], now)
        for record in records if exceeded is None else ():
            if record.limit.counts_requests:
                self._save(record, now)
        return exceeded

    def _change(self, name: str, limits: Sequence[Limit], tokens: int | None) -> None:
        """Count tokens, or undo the newest count."""
        now = self._clock()
        for limit in limits:
            record = self._load(name, limit, now)
            if tokens is None:
                record.window.refund()
            else:
                record.window.add(tokens, now)
            self._save(record, now)

    def _load(self, name: str, limit: Limit, now: float) -> _LimitRecord:
        """Return the record of a limit as of `now`, or an empty record in place of an unused or expired one.

        Raise StoreError if there is none.
        """
        wanted, usable = self._hash(name, limit), None
        for probe in range(_MAX_PROBES):
            offset = len(_MAGIC) + (wanted[0] + probe) % _RECORDS * _LAYOUT.size
            first, second, expiry, head, *ring = _LAYOUT.unpack(self._read(offset))
            if (first, second) == wanted:
                stored = {head - (head - place) % _AMOUNTS: amount for place, amount in enumerate(ring) if amount}
                record = _LimitRecord(offset, wanted, limit, LimitWindow(limit.slice, stored, now))
                if head > int(now // limit.slice) + MAX_AHEAD:
                    self._save(record, now)  # also if the request is refused, or its wait would begin anew each time
                return record
            if usable is None and not now <= expiry <= now + MAX_LIFETIME:
                usable = offset
            if (first, second) == (0, 0):
                break
        if usable is None:
            raise StoreError("too many keys with limits", hint="remove keys that are not used any more")
        return _LimitRecord(usable, wanted, limit, LimitWindow(limit.slice))

    def _read(self, offset: int) -> bytes:
        assert self._descriptor is not None
        data = os.pread(self._descriptor, _LAYOUT.size, offset)
        if len(data) < _LAYOUT.size:  # another program has truncated the file
            _log.warning("the file of the limits was truncated, and some counts are lost: %s", self._file)
            _initialise(self._descriptor, self._file)
            data = os.pread(self._descriptor, _LAYOUT.size, offset)
        return data

    def _save(self, record: _LimitRecord, now: float) -> None:
        assert self._descriptor is not None
        os.pwrite(self._descriptor, record.encode(now), record.offset)

    def _hash(self, name: str, limit: Limit) -> tuple[int, int]:
        found = self._hashes.get((name, limit.name))
        if found is None:
            digest = blake2b(f"{limit.name}:{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
            first, second = unpack("<qq", digest)
            found = self._hashes[name, limit.name] = (first, second or 1)
        return found

    async def _run_locked(self, work: Callable[[], R]) -> R:
        """Run `work` while the file is locked against other processes. Open, create or replace the file if necessary.

        Raise StoreError if it cannot be used in time. The start and the end of such an outage are logged.
        """
        try:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._descriptor = self._open_file()
            await self._lock(descriptor)
            try:
                if not self._is_in_place():
                    await self._replace(descriptor)
                if not self._is_initialised:
                    _initialise(descriptor, self._file)
                    self._is_initialised = True
                result = work()
            finally:
                fcntl.lockf(descriptor, fcntl.LOCK_UN)
        except OSError as error:
            self._start_cooldown(error)
            raise StoreError(
                "the shared state of the gateways is unavailable",
                hint="try again in a moment; the gateway's log has the cause",
            ) from None
        if self._cooldown_until is not None:
            self._cooldown_until = None
            _log.warning("the file of the limits can be used again: %s", self._file)
        return result

    def _open_file(self) -> int:
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
        self._is_initialised = False
        return descriptor

    def _is_in_place(self) -> bool:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - for each request; a string is faster
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    async def _replace(self, descriptor: int) -> None:
        """Open and lock a new file, and log that: a worker that starts later would have another file than this process.

        The descriptor keeps its number, because other requests may poll for its lock.
        """
        new_descriptor = self._open_file()
        _log.warning("the file of the limits was deleted or moved, and its counts are lost: %s", self._file)
        os.dup2(new_descriptor, descriptor, inheritable=False)
        os.close(new_descriptor)
        await self._lock(descriptor)

    async def _lock(self, descriptor: int) -> None:
        """Lock the file, or raise TimeoutError, which is an OSError, after `timeout` seconds, or at once in a cooldown."""
        if _try_lock(descriptor):
            return
        async with self._polling:
            deadline = time.monotonic() + self._timeout
            while not _try_lock(descriptor):
                now = time.monotonic()
                if now >= deadline or (self._cooldown_until is not None and now < self._cooldown_until):
                    raise TimeoutError("another process holds its lock")
                await asyncio.sleep(_LOCK_PAUSE)

    def _start_cooldown(self, error: OSError) -> None:
        if self._cooldown_until is None:
            _log.error("cannot use the file of the limits, %s: %s", self._file, error.strerror or error)
        self._cooldown_until = time.monotonic() + _COOLDOWN


def _try_lock(descriptor: int) -> bool:
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
            continue
        return True
    return False


def _initialise(descriptor: int, file: Path) -> None:
    """Write the beginning of a new file, and extend it to its size. Raise ConfigError if the file is not ours."""
    beginning = os.pread(descriptor, len(_MAGIC), 0)
    if not beginning:
        os.pwrite(descriptor, _MAGIC, 0)
    elif beginning != _MAGIC:
        raise ConfigError(f"{file} is not a file of limits", hint="delete it, or choose another url in [state]")
    os.ftruncate(descriptor, _SIZE)
