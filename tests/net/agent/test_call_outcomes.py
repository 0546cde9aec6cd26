"""How calls end that are stopped, or whose end cannot be told: what ran is not called unrun, and nothing is left behind."""

import asyncio
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pydantic
import pytest

from toolwire import Text, Tool, ToolCall, ToolResult, tool
from toolwire.net.agent.agent import Agent
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.tools.isolation import run_in_process
from toolwire.net.tools.runner import Runner
from toolwire.net.tools.steps import StoreSteps
from toolwire.run.calls.context import CallContext, NotExecuted
from toolwire.run.calls.policy import Policy
from toolwire.run.calls.steps import Invoke
from toolwire.run.session.state import Budget
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry, Toolbox
from toolwire.run.values.records import Claim
from toolwire.run.values.results import result_code
from waiting import SAFETY, until, wait_until

RAN: list[str] = []


@pytest.fixture(autouse=True)
def clean():
    RAN.clear()


def call(called: str, /, **arguments) -> ToolCall:
    return ToolCall("c", called, arguments)


class Untold(pydantic.BaseModel):
    @pydantic.model_serializer
    def refuse(self):
        raise RuntimeError("I do not say")


class Mute:
    def __str__(self):
        raise RuntimeError("I do not say")


def half_a_character():
    return ToolResult("", None, (Text("\ud800"),))


@pytest.mark.parametrize("value", [Untold, Mute, half_a_character])
def test_write_with_an_unserializable_result_is_recorded_as_done(value):
    @tool
    def pay() -> str:
        """Pay."""
        RAN.append("pay")
        return value()

    store = MemoryStore()
    runner = Runner(pay, store=store)
    (first,) = runner.run_sync([call("pay")], run_id="r", keys={"c": "k"})
    assert "could not be run" not in first.text
    assert "pay ran" in first.text
    assert store.get("k").state == "done"
    (again,) = runner.run_sync([call("pay")], run_id="r", keys={"c": "k"})
    assert again.text == first.text
    assert RAN == ["pay"]


class Broken:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise RuntimeError("not to be had here")


def strange() -> object:
    """Give something that cannot be read here."""
    return Broken() if multiprocessing.parent_process() is not None else None


def burn(seconds: float) -> str:
    """Take time."""
    time.sleep(seconds)
    return "done"


def three():
    """One by one."""
    yield from (1, 2, 3)


async def letters():
    """One by one, with pauses."""
    for letter in "abc":
        await asyncio.sleep(0)
        yield letter


def isolated(function, effect="write", **options):
    return Entry(tool(effect=effect)(function), function, Options(isolation="process", **options))


def test_unreadable_result_of_a_process_leaves_the_outcome_unknown():
    store = MemoryStore()
    (found,) = Runner(isolated(strange), store=store).run_sync([call("strange")], keys={"c": "k"})
    assert result_code(found) == "outcome_unknown"
    assert store.get("k").state == "unknown"


@pytest.mark.parametrize(("function", "items"), [(three, [1, 2, 3]), (letters, ["a", "b", "c"])])
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_generator_results_are_collected_into_a_list(function, items, isolation):
    entry = Entry(tool(effect="read")(function), function, Options(isolation=isolation))
    (found,) = Runner(entry).run_sync([call(function.__name__)])
    assert found.structured == items


def test_process_cancelled_while_starting_is_terminated():
    others = set(multiprocessing.active_children())  # such as a store that other tests use

    async def test():
        step = Invoke(isolated(burn, "read"), {"seconds": 300}, CallContext("c", "burn"))
        for pause in (0, 0.001, 0.01, 0.03):
            work = asyncio.create_task(run_in_process(step, {"seconds": 300}))
            await asyncio.sleep(pause)
            work.cancel()
            await asyncio.wait({work})
        await until(lambda: set(multiprocessing.active_children()) <= others)

    asyncio.run(test())


def hold_until(path: str) -> str:
    """Return once the file exists."""
    wait_until(Path(path).exists)
    return "done"


def test_lease_is_renewed_while_the_executor_threads_are_busy(tmp_path):
    @tool
    async def long(path: str) -> str:
        """Take long, in a thread of the loop."""
        return await asyncio.to_thread(hold_until, path)

    async def test(entry, name):
        """Run a call that lasts until its claim was renewed four times."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        store, renewed, enough = MemoryStore(), [], tmp_path / name
        renew = store.renew

        def noted(*given):
            renewed.append(given)
            if len(renewed) == 4:
                enough.touch()
            return renew(*given)

        store.renew = noted
        (found,) = await Runner(entry, store=store, lease=0.6).run([call(name, path=str(enough))])
        assert found.text == "done"

    asyncio.run(test(long, "long"))
    asyncio.run(test(isolated(hold_until), "hold_until"))


def busy_runner():
    """A runner of one thread, which is busy until the event is set."""
    release, began = threading.Event(), threading.Event()

    @tool(effect="read")
    def hold() -> str:
        """Hold the thread."""
        began.set()
        release.wait(SAFETY)
        return "held"

    @tool(effect="read")
    def look() -> str:
        """Look."""
        RAN.append("look")
        return "seen"

    return Runner(Toolbox(hold, look).with_options(timeout=None), threads=1), began, release


def test_call_cancelled_while_waiting_for_a_thread_never_runs():
    async def test():
        runner, began, release = busy_runner()
        holding = asyncio.create_task(runner.run([call("hold")]))
        await asyncio.to_thread(began.wait)
        looking = asyncio.create_task(runner.run([call("look")]))
        await asyncio.sleep(0.05)
        looking.cancel()
        await asyncio.wait({looking})
        release.set()
        await holding
        await asyncio.sleep(0.1)
        assert RAN == []

    asyncio.run(test())


def test_call_waiting_for_a_thread_fails_when_the_runner_is_closed():
    async def test():
        runner, began, release = busy_runner()
        holding = asyncio.create_task(runner.run([call("hold")]))
        await asyncio.to_thread(began.wait)
        looking = asyncio.create_task(runner.run([call("look")]))
        await asyncio.sleep(0.05)
        runner.close()
        release.set()
        async with asyncio.timeout(SAFETY):
            assert (await holding)[0].text == "held"
            assert "closed" in (await looking)[0].text
            assert "closed" in (await runner.run([call("look")]))[0].text
        assert RAN == []

    asyncio.run(test())


def test_cancelled_read_releases_its_key():
    async def test():
        began = asyncio.Event()

        @tool(effect="read")
        async def look() -> str:
            """Look."""
            RAN.append("look")
            began.set()
            await asyncio.sleep(3600 if len(RAN) == 1 else 0)
            return "seen"

        runner = Runner(look, store=MemoryStore())
        work = asyncio.create_task(runner.run([call("look")], keys={"c": "k"}))
        await began.wait()
        work.cancel()
        await asyncio.wait({work})
        async with asyncio.timeout(SAFETY):
            (again,) = await runner.run([call("look")], keys={"c": "k"})
        assert again.text == "seen"

    asyncio.run(test())


@pytest.mark.parametrize("at", ["claim", "release"])
def test_closed_runner_has_released_the_claims_of_cancelled_calls(at, monkeypatch):
    """The owner of a store closes it after the runner, so nothing may use it later."""
    monkeypatch.setattr("toolwire.net.tools.steps._CLOSE_TIMEOUT", SAFETY)
    began, goes_on = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def claim(self, claim):
            if at == "claim":
                began.set()
                assert goes_on.wait(SAFETY)
            return super().claim(claim)

        def release(self, key, token):
            assert goes_on.wait(SAFETY)
            return super().release(key, token)

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        began.set()
        await asyncio.sleep(3600)
        return "seen"

    async def test():
        work = asyncio.create_task(runner.run([call("look")], keys={"c": "k"}))
        await asyncio.to_thread(began.wait, SAFETY)
        work.cancel()
        await asyncio.wait({work})

    store = Slow()
    runner = Runner(look, store=store)
    asyncio.run(test())
    with ThreadPoolExecutor(1) as closer:
        closing = closer.submit(runner.close)
        goes_on.set()
        closing.result()
    assert store.get("k") is None


def test_time_budget_interrupts_a_silent_stream(virtual_time):
    class Silent:
        async def ask(self, request):
            raise AssertionError("only streams are tested")

        closed = False

        async def stream(self, request):
            try:
                await asyncio.sleep(3600)
                yield None
            finally:
                self.closed = True

    async def test():
        model = Silent()
        said = [event async for event in Agent(model, budget=Budget(seconds=0.2)).stream("Go.")]
        assert said[-1].reason == "max time reached (0.2 seconds)"
        assert model.closed

    asyncio.run(test())


def test_timeout_raised_by_the_model_is_not_attributed_to_the_budget():
    class Impatient:
        async def ask(self, request):
            raise AssertionError("only streams are tested")

        async def stream(self, request):
            raise TimeoutError("mine")
            yield

    async def test():
        with pytest.raises(TimeoutError, match="mine"):
            async for _ in Agent(Impatient(), budget=Budget(seconds=20)).stream("Go."):
                pass

    asyncio.run(test())


def test_write_waiting_for_approval_does_not_run_after_cancellation():
    async def test():
        asked, agree = asyncio.Event(), asyncio.Event()

        @tool
        async def pay() -> str:
            """Pay."""
            RAN.append("pay")
            return "paid"

        async def approve(_):
            asked.set()
            await agree.wait()
            return True

        runner = Runner(pay, approve=approve, policy=Policy(approve=("write",)), store=MemoryStore())
        work = asyncio.create_task(runner.run([call("pay")]))
        await asked.wait()
        work.cancel()
        _, waiting = await asyncio.wait({work}, timeout=SAFETY)
        agree.set()
        await asyncio.sleep(0.1)
        assert not waiting
        assert RAN == []

    asyncio.run(test())


def test_duplicate_write_waiting_for_the_first_does_not_run_after_cancellation():
    async def test():
        @tool
        async def pay() -> str:
            """Pay."""
            RAN.append("pay")
            await release.wait()
            raise NotExecuted("no")

        release, store, claims = asyncio.Event(), MemoryStore(), []
        claim = store.claim
        store.claim = lambda given: claims.append(given) or claim(given)
        runner = Runner(Toolbox(pay).with_options(retries=0), store=store)
        first = asyncio.create_task(runner.run([call("pay")], keys={"c": "k"}))
        await until(lambda: RAN)
        second = asyncio.create_task(runner.run([call("pay")], keys={"c": "k"}))
        await until(lambda: len(claims) > 1)
        second.cancel()
        release.set()
        await asyncio.wait({first, second})
        await asyncio.sleep(0.5)
        assert RAN == ["pay"]

    asyncio.run(test())


def pay_entry(*, is_async=False, **options):
    def pay() -> str:
        """Pay."""
        RAN.append("pay")
        return "paid"

    async def pay_async() -> str:
        """Pay."""
        return pay()

    function = pay_async if is_async else pay
    return Entry(tool(name="pay", effect="write")(function), function, Options(**options))


async def abort_waiting_write(runner, store):
    """What comes of a write that is stopped while it waits, when its run is told to stop."""
    dispatch = runner.dispatch(keys={"c": "k"})
    dispatch.add(call("pay"))
    waiting = asyncio.create_task(dispatch.results())
    await until(lambda: store.get("k") is not None)
    await asyncio.sleep(0.05)
    async with asyncio.timeout(SAFETY):
        (found,) = await dispatch.abort()
        await waiting
    await until(lambda: store.get("k") is None)
    return found


@pytest.mark.parametrize("is_async", [True, False])
def test_write_waiting_for_its_rate_limit_does_not_run_after_abort(is_async):
    async def test():
        store = MemoryStore()
        runner = Runner(pay_entry(is_async=is_async, rate=0.01), store=store)
        (first,) = await runner.run([call("pay")])
        found = await abort_waiting_write(runner, store)
        assert (result_code(found), found.text) == ("cancelled", "The run was cancelled before this call was made.")
        assert first.text == "paid"
        assert RAN == ["pay"]

    asyncio.run(test())


def test_write_waiting_for_a_thread_does_not_run_after_abort():
    async def test():
        began, release = threading.Event(), threading.Event()

        @tool(effect="read")
        def hold() -> str:
            """Hold."""
            began.set()
            release.wait(SAFETY)
            return "held"

        store = MemoryStore()
        runner = Runner(hold, pay_entry(), store=store, threads=1)
        holding = asyncio.create_task(runner.run([call("hold")]))
        await asyncio.to_thread(began.wait)
        try:
            assert result_code(await abort_waiting_write(runner, store)) == "cancelled"
        finally:
            release.set()
        await holding
        await asyncio.sleep(0.1)
        assert RAN == []
        (again,) = await runner.run([call("pay")], keys={"c": "k"})
        assert again.text == "paid"

    asyncio.run(test())


def test_abort_waits_for_a_started_write_and_records_it():
    async def test():
        began, release = threading.Event(), threading.Event()

        @tool(effect="write")
        def pay() -> str:
            """Pay."""
            began.set()
            release.wait(SAFETY)
            return "paid"

        store = MemoryStore()
        dispatch = Runner(pay, store=store).dispatch(keys={"c": "k"})
        dispatch.add(call("pay"))
        results = asyncio.create_task(dispatch.results())
        await asyncio.to_thread(began.wait)
        stopping = asyncio.create_task(dispatch.abort())
        await asyncio.wait({stopping}, timeout=0.1)
        release.set()
        assert [one.text for one in await stopping] == ["paid"]
        assert store.get("k").state == "done"
        await results

    asyncio.run(test())


@pytest.mark.parametrize("rate", [None, 100.0])
def test_call_with_missing_arguments_releases_its_key(rate):
    async def pay(amount: int) -> str:
        RAN.append("pay")
        return "paid"

    store = MemoryStore()
    entry = Entry(Tool("pay", input_schema={"type": "object"}), pay, Options(rate=rate))
    (found,) = Runner(entry, store=store).run_sync([call("pay")], keys={"c": "k"})
    assert result_code(found) == "invalid_arguments"
    assert store.get("k") is None
    assert RAN == []


def test_cancelled_claims_of_a_hanging_store_stop_neither_other_operations_nor_the_loop(monkeypatch):
    monkeypatch.setattr("toolwire.net.tools.steps._CLOSE_TIMEOUT", SAFETY)
    goes_on = threading.Event()

    class Hanging(MemoryStore):
        def claim(self, claim):
            assert goes_on.wait(SAFETY)
            return super().claim(claim)

    async def test():
        steps = StoreSteps(Hanging())
        claims = [
            asyncio.create_task(steps._claim(Claim(f"k{number}", "pay", "f", f"token {number}"))) for number in range(4)
        ]
        await until(lambda: len(steps._operations) == 4)
        for claim in claims:
            claim.cancel()
        await asyncio.wait(claims)
        assert await steps.use(lambda: "done") == "done"  # four of eight threads are free
        steps.close()  # does not wait: the claims have not ended
        assert steps._operations
        goes_on.set()
        await steps.aclose()
        assert all(steps._store.get(f"k{number}") is None for number in range(4))

    asyncio.run(test())


class LostServer:
    """A tool whose server may be lost: then its call fails after it was sent, and the tool is withdrawn."""

    def __init__(self, effect, outcome=None):
        self.reason = None
        self.outcome = outcome

        @tool(effect=effect)
        def pay(to: str) -> str:
            """Pay."""
            RAN.append(to)
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return "paid"

        self.entry = Entry(pay, pay.function, Options(withdrawn=lambda: self.reason))


@pytest.mark.parametrize(
    ("effect", "outcome", "code"),
    [
        ("write", ConnectionError("lost"), "outcome_unknown"),
        ("write", "paid", "ok"),
        ("idempotent", "paid", "ok"),
        ("read", "paid", "ok"),
    ],
)
def test_repeated_key_of_a_withdrawn_tool_has_the_outcome_of_its_call(effect, outcome, code):
    server = LostServer(effect, outcome)

    def pay(key, to="ann"):
        return runner.run_sync([call("pay", to=to)], keys={"c": key})[0]

    with closing(Runner(server.entry, store=MemoryStore())) as runner:
        first = pay("k")
        server.reason = "its server is lost"
        again, other, changed = pay("k"), pay("new"), pay("k", to="bob")
    assert RAN == ["ann"]
    assert [result_code(one) for one in (first, again)] == [code, code]
    assert [result_code(one) for one in (other, changed)] == ["withdrawn", "withdrawn"]


def test_key_of_a_running_call_of_a_withdrawn_tool_is_in_progress():
    server, begun, may_end = LostServer("write"), threading.Event(), threading.Event()

    def hang(to: str) -> str:
        begun.set()
        assert may_end.wait(SAFETY)
        return "paid"

    entry = Entry(server.entry.tool, hang, server.entry.options)
    with closing(Runner(entry, store=MemoryStore())) as runner, ThreadPoolExecutor() as threads:
        first = threads.submit(runner.run_sync, [call("pay", to="ann")], keys={"c": "k"})
        assert begun.wait(SAFETY)
        server.reason = "its server is lost"
        [again] = runner.run_sync([call("pay", to="ann")], keys={"c": "k"})
        may_end.set()
        assert result_code(first.result()[0]) == "ok"
    assert result_code(again) == "in_progress"
