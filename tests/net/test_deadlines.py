"""Deadlines of many objects share the timers of the event loop."""

import asyncio
from math import inf

from toolwire.net.deadlines import Deadlines
from virtual_time import run_virtual


class Owner:
    """Checks its time, and sets its deadline again while it is not over."""

    def __init__(self, name="", log=None):
        self.name = name
        self.log = log
        self.deadline = inf
        self.slot = None
        self.checked = []  # the times

    def limit(self, seconds):
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.slot = Deadlines.of_running_loop().set(self, self.slot, self.deadline)

    def drop(self):
        Deadlines.of_running_loop().drop(self, self.slot)

    def check_time(self):
        self.slot, now = None, asyncio.get_running_loop().time()
        self.checked.append(now)
        if now < self.deadline:
            self.slot = Deadlines.of_running_loop().set(self, None, self.deadline)
        elif self.log is not None:
            self.log.append(self.name)


def test_owners_check_their_time_in_order_and_not_before_it():
    async def main():
        log = []
        for name, seconds in (("c", 7.3), ("a", 0.05), ("b", 3.9), ("d", 600.0)):
            owner = Owner(name, log)
            owner.limit(seconds)
            started = asyncio.get_running_loop().time()
            owner.started, owner.seconds = started, seconds
            owners.append(owner)
        await asyncio.sleep(700)
        return log

    owners = []
    assert run_virtual(main()) == ["a", "b", "c", "d"]
    for owner in owners:
        [checked] = owner.checked
        assert owner.seconds <= checked - owner.started <= owner.seconds + 0.26


def test_deadline_that_moves_on_is_checked_again_at_its_time():
    async def main():
        owner = Owner("late", log := [])
        owner.limit(1.0)
        for _ in range(100):
            await asyncio.sleep(0.1)
            owner.limit(1.0)
        assert len(owner.checked) < 12  # about once in a second, not with each move
        assert not log
        await asyncio.sleep(1.1)
        return log

    assert run_virtual(main()) == ["late"]


def test_earlier_deadline_replaces_a_later_one():
    async def main():
        owner = Owner("early", log := [])
        owner.limit(100.0)
        owner.limit(0.5)
        await asyncio.sleep(0.6)
        assert log == ["early"]
        await asyncio.sleep(200)
        return len(owner.checked)

    assert run_virtual(main()) == 1


def test_dropped_and_infinite_deadlines_are_not_checked():
    async def main():
        dropped, infinite = Owner(), Owner()
        dropped.limit(1.0)
        dropped.drop()
        infinite.limit(inf)
        await asyncio.sleep(3600)
        return dropped.checked, infinite.checked

    assert run_virtual(main()) == ([], [])


def test_check_that_drops_the_deadline_of_another_owner_prevents_its_check():
    class Dropping(Owner):
        def check_time(self):
            super().check_time()
            self.other.drop()

    async def main():
        first, second = Dropping(), Dropping()
        first.other, second.other = second, first
        first.limit(1.0)
        second.limit(1.0)
        await asyncio.sleep(2)
        return len(first.checked) + len(second.checked)

    assert run_virtual(main()) == 1


def test_failing_check_is_reported_and_the_others_are_made():
    class Failing(Owner):
        def check_time(self):
            super().check_time()
            raise ValueError("a bug")

    async def main():
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
        owners = [Failing(), Owner(), Failing(), Owner()]
        for owner in owners:
            owner.limit(1.0)
        await asyncio.sleep(2)
        return len(reported), [len(owner.checked) for owner in owners]

    assert run_virtual(main()) == (2, [1, 1, 1, 1])


def test_each_event_loop_has_its_own_deadlines():
    async def main():
        owner = Owner("x", log := [])
        owner.limit(0.1)
        await asyncio.sleep(0.2)
        return log

    assert run_virtual(main()) == run_virtual(main()) == ["x"]
