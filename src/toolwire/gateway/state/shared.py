"""Limits and turns in a state that several machines share, each with a local counterpart for outages.

An outage of the shared state must not stop the gateways, unless the operator wants that (`strict`): a limit that is
enforced by each machine alone is too generous, and a missing turn costs some reasoning, but refusing every request is
worse. So both counterparts are written all the time, and not only in an outage, whose first requests would find them empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from ...bridge.conversation.turns import StoredTurn, TurnStore
from ...ir.errors import StoreError
from ..faults import RateLimited
from ..keys import Caller, Limiter, LocalLimiter

# Limits in a state that several machines share, and limits of this machine.
#
# Both count every request. This machine alone is never allowed more than the limit, so a request that it refuses is
# not sent to the shared state; and while the shared state is unavailable, or after it has lost its counts, the limit
# still holds for this machine. The limits of several machines are exact while the shared state is available.


class SharedLimiter:
    """Limits of a shared limiter and a local one. If `strict`, requests are refused while the former is unavailable."""

    def __init__(self, shared: Limiter, local: LocalLimiter, *, strict: bool) -> None:
        self._shared = shared
        self._local = local
        self._strict = strict

    async def admit(self, caller: Caller) -> None:
        """Count a request here, then in the shared state. If that refuses it, it counts nowhere.

        Raise RateLimited and, if `strict`, StoreError while the shared state is unavailable.
        """
        await self._local.admit(caller)
        try:
            await self._shared.admit(caller)
        except (RateLimited, StoreError) as error:
            if self._strict or isinstance(error, RateLimited):
                await self._local.refund(caller)
                raise

    async def spend(self, caller: Caller, tokens: int) -> None:
        """Count tokens here and in the shared state. If that is unavailable, only the count here remains."""
        await self._local.spend(caller, tokens)
        try:
            await self._shared.spend(caller, tokens)
        except StoreError:
            pass  # already logged; they are counted here


# Turns in a state that several gateways share, and in a store of this machine that is used when the state has a gap.
#
# The state has a gap if it could not be written for a while, or has lost its contents, for example because Redis was
# restarted. From then on, turns that the state does not have are also looked up in the local store.


_decoder = msgspec.json.Decoder(StoredTurn)


class TurnTable(Protocol):
    """Turns as JSON, by caller and key. Every method may raise StoreError."""

    async def save(self, caller: str, keys: Sequence[str], data: bytes) -> None: ...

    async def load(self, caller: str, keys: Sequence[str]) -> dict[str, bytes]: ...


class ProcessGap:
    """For a local store in this process: a lookup there costs nothing, so it is always made."""

    def is_noted(self) -> bool:
        return True

    def note(self) -> None:
        """Do nothing."""


class FileGap:
    """For the worker processes of one machine: a file that exists once one of them has noted a gap."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def is_noted(self) -> bool:
        return self._file.exists()

    def note(self) -> None:
        self._file.touch()


Gap: TypeAlias = ProcessGap | FileGap
"""A note that the shared state has a gap."""


class LocalTurns:
    """A table of this machine as a store of turns. Without the table, turns are not found, which is no error."""

    has_any = True

    def __init__(self, table: TurnTable) -> None:
        self._table = table

    async def save(self, caller: str, keys: Sequence[str], turn: StoredTurn, data: bytes) -> None:
        try:
            await self._table.save(caller, keys, data)
        except StoreError:
            pass  # already logged

    async def load(self, caller: str, keys: list[str]) -> dict[str, StoredTurn]:
        try:
            return _decode_turns(await self._table.load(caller, keys))
        except StoreError:
            return {}  # already logged


class SharedTurns:
    """Turns in a shared table, and in `local_store`, which is used in an outage unless `strict`."""

    has_any = True  # this machine cannot know otherwise

    def __init__(self, table: TurnTable, local_store: TurnStore, gap: Gap, *, strict: bool) -> None:
        self._table = table
        self._local_store = local_store
        self._gap = gap
        self._strict = strict

    async def save(self, caller: str, keys: Sequence[str], turn: StoredTurn, data: bytes) -> None:
        """Store a turn locally and in the shared table. A failure of the table is ignored, even if `strict`."""
        await self._local_store.save(caller, keys, turn, data)
        try:
            await self._table.save(caller, keys, data)
        except StoreError:
            self._gap.note()  # the failure is already logged; the client gets its answer anyway

    async def load(self, caller: str, keys: list[str]) -> dict[str, StoredTurn]:
        """Load turns from the shared table, and if it has a gap, the missing turns from the local store.

        A failure of the table is noted as a gap, and raised as StoreError only if `strict`.
        """
        try:
            found = _decode_turns(await self._table.load(caller, keys))
        except StoreError:
            self._gap.note()
            if self._strict:
                raise
            found = {}
        missing = [key for key in keys if key not in found]
        if missing and self._local_store.has_any and self._gap.is_noted():
            found |= await self._local_store.load(caller, missing)
        return found


def _decode_turns(entries: dict[str, bytes]) -> dict[str, StoredTurn]:
    """Decode entries. Leave out entries that another version has written."""
    turns = {}
    for key, data in entries.items():
        try:
            turns[key] = _decoder.decode(data)
        except msgspec.MsgspecError:
            continue
    return turns
