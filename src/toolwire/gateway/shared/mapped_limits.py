"""Limits shared by the processes of one machine: the windows of `limits.py` in a file that is mapped into memory.

A decision is a few reads and one write of a number under a lock of the file, some microseconds, so it is made on the
event loop. A transaction of SQLite for every request costs more than the rest of a request. The kernel releases the
lock of a process that ends, and each number is written at once, so a killed process leaves no invalid state.

The file has a fixed number of records, found by hash: [hash, hash, expiry, slice number, 61 amounts], each 8 bytes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from logging import getLogger
from pathlib import Path
from struct import unpack

from ...ir.errors import ConfigError, StoreError
from .keys import Caller
from .limits import SLICES, Limit, LocalLimiter, limits_of, rate_limit_error

__all__ = ["MappedLimiter"]

_log = getLogger("toolwire.gateway")
_MAGIC = b"toolwire limits, version 1".ljust(64, b"\0")
_START = len(_MAGIC) // 8  # numbers before the first record
_RECORDS = 4096
_AMOUNTS = SLICES + 1
_EXPIRY, _HEAD, _FIRST = 2, 3, 4  # positions in a record
_RECORD = _FIRST + _AMOUNTS  # numbers
_MAX_PROBES = 64  # records that are searched for a hash
_SIZE = len(_MAGIC) + 8 * _RECORDS * _RECORD


class MappedLimiter:
    """Limits in a file, which is opened on first use. If that is impossible, `fallback` counts.

    Without a fallback, requests are then refused.
    """

    def __init__(self, file: Path, fallback: LocalLimiter | None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._fallback = fallback
        self._clock = clock
        self._descriptor: int | None = None
        self._map: mmap.mmap | None = None
        self._numbers: memoryview = memoryview(b"")
        self._hashes: dict[tuple[str, str], tuple[int, int]] = {}  # by key name and limit name
        self._is_failing = False

    async def admit(self, caller: Caller) -> None:
        limits = limits_of(caller)
        if not limits:
            return
        try:
            exceeded = self._admit(caller.name, limits)
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
            with self._locked():
                now = self._clock()
                for limit in limits:
                    self._add(self._record(caller.name, limit, now), tokens)
        except StoreError:
            if self._fallback is not None:
                await self._fallback.spend(caller, tokens)

    def refund(self, caller: Caller) -> None:
        limits = [limit for limit in limits_of(caller) if limit.counts_requests]
        try:
            with self._locked():
                for limit in limits:
                    self._undo(self._record(caller.name, limit, self._clock()))
        except StoreError:
            if self._fallback is not None:
                self._fallback.refund(caller)

    async def open(self) -> None:
        """Create the file. A failure is logged, and has no other effect."""
        try:
            with self._locked():
                pass
        except StoreError:
            pass

    async def aclose(self) -> None:
        if self._map is not None and self._descriptor is not None:
            self._numbers.release()
            self._map.close()
            os.close(self._descriptor)
            self._map = self._descriptor = None

    def _admit(self, name: str, limits: Sequence[Limit]) -> tuple[Limit, float] | None:
        """Check all limits, then count the request; return the exceeded limit and the seconds until there is room."""
        with self._locked():
            now = self._clock()
            entries = [(limit, self._record(name, limit, now)) for limit in limits]
            for limit, record in entries:
                if sum(self._numbers[record + _FIRST : record + _RECORD]) >= limit.maximum:
                    return limit, self._free_at(record, limit) - now
            for limit, record in entries:
                if limit.counts_requests:
                    self._add(record, 1)
        return None

    def _add(self, record: int, amount: int) -> None:
        self._numbers[record + _FIRST + self._numbers[record + _HEAD] % _AMOUNTS] += amount

    def _undo(self, record: int) -> None:
        """Undo the newest count of a record."""
        head = self._numbers[record + _HEAD]
        for number in range(head, head - _AMOUNTS, -1):
            position = record + _FIRST + number % _AMOUNTS
            if self._numbers[position]:
                self._numbers[position] -= 1
                return

    def _free_at(self, record: int, limit: Limit) -> float:
        """Return the time at which enough amounts have expired."""
        numbers, head = self._numbers, self._numbers[record + _HEAD]
        remaining, free_at = sum(numbers[record + _FIRST : record + _RECORD]), 0.0
        for number in range(head - SLICES, head + 1):
            amount = numbers[record + _FIRST + number % _AMOUNTS]
            if remaining < limit.maximum:
                break
            if amount:
                remaining -= amount
                free_at = (number + SLICES + 1) * limit.slice
        return free_at

    def _record(self, name: str, limit: Limit, now: float) -> int:
        """Return the position of the record of a limit, in which the amounts that have expired are 0."""
        numbers = self._numbers
        record = self._find(name, limit, int(now))
        number, head = int(now // limit.slice), numbers[record + _HEAD]
        if number > head:  # a clock that was set back counts in the newest slice
            for expired in range(max(head, number - _AMOUNTS) + 1, number + 1):
                numbers[record + _FIRST + expired % _AMOUNTS] = 0
            numbers[record + _HEAD] = number
            numbers[record + _EXPIRY] = int(now + (SLICES + 2) * limit.slice) + 1
        return record

    def _find(self, name: str, limit: Limit, now: int) -> int:
        """Find the record of a limit, or take one that was never used or has expired; StoreError if there is none."""
        numbers, wanted, usable = self._numbers, self._hash(name, limit), None
        for probe in range(_MAX_PROBES):
            record = _START + (wanted[0] + probe) % _RECORDS * _RECORD
            found = (numbers[record], numbers[record + 1])
            if found == wanted:
                return record
            if usable is None and numbers[record + _EXPIRY] < now:
                usable = record
            if found == (0, 0):
                break
        if usable is None:
            raise StoreError("too many keys with limits", hint="remove keys that are not used any more")
        for position in range(usable, usable + _RECORD):
            numbers[position] = 0
        numbers[usable], numbers[usable + 1] = wanted
        return usable

    def _hash(self, name: str, limit: Limit) -> tuple[int, int]:
        found = self._hashes.get((name, limit.name))
        if found is None:
            digest = blake2b(f"{limit.name}:{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
            first, second = unpack("<qq", digest)
            found = self._hashes[name, limit.name] = (first, second or 1)
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other processes; StoreError if it cannot be opened."""
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _open(self) -> None:
        """Open and map the file, readable only by its owner. A new file gets its whole size, or an error."""
        try:
            descriptor = os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                self._map = _map_file(descriptor, self._file)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            if not self._is_failing:
                _log.error("cannot open the file of the limits, %s: %s", self._file, error.strerror)
            self._is_failing = True
            raise StoreError(
                "the shared state of the gateways is unavailable",
                hint="try again in a moment; the gateway's log has the cause",
            ) from None
        self._descriptor = descriptor
        self._numbers = memoryview(self._map).cast("q")


def _map_file(descriptor: int, file: Path) -> mmap.mmap:
    """Map the file after its creation, by this process or another one; ConfigError if it is not ours."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        if os.fstat(descriptor).st_size == 0:
            os.posix_fallocate(descriptor, 0, _SIZE)  # a write to a hole could fail later, with a signal
            os.pwrite(descriptor, _MAGIC, 0)
        if os.fstat(descriptor).st_size != _SIZE or os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
            raise ConfigError(f"{file} is not a file of limits", hint="delete it, or choose another url in [state]")
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
    return mmap.mmap(descriptor, _SIZE)
