"""Deadlines of many objects, with one timer of the event loop for all of them.

    deadlines = Deadlines.of_running_loop()
    slot = deadlines.set(connection, None, when)      # at `when`, or soon after, `connection.check_time()` is called
    slot = deadlines.set(connection, slot, later)     # unchanged: the earlier check comes first, and sets the later one
    deadlines.drop(connection, slot)

A stream has three limits: on its client, on its upstream and on silence. A timer of the event loop for each would take
700 bytes: its handle, a copied context, the callback, and libuv's timer. Nearly all of them are moved or dropped before
they expire. So deadlines are rounded up to slots, and a slot is the set of objects that have to check their time.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from math import ceil
from typing import Protocol
from weakref import WeakKeyDictionary

_SLOTS = 128  # in a second; shorter limits than a few of them are of no use
# Deadlines in more than four seconds are rounded up to quarters of a second, so that many of them share a slot: a slot
# alone takes 350 bytes.
_NEAR = 4.0
_QUARTER = 32  # slots
_FAR = 1e9  # in the time of a loop, which starts with the machine: 30 years; an infinite deadline has no slot


class Timed(Protocol):
    """An object with at most one slot."""

    def check_time(self) -> None:
        """Act if the time is over, else set a later deadline. The object has no slot now."""
        ...


class Deadlines:
    """The deadlines of an event loop, without a reference to the loop, which frees them."""

    __slots__ = ("_by_slot", "_slots", "_timed")

    def __init__(self) -> None:
        self._by_slot: dict[int, set[Timed]] = {}
        self._slots: list[int] = []  # a heap
        self._timed: int | None = None  # the slot of the loop's timer

    @classmethod
    def of_running_loop(cls) -> Deadlines:
        loop = asyncio.get_running_loop()
        found = _by_loop.get(loop)
        if found is None:
            found = _by_loop[loop] = cls()
        return found

    def set(self, owner: Timed, slot: int | None, when: float) -> int:
        """Let `owner` check its time at `when`, in the time of the loop, and return its slot.

        An owner that has an earlier slot keeps it.
        """
        if slot is not None:
            if slot <= when * _SLOTS:
                return slot
            self.drop(owner, slot)
        slot = ceil(min(when, _FAR) * _SLOTS)
        if when - asyncio.get_running_loop().time() > _NEAR:
            slot += -slot % _QUARTER
        owners = self._by_slot.get(slot)
        if owners is None:
            self._by_slot[slot] = {owner}
            heappush(self._slots, slot)
            self._set_timer()
        else:
            owners.add(owner)
        return slot

    def drop(self, owner: Timed, slot: int | None) -> None:
        """Forget the deadline of an owner. An empty slot stays until its time, which costs less than a search."""
        owners = None if slot is None else self._by_slot.get(slot)
        if owners is not None:
            owners.discard(owner)

    def _set_timer(self) -> None:
        """Set a timer for the first slot. A timer for a later one stays, and may find nothing."""
        first = self._slots[0]
        if self._timed is None or first < self._timed:
            self._timed = first
            asyncio.get_running_loop().call_at(first / _SLOTS, self._check, first)

    def _check(self, timed: int) -> None:
        """Let the owners of all slots that are due check their time."""
        loop = asyncio.get_running_loop()
        if timed == self._timed:
            self._timed = None
        now = loop.time() * _SLOTS
        while self._slots and self._slots[0] <= now:
            slot = heappop(self._slots)
            owners = self._by_slot[slot]
            while owners:  # a check may drop the deadline of another owner
                try:
                    owners.pop().check_time()
                except Exception as error:  # noqa: BLE001  # the others must still be checked
                    loop.call_exception_handler({"message": "a check of a deadline failed", "exception": error})
            del self._by_slot[slot]
        if self._slots:
            self._set_timer()


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()
