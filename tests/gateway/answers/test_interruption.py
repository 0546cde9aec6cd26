"""The interruption of a request's task: one reason, caught once."""

import asyncio

import pytest

from toolwire.asgi.interruption import Interruption

REASONS = ("client_gone", "upstream_idle", "server_stop")


@pytest.mark.parametrize("reason", ["client_gone", "upstream_idle"])
def test_interruption_is_caught_by_its_reason_only(reason):
    async def main():
        interruption = Interruption()
        interruption.attach()
        interruption.interrupt(reason)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        others = [other for other in REASONS if other != reason]
        assert not any(interruption.caught(other) for other in others)
        assert interruption.caught(reason)
        await asyncio.sleep(0)  # the task goes on
        return asyncio.current_task().cancelling()

    assert asyncio.run(main()) == 0


def test_cancellation_from_outside_is_a_stop_of_the_server():
    async def main():
        interruption = Interruption()
        interruption.attach()
        asyncio.current_task().cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        assert not interruption.caught("client_gone")
        assert interruption.caught("server_stop")

    asyncio.run(main())


def test_client_that_is_gone_outweighs_a_silent_upstream():
    async def main():
        interruption = Interruption()
        interruption.attach()
        interruption.interrupt("upstream_idle")
        interruption.interrupt("client_gone")
        interruption.interrupt("upstream_idle")
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        assert not interruption.caught("upstream_idle")
        assert interruption.caught("client_gone")
        return asyncio.current_task().cancelling()

    assert asyncio.run(main()) == 0


def test_nothing_is_interrupted_before_a_task_is_attached():
    async def main():
        Interruption().interrupt("client_gone")
        await asyncio.sleep(0)

    asyncio.run(main())
