"""Entries of the Responses state: the interface of a store, the store in memory, and the access of one request.

Other stores are in `gateway.state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from logging import getLogger
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from ...asgi.offload import ClientOffload
from ...ir.errors import StoreError
from ...schema.bounds import BoundedCache
from ..memory import MemoryReservation, admit_document, parsed_size
from .records import ConversationEntry, ResponseEntry, ResponseStateError, UpstreamPin, decode_entry

_log = getLogger("toolwire.gateway")

# Entries of the Responses state: stored responses, conversations, and the upstreams that keep a response themselves.
#
# A store holds bytes by owner (the name of a client's key) and id, so no client reads another client's entries. Every
# owner has a bound in bytes and in entries; beyond it, the entries that were not used for the longest time are
# dropped. An entry expires by the clock of the gateway. Keys are hashes: neither names of owners nor ids are in the
# store.


class OwnerBounds(Struct, frozen=True):
    """The bounds of one owner."""

    max_bytes: int
    max_entries: int


class HeldLock(NamedTuple):
    """A lock on an id, and the token of its holder, which no other holder has."""

    entry_id: str
    token: str


class LockLost(StoreError):
    """Nothing was written, because the lock has expired or another holder has it."""


class ResponseStore(Protocol):
    """A store of entries. Every method may raise StoreError."""

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float, lock: HeldLock | None = None) -> None:
        """Store or replace an entry for `seconds`, and drop old entries of its owner beyond the bounds.

        Raise LockLost if `lock` is lost. The check and the write are one step: a lock may expire at any time before.
        """
        ...

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        """Return the entries that exist and have not expired; `renew` sets the seconds until they expire."""
        ...

    async def delete(self, owner: str, entry_ids: Sequence[str], lock: HeldLock | None = None) -> None:
        """Delete entries. Raise LockLost as `save` does."""
        ...

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        """Lock an id for the holder of `token`; again extends the lock. False if another token holds it."""
        ...

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        """Release a lock, at once or as soon as the store is available. A failure is logged, and is no error."""
        ...

    async def aclose(self) -> None: ...


def entry_key(*names: str) -> bytes:
    """Hash an owner, or an owner and an id; lengths keep different names apart."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    return sha256(b"".join(b"%d:%b" % (len(name), name) for name in encoded)).digest()


class InMemoryResponses:
    """Entries in the memory of one process."""

    def __init__(self, bounds: OwnerBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._caches: dict[str, BoundedCache[str, bytes]] = {}  # by owner
        self._locks: dict[bytes, tuple[str, float]] = {}  # (token, end)

    async def save(self, owner: str, entry_id: str, data: bytes, seconds: float, lock: HeldLock | None = None) -> None:
        self._require(owner, lock)
        if owner not in self._caches:
            self._caches[owner] = BoundedCache(self._bounds.max_entries, self._bounds.max_bytes)
        self._caches[owner].put(entry_id, data, self._clock(), seconds, len(data))

    async def load(self, owner: str, entry_ids: Sequence[str], renew: float | None = None) -> dict[str, bytes]:
        """Return the entries that have not expired. `renew` sets the seconds until they expire."""
        cache, now = self._caches.get(owner), self._clock()
        loaded: dict[str, bytes] = {}
        for entry_id in entry_ids:
            data = None if cache is None else cache.get(entry_id, now)
            if cache is None or data is None:
                continue
            loaded[entry_id] = data
            if renew is not None:
                cache.put(entry_id, data, now, renew, len(data))
        return loaded

    async def delete(self, owner: str, entry_ids: Sequence[str], lock: HeldLock | None = None) -> None:
        self._require(owner, lock)
        for entry_id in entry_ids if owner in self._caches else ():
            self._caches[owner].drop(entry_id)

    async def lock(self, owner: str, entry_id: str, token: str, seconds: float) -> bool:
        now = self._clock()
        self._locks = {key: lock for key, lock in self._locks.items() if lock[1] > now}
        key = entry_key(owner, entry_id)
        if self._locks.get(key, (token, now))[0] != token:
            return False
        self._locks[key] = (token, now + seconds)
        return True

    async def unlock(self, owner: str, entry_id: str, token: str) -> None:
        key = entry_key(owner, entry_id)
        if self._locks.get(key, ("", 0.0))[0] == token:
            del self._locks[key]

    def _require(self, owner: str, lock: HeldLock | None) -> None:
        if lock is not None and self._locks.get(entry_key(owner, lock.entry_id), ("", 0.0))[0] != lock.token:
            raise lock_lost()

    async def aclose(self) -> None:
        self._caches.clear()


def lock_lost() -> LockLost:
    return LockLost("the lock of an entry is lost, so it was not written", hint="retry later")


_RELEASE_PAUSE = 2.0  # seconds between two attempts; longer than stores are not used after a failure
_RELEASE_SECONDS = 900.0  # for attempts: no lock lasts longer
_MAX_RELEASES = 10_000  # locks of one process, some MB; the others expire by themselves


class LockReleases:
    """Releases the locks of a store that may be unavailable for a while. A release that fails is retried in a task.

    Otherwise a moment without the store would leave a conversation locked until its lock expires: for 15 minutes.
    """

    def __init__(self, unlock: Callable[[str, str, str], Awaitable[None]]) -> None:
        self._unlock = unlock
        self._failed: dict[tuple[str, str, str], float] = {}  # by owner, id and token: the end of the attempts
        self._task: asyncio.Task[None] | None = None

    async def release(self, owner: str, entry_id: str, token: str) -> None:
        try:
            await self._unlock(owner, entry_id, token)
        except StoreError as error:
            _log.error("cannot unlock a conversation or a response now: %s", error)
            if len(self._failed) < _MAX_RELEASES:
                self._failed[owner, entry_id, token] = asyncio.get_running_loop().time() + _RELEASE_SECONDS
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._retry())

    async def _retry(self) -> None:
        loop = asyncio.get_running_loop()
        while self._failed:
            await asyncio.sleep(_RELEASE_PAUSE)
            for lock, end in tuple(self._failed.items()):
                try:
                    await self._unlock(*lock)
                except StoreError:
                    if loop.time() < end:
                        break  # the others would fail as well
                del self._failed[lock]

    async def aclose(self) -> None:
        """Stop the attempts, after a last one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with suppress(StoreError):
            for lock in self._failed:
                await self._unlock(*lock)


SAVE_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between the attempts to save the only copy of an answer: half a minute, such as a restart of a database."""


async def save_with_retries(pauses: Sequence[float], save: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Call `save`, again after each pause while the store is unavailable."""
    for pause in pauses:
        try:
            return await save(*arguments)
        except StoreError as error:
            _log.warning("cannot store a response now: %s", error)
        await asyncio.sleep(pause)
    return await save(*arguments)


# The Responses state as one request uses it: of one owner, within the memory of all requests, large work in threads.


# The lock of a stored response's status is held while the response is read and replaced: milliseconds, or a second for
# a large response in a slow database, whose statements fail after ten. A process that stops meanwhile leaves it, so others
# wait for longer than it lasts.
_STATUS_SECONDS, _STATUS_WAIT, _STATUS_RETRY = 30.0, 32.0, 0.05
_BATCH = 16  # entries that are loaded at once if their sizes are not known before: 16 MB by default


class StateAccess:
    """Loads the entries of `owner`. They count as memory of the request, like its body."""

    __slots__ = ("_max_bytes", "_max_values", "_memory", "loaded_bytes", "offload", "owner", "store")

    def __init__(
        self,
        store: ResponseStore,
        owner: str,
        memory: MemoryReservation,
        offload: ClientOffload,
        *,
        max_bytes: int,
        max_values: int,
    ) -> None:
        """Create the access. `max_bytes` limits all entries together, `max_values` the JSON values of one."""
        self.store = store
        self.owner = owner
        self.offload = offload
        self._memory = memory
        self._max_bytes = max_bytes
        self._max_values = max_values
        self.loaded_bytes = 0  # of all entries that this request has loaded

    async def load(
        self, entry_ids: Sequence[str], renew: float | None = None, *, namespace: str | None = None
    ) -> dict[str, ResponseEntry | UpstreamPin | ConversationEntry]:
        """Load and decode entries, within the memory of the request. `renew` sets the seconds until they expire.

        `namespace` is an owner other than the client: pins without a store belong to "".
        """
        loaded = await self.load_bytes(entry_ids, renew, namespace=namespace)
        return await self.offload.run(sum(map(len, loaded.values())), _decode_entries, loaded)

    async def load_bytes(
        self, entry_ids: Sequence[str], renew: float | None = None, *, namespace: str | None = None
    ) -> dict[str, bytes]:
        loaded = await self.store.load(self.owner if namespace is None else namespace, entry_ids, renew)
        for data in loaded.values():
            self._memory.add(len(data))
            self.loaded_bytes += len(data)
            await admit_document(data, self._max_values, self.offload, self._memory)
        return loaded

    @asynccontextmanager
    async def lock_status(self, response_id: str) -> AsyncIterator[HeldLock]:
        """Hold the lock under which a response that exists is replaced or deleted, and return it.

        A background response has several writers: its end, its cancellation and its deletion, in any process. Each of
        them reads the status, and replaces it with this lock. Raise ResponseStateError if others have it for too long, or
        if it was lost before the response was replaced.
        """
        lock = HeldLock(f"state_{response_id}", token_hex(16))
        try:  # a cancelled task may have got the lock; without it, unlocking has no effect
            for _ in range(int(_STATUS_WAIT / _STATUS_RETRY)):
                if await self.store.lock(self.owner, *lock, _STATUS_SECONDS):
                    break
                await asyncio.sleep(_STATUS_RETRY)
            else:
                raise _locked_error(response_id)
            try:
                yield lock
            except LockLost:
                raise _locked_error(response_id) from None
        finally:
            await self.store.unlock(self.owner, *lock)

    def reserve(self, size: int) -> None:
        """Reserve memory of the request. Raise MemoryExhausted."""
        self._memory.add(size)

    async def load_unmeasured(
        self, entry_ids: Sequence[str], renew: float
    ) -> tuple[dict[str, ResponseEntry | UpstreamPin | ConversationEntry], int]:
        """Load entries of unknown size, in batches, and return them with their size in bytes.

        Memory is reserved for them. Raise ResponseStateError if they are too large together.
        """
        entries: dict[str, ResponseEntry | UpstreamPin | ConversationEntry] = {}
        size = 0
        for start in range(0, len(entry_ids), _BATCH):
            loaded = await self.load_bytes(entry_ids[start : start + _BATCH], renew)
            size += sum(map(len, loaded.values()))
            self.check_bytes(size, "/input")
            entries.update(await self.offload.run(size, _decode_entries, loaded))
        return entries, size

    def admit_items(self, size: int, values: int, copies: int) -> None:
        """Reserve the memory for stored items that are repeated in a request, before it is built.

        `size` and `values` count all repetitions; `copies` is the result of `text_copies`. Raise ResponseStateError if
        they are too many, and MemoryExhausted.
        """
        self.check_bytes(size, "/input")
        if values > self._max_values:
            message = (
                f"the items that the input refers to have {values:,} JSON values; the limit is {self._max_values:,}"
            )
            raise ResponseStateError(message, pointer="/input", hint="refer to fewer items", status=413)
        self._memory.add(size + parsed_size(size, values, copies))

    def check_bytes(self, size: int, pointer: str) -> None:
        """Raise ResponseStateError for a stored conversation that is larger than a request may be."""
        if size > self._max_bytes:
            message = f"the stored conversation has {size} bytes; the limit is {self._max_bytes}"
            hint = "start again with a shorter conversation in `input`"
            raise ResponseStateError(message, pointer=pointer, hint=hint)


def _locked_error(response_id: str) -> ResponseStateError:
    message = f"another request is writing the response {response_id[:100]!r}"
    return ResponseStateError(message, hint="retry later", code="response_locked", status=409)


def _decode_entries(loaded: Mapping[str, bytes]) -> dict[str, ResponseEntry | UpstreamPin | ConversationEntry]:
    """Decode entries. Leave out entries that another version has written."""
    decoded = {entry_id: decode_entry(data) for entry_id, data in loaded.items()}
    return {entry_id: entry for entry_id, entry in decoded.items() if entry is not None}
