"""An async generator in a context of its own behaves like the generator, and its context variables stay inside."""

import asyncio
from contextlib import aclosing, suppress
from contextvars import ContextVar

import pytest

from toolwire.net.agent.model_requests import in_own_context

VARIABLE = ContextVar("test_variable", default="outside")


class Source:
    """A generator that sets and restores the variable, and records the values that it sees."""

    def __init__(self, *, error=None):
        self.seen = []
        self.closed = asyncio.Event()
        self._error = error

    async def items(self):
        token = VARIABLE.set("inside")
        try:
            for number in range(3):
                await asyncio.sleep(0)
                self.seen.append(VARIABLE.get())
                yield number
            if self._error is not None:
                raise self._error
        finally:
            await asyncio.sleep(0)  # also while it is closed
            self.seen.append(VARIABLE.get())
            VARIABLE.reset(token)  # raises ValueError in another context
            self.closed.set()


def test_items_are_yielded_and_variables_stay_inside():
    async def consume():
        source, outside = Source(), []
        async for item in in_own_context(source.items()):
            outside.append((item, VARIABLE.get()))
        return source.seen, outside

    seen, outside = asyncio.run(consume())
    assert seen == ["inside"] * 4
    assert outside == [(0, "outside"), (1, "outside"), (2, "outside")]


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_closing_runs_the_cleanup_in_the_same_context(taken):
    async def consume():
        source = Source()
        async with aclosing(in_own_context(source.items())) as items:
            for _ in range(taken):
                await asyncio.create_task(next_item(items))  # each in another context
        return source

    source = asyncio.run(consume())
    assert source.closed.is_set() is (taken > 0)
    assert set(source.seen) <= {"inside"}


async def next_item(items):
    return await anext(items)


def test_error_of_the_generator_is_raised():
    async def consume():
        source = Source(error=KeyError("x"))
        with pytest.raises(KeyError):
            async for _ in in_own_context(source.items()):
                pass
        assert source.closed.is_set()

    asyncio.run(consume())


def test_cancellation_reaches_the_generator():
    async def consume():
        reached = asyncio.Event()
        cancelled = []

        async def wait():
            token = VARIABLE.set("inside")
            try:
                reached.set()
                await asyncio.Event().wait()
                yield 1
            except asyncio.CancelledError:
                cancelled.append(VARIABLE.get())
                raise
            finally:
                VARIABLE.reset(token)

        async def take():
            async with aclosing(in_own_context(wait())) as items:
                await anext(items)

        task = asyncio.create_task(take())
        await reached.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return task.cancelled(), cancelled

    assert asyncio.run(consume()) == (True, ["inside"])


def test_timeout_inside_the_generator_works():
    async def consume():
        async def limited():
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                yield "timed out"

        return [item async for item in in_own_context(limited())]

    assert asyncio.run(consume()) == ["timed out"]
