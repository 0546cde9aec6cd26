"""When a server's tools are listed, step by step: no server, no clock."""

import asyncio

import pytest

from toolwire.ir.errors import ProtocolError
from toolwire.mcp.client.config import ServerSpec
from toolwire.mcp.client.listing import ToolList

SPEC = ServerSpec("s", command="none")


def named(*names):
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


class Driver:
    """A list whose fetches end when the test ends them, and whose pauses do not last."""

    def __init__(self, *, pauses=100):
        self.fetches = []
        self.pauses = []
        self.changes = 0
        self._most_pauses = pauses
        self._fetching = asyncio.Condition()
        self.list = ToolList(SPEC, self.fetch, wait_ready=self.ready, on_change=self.changed, sleep=self.sleep)

    async def fetch(self):
        answer = asyncio.get_running_loop().create_future()
        async with self._fetching:
            self.fetches.append(answer)
            self._fetching.notify_all()
        return await answer

    async def ready(self):
        return self

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        if len(self.pauses) == self._most_pauses:
            raise asyncio.CancelledError

    def changed(self):
        self.changes += 1

    async def fetched(self, number):
        async with self._fetching:
            await self._fetching.wait_for(lambda: len(self.fetches) >= number)
        return self.fetches[number - 1]


def run(test):
    return asyncio.run(asyncio.wait_for(test, 300))


@pytest.mark.finding("U2")
def test_listing_in_progress_does_not_discard_an_earlier_result():
    async def test():
        driver = Driver()
        first = asyncio.create_task(driver.list.load())
        one = await driver.fetched(1)
        driver.list.is_stale = True
        second = asyncio.create_task(driver.list.refresh())
        two = await driver.fetched(2)
        one.set_result(named("a"))
        await first
        assert list(driver.list.tools) == ["a"]
        two.set_result(named("a", "b"))
        await second
        assert list(driver.list.tools) == ["a", "b"]
        assert driver.changes == 1

    run(test())


@pytest.mark.finding("U2")
def test_late_result_does_not_replace_the_result_of_a_later_listing():
    async def test():
        driver = Driver()
        driver.list.is_stale = True
        first = asyncio.create_task(driver.list.refresh())
        one = await driver.fetched(1)
        second = asyncio.create_task(driver.list.load())
        (await driver.fetched(2)).set_result(named("new"))
        await second
        one.set_result(named("old"))
        await first
        assert list(driver.list.tools) == ["new"]

    run(test())


@pytest.mark.finding("U2")
def test_announcements_during_a_listing_are_coalesced_into_one_more():
    async def test():
        driver = Driver()
        driver.list.is_stale = True
        following = asyncio.create_task(driver.list.follow_changes())
        for number in (1, 2):
            fetch = await driver.fetched(number)
            for _ in range(1000 if number == 1 else 0):
                driver.list.is_stale = True
            fetch.set_result(named("a"))
        await following
        assert (len(driver.fetches), driver.changes, driver.pauses) == (2, 1, [0.5, 1.0])

    run(test())


@pytest.mark.finding("U2")
def test_pauses_double_while_announcements_continue_and_begin_again_afterwards():
    async def test():
        driver = Driver(pauses=10)

        async def announce_without_end():
            for number in range(1, 11):
                fetch = await driver.fetched(number)
                driver.list.is_stale = True
                fetch.set_result(named("a"))

        driver.list.is_stale = True
        announcing = asyncio.create_task(announce_without_end())
        with pytest.raises(asyncio.CancelledError):
            await driver.list.follow_changes()
        await announcing
        assert driver.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
        following = asyncio.create_task(driver.list.follow_changes())
        (await driver.fetched(11)).set_result(named("a"))
        await following
        assert driver.pauses[10:] == [0.5]

    run(test())


@pytest.mark.finding("U2")
def test_refresh_waits_for_the_listing_in_flight_instead_of_starting_another():
    async def test():
        driver = Driver()
        driver.list.is_stale = True
        both = [asyncio.create_task(driver.list.refresh()) for _ in range(2)]
        fetch = await driver.fetched(1)
        driver.list.is_stale = True
        fetch.set_result(named("a"))
        await asyncio.gather(*both)
        assert len(driver.fetches) == 1
        assert driver.list.is_stale

    run(test())


@pytest.mark.finding("U2")
@pytest.mark.parametrize("error", [ProtocolError("no list"), OSError("no route")])
def test_failed_refresh_keeps_the_list_and_reports_no_change(error, caplog):
    async def test():
        driver = Driver()
        first = asyncio.create_task(driver.list.load())
        (await driver.fetched(1)).set_result(named("a"))
        await first
        driver.list.is_stale = True
        second = asyncio.create_task(driver.list.refresh())
        (await driver.fetched(2)).set_exception(error)
        await second
        assert list(driver.list.tools) == ["a"]
        assert driver.changes == 0

    run(test())
    assert "keeping the last list" in caplog.text


@pytest.mark.finding("U2")
def test_nothing_is_listed_without_a_connection():
    async def test():
        driver = Driver()

        async def closed():
            return None

        driver.list._wait_ready = closed
        driver.list.is_stale = True
        await driver.list.follow_changes()
        assert driver.fetches == []

    run(test())
