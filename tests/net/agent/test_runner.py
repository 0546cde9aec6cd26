"""Tools that really run: threads, processes, timeouts, order, hostile ones."""

import asyncio
import inspect
import multiprocessing
import os
import sys
import threading
import time
from datetime import date
from typing import Literal

import pydantic
import pytest

from toolwire import Media, ToolCall, tool
from toolwire.ir.errors import ConfigError
from toolwire.net.tools.runner import Runner
from toolwire.run.calls.context import NotExecuted, ToolError, Transient, current_call
from toolwire.run.calls.policy import Policy, path_jail
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry, Toolbox
from toolwire.run.values.outputs import LIMIT
from toolwire.run.values.results import NOTES_KEY, result_code
from waiting import SAFETY, until, wait_until

LOG: list[str] = []


@pytest.fixture(autouse=True)
def clean_log():
    LOG.clear()


@tool(effect="read")
async def nap(seconds: float, name: str = "") -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    LOG.append(f"nap {name}")
    return name


@tool(effect="read")
def blocking_nap(seconds: float) -> str:
    """Sleep in a thread."""
    time.sleep(seconds)
    return threading.current_thread().name


@tool
async def write(name: str, seconds: float = 0.0) -> str:
    """Write."""
    LOG.append(f"begin {name}")
    await asyncio.sleep(seconds)
    LOG.append(f"end {name}")
    return f"wrote {name}"


@tool
def explode(how: str) -> str:
    """Fail."""
    kinds = {
        "value": ValueError("boom"),
        "exit": SystemExit(3),
        "refusal": ToolError("no such account"),
        "nothing": NotExecuted("busy"),
    }
    raise kinds[how]


def call(called: str, ordinal: int = 0, /, **arguments) -> ToolCall:
    return ToolCall(f"c{ordinal}", called, arguments)


def run(*sources, calls, **options):
    runner = Runner(*sources, **options)
    try:
        return runner.run_sync(calls)
    finally:
        runner.close()


def test_ten_sleeping_calls_take_the_time_of_the_slowest():
    everybody = asyncio.Barrier(10)

    @tool(effect="read")
    async def meet(name: str) -> str:
        """Return once all ten calls run."""
        await everybody.wait()
        return name

    results = run(meet, calls=[call("meet", n, name=str(n)) for n in range(10)])
    assert [result.text for result in results] == [str(n) for n in range(10)]


def test_blocking_functions_run_in_parallel():
    everybody = threading.Barrier(8, timeout=SAFETY)

    @tool(effect="read")
    def meet() -> str:
        """Return once all eight calls run."""
        everybody.wait()
        return threading.current_thread().name

    results = run(meet, calls=[call("meet", n) for n in range(8)])
    assert len({result.text for result in results}) == 8


@pytest.mark.finding("X1")
def test_writes_keep_the_models_order_and_reads_wait_for_them(virtual_time):
    calls = [
        call("write", 0, name="a", seconds=0.2),
        call("nap", 1, seconds=0.01, name="quick"),
        call("write", 2, name="b"),
        call("write", 3, name="c"),
    ]
    results = run(nap, write, calls=calls)
    LOG.remove("nap quick")  # after the end of a, beside b and c
    assert LOG == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]
    assert [result.text for result in results] == ["wrote a", "quick", "wrote b", "wrote c"]


def test_writes_on_different_resources_do_not_wait_for_each_other(virtual_time):
    box = Toolbox(Entry(write, write.function, Options(resource=lambda given: given["name"][0])))
    calls = [call("write", 0, name="a1", seconds=0.2), call("write", 1, name="b1"), call("write", 2, name="a2")]
    run(box, calls=calls)
    assert LOG.index("end b1") < LOG.index("end a1") < LOG.index("begin a2")


def test_parallelism_limits_are_respected():
    running, most = [0], [0]

    @tool(effect="pure")
    async def busy(number: int) -> int:
        """Be busy."""
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.01)
        running[0] -= 1
        return number

    run(busy, calls=[call("busy", n, number=n) for n in range(40)], max_parallel=5)
    assert most[0] == 5
    most[0] = 0
    run(Toolbox(busy).with_options(max_parallel=2), calls=[call("busy", n, number=n) for n in range(10)])
    assert most[0] == 2


def test_rate_limit_is_respected(virtual_time):
    times = []

    @tool(effect="read")
    async def note() -> str:
        """Note the time."""
        times.append(asyncio.get_running_loop().time())
        return ""

    run(Toolbox(note).with_options(rate=20.0), calls=[call("note", n) for n in range(6)])
    assert [time - times[0] for time in times] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.25])


def test_failed_call_does_not_affect_the_others():
    calls = [call("explode", 0, how="value"), call("explode", 1, how="exit"), call("nap", 2, seconds=0.0, name="ok")]
    results = run(explode, nap, calls=calls)
    assert [result_code(result) for result in results] == ["outcome_unknown", "outcome_unknown", "ok"]
    assert "SystemExit" in results[1].text


def test_tool_error_message_is_returned_as_an_error_result():
    (result,) = run(explode, calls=[call("explode", how="refusal")])
    assert (result.text, result.is_error) == ("no such account", True)


def test_transient_failure_before_the_effect_is_retried():
    tries = []

    @tool
    def flaky() -> str:
        """Works the third time."""
        tries.append(1)
        if len(tries) < 3:
            raise Transient("not yet", retry_after=0.0, before_effect=True)
        return "done"

    (result,) = run(flaky, calls=[call("flaky")])
    assert (result.text, len(tries)) == ("done", 3)


def test_hanging_coroutine_is_cancelled_at_the_timeout(virtual_time):
    cleaned = []

    @tool(effect="read")
    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(True)
        return ""

    (result,) = run(Toolbox(hang).with_options(timeout=0.1), calls=[call("hang")])
    assert result_code(result) == "timeout"
    assert cleaned


@pytest.mark.skipif(not hasattr(inspect, "markcoroutinefunction"), reason="new in Python 3.12")
def test_function_that_is_marked_as_async_may_return_a_task():
    async def work(city):
        await asyncio.sleep(0)
        return f"done in {city}"

    def marked(city: str) -> str:
        """Work."""
        return asyncio.ensure_future(work(city))

    runner = Runner(tool(effect="read")(inspect.markcoroutinefunction(marked)))
    (result,) = asyncio.run(runner.run([ToolCall("1", "marked", {"city": "Oslo"})]))
    assert result.text == "done in Oslo"


def test_uncancellable_coroutine_does_not_block_the_run(virtual_time):
    finished = []

    @tool(effect="read")
    async def stubborn() -> str:
        """Ignore everything."""
        while True:
            try:
                await asyncio.sleep(3600)
                finished.append(True)
                return "late"
            except asyncio.CancelledError:
                pass

    (result,) = run(Toolbox(stubborn).with_options(timeout=0.1), calls=[call("stubborn")])
    assert result_code(result) == "timeout"
    assert not finished


def test_hanging_thread_is_abandoned_at_the_timeout():
    release = threading.Event()

    @tool(effect="read")
    def hang() -> str:
        """Hang."""
        release.wait(SAFETY)
        LOG.append("returned")
        return ""

    runner = Runner(Toolbox(hang).with_options(timeout=0.1))
    (result,) = asyncio.run(_run_then_release(runner, [call("hang")], release))
    assert result_code(result) == "timeout"


async def _run_then_release(runner, calls, release):
    results = await runner.run(calls)
    assert not LOG, "the call was waited for"
    release.set()
    return results


def burn(seconds: float) -> int:
    """Burn time in a process of its own."""
    time.sleep(seconds)
    return os.getpid()


def leave(code: int) -> str:
    """Leave the process."""
    os._exit(code)


def test_process_is_killed_at_the_timeout():
    others = set(multiprocessing.active_children())  # such as a store that other tests use
    limits = {"slow": 1.0, "quick": SAFETY}
    entries = [
        Entry(tool(effect="read", name=name)(burn), burn, Options(isolation="process", timeout=limit, retries=0))
        for name, limit in limits.items()
    ]
    slow, quick = run(*entries, calls=[call("slow", 0, seconds=3600), call("quick", 1, seconds=0)])
    assert result_code(slow) == "timeout"
    assert int(quick.text) != os.getpid()
    wait_until(lambda: set(multiprocessing.active_children()) <= others)


def test_dying_process_leaves_the_outcome_of_its_call_unknown():
    box = Toolbox(Entry(tool(leave), leave, Options(isolation="process", timeout=SAFETY)))
    (result,) = run(box, calls=[call("leave", code=3)])
    assert result_code(result) == "outcome_unknown"
    assert "died" in result.text


def test_path_outside_the_root_is_denied_before_the_tool_runs():
    @tool(effect="read")
    def read_file(path: str) -> str:
        """Read a file."""
        LOG.append(path)
        return "secret"

    policy = Policy(checks=(path_jail("path", "/files"),))
    (result,) = run(read_file, calls=[call("read_file", path="../../etc/passwd")], policy=policy)
    assert result_code(result) == "denied"
    assert not LOG


def test_unknown_and_truncated_calls_are_rejected():
    cut = ToolCall("c1", "nap", None, '{"seconds": 0', "truncated")
    unknown, truncated = run(nap, calls=[call("rm_rf"), cut])
    assert (result_code(unknown), result_code(truncated)) == ("unknown_tool", "truncated")


def test_tainted_run_requires_approval_for_writes():
    policy = Policy(taint="enforce")

    async def ask():
        runner = Runner(write, policy=policy)
        return await runner.run([call("write", name="x")], tainted=True)

    (result,) = asyncio.run(ask())
    assert result_code(result) == "needs_approval"
    assert not LOG


@pytest.mark.finding("RU10")
@pytest.mark.parametrize(
    ("options", "limit"), [({}, 256), ({"max_per_turn": 900}, 900), ({"max_per_turn": 1000}, 1000)]
)
def test_calls_over_the_per_turn_limit_are_refused_one_by_one(options, limit, caplog):
    calls = [call("nap", n, seconds=0.0, name=str(n)) for n in range(1000)]
    results = run(nap, calls=calls, **options)
    assert [result.text for result in results[:limit]] == [str(n) for n in range(limit)]
    refused = results[limit:]
    assert {(result_code(result), result.is_error) for result in refused} <= {("over_budget", True)}
    assert all("repeat it in a later turn" in result.text for result in refused)
    assert caplog.text.count("Runner(max_per_turn=…)") == (1 if refused else 0), "logged once"
    assert "max_per_turn" in (Runner.__doc__ or "")


def test_huge_result_is_truncated():
    @tool(effect="pure")
    def flood() -> str:
        """Say a lot."""
        return "x" * 100_000_000

    (result,) = run(flood, calls=[call("flood")])
    assert len(result.text) < LIMIT + 200
    assert result.extra[NOTES_KEY]["left_out"] > 99_000_000


def test_arguments_are_converted_to_the_annotated_types():
    class Place(pydantic.BaseModel):
        city: str

    @tool(effect="pure")
    def visit(place: Place, when: date, how: Literal["train", "car"] = "train") -> str:
        """Visit."""
        return f"{type(place).__name__} {place.city} {when.year} {how}"

    (result,) = run(visit, calls=[call("visit", place={"city": "Paris"}, when="2026-11-15")])
    assert result.text == "Place Paris 2026 train"


def test_function_can_read_the_current_call():
    @tool
    def who() -> dict:
        """Who am I."""
        now = current_call()
        return {"id": now.call_id, "caller": now.caller}

    (result,) = run(who, calls=[call("who", 7)], caller="ann")
    assert result.structured == {"id": "c7", "caller": "ann"}
    assert current_call().call_id == ""
    assert current_call().idempotency_key is None


def test_media_and_models_are_converted_to_results():
    class Point(pydantic.BaseModel):
        x: int

    @tool(effect="pure")
    def draw() -> list:
        """Draw."""
        return [Media("image", "image/png", "aGk=")]

    @tool(effect="pure")
    def point() -> Point:
        """A point."""
        return Point(x=1)

    image, model = run(draw, point, calls=[call("draw"), call("point", 1)])
    assert image.parts[0].kind == "image"
    assert model.structured == {"x": 1}


def test_cancelled_run_waits_for_started_writes(virtual_time):
    async def ask():
        runner = Runner(nap, write)
        calls = [call("write", 0, name="a", seconds=0.3), call("write", 1, name="b"), call("nap", 2, seconds=60)]
        task = asyncio.create_task(runner.run(calls))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert LOG == ["begin a", "end a"], "what had begun was ended, what had not was not begun"


def test_approval_is_requested_for_each_call():
    asked = []

    async def approve(step):
        asked.append(step.arguments["name"])
        return step.arguments["name"] == "good"

    policy = Policy(approve=("write",))
    calls = [call("write", 0, name="good"), call("write", 1, name="bad")]
    good, bad = run(write, calls=calls, policy=policy, approve=approve)
    assert asked == ["good", "bad"]
    assert (result_code(good), result_code(bad)) == ("ok", "needs_approval")


@pytest.mark.finding("X1")
def test_reads_start_before_the_response_is_complete_but_not_before_an_earlier_write(virtual_time):
    async def ask():
        runner = Runner(nap, write)
        dispatch = runner.dispatch()
        dispatch.add(call("nap", 0, seconds=0.0, name="early"))
        dispatch.add(call("write", 1, name="w"))
        dispatch.add(call("nap", 2, seconds=0.0, name="late"))
        await asyncio.sleep(0.05)
        assert LOG == ["nap early"], "a write waits until the answer is whole, and a later read for the write"
        results = await dispatch.results()
        assert LOG == ["nap early", "begin w", "end w", "nap late"]
        return [result.text for result in results]

    assert asyncio.run(ask()) == ["early", "wrote w", "late"]


@pytest.mark.finding("X1")
def test_read_returns_the_value_of_an_earlier_write(virtual_time):
    notes = []

    @tool
    async def add_note(text: str) -> str:
        await asyncio.sleep(0.1)
        notes.append(text)
        return "added"

    @tool(effect="read")
    async def list_notes() -> str:
        return ", ".join(notes) or "none"

    calls = [call("list_notes", 0), call("add_note", 1, text="milk"), call("list_notes", 2)]
    assert [result.text for result in run(add_note, list_notes, calls=calls)] == ["none", "added", "milk"]


@pytest.mark.finding("X1")
def test_a_read_on_its_first_argument_does_not_start_before_an_earlier_write(virtual_time):
    begun = []

    @tool(effect="read", first_argument=True)
    async def look(path: str) -> str:
        begun.append(path)
        return path

    async def ask():
        dispatch = Runner(look, write).dispatch()
        dispatch.add(call("write", 0, name="w"))
        dispatch.speculate(call("look", 1, path="a"))
        await asyncio.sleep(0.05)
        assert begun == []
        dispatch.add(call("look", 1, path="a"))
        return [result.text for result in await dispatch.results()]

    assert asyncio.run(ask()) == ["wrote w", "a"]


def test_a_check_that_crashes_fails_its_call_only():
    def broken(pending):
        raise RuntimeError("bug")

    policy = Policy(checks=(lambda pending: broken(pending) if pending.call.name == "write" else None,))
    bad, good = run(nap, write, calls=[call("write", name="x"), call("nap", 1, seconds=0.0, name="y")], policy=policy)
    assert (result_code(bad), good.text) == ("failed", "y")


def test_observer_exception_does_not_affect_the_result(caplog):
    class BrokenStart:
        def start(self, operation):
            raise RuntimeError("bug")

    class BrokenEnd:
        def start(self, operation):
            return lambda outcome: 1 / 0

    observers = [BrokenStart(), BrokenEnd()]
    (result,) = run(nap, calls=[call("nap", seconds=0.0, name="x")], observers=observers)
    assert result.text == "x"
    assert caplog.text.count("an observer raised an exception") == 2


def test_unexpected_argument_is_rejected_before_the_tool_runs():
    (result,) = run(write, calls=[call("write", name="x", note="y")])
    assert result_code(result) == "invalid_arguments"
    assert "no parameter note" in result.text
    assert not LOG

    def plain(name: str) -> str:
        return name

    from toolwire import Tool

    (result,) = run(Entry(Tool("plain"), plain), calls=[call("plain", name="x", note="y")])
    assert result_code(result) == "invalid_arguments"


def test_call_that_timed_out_waiting_for_a_thread_is_not_run():
    release = threading.Event()
    begun = []

    @tool(effect="read")
    def wait(number: int) -> str:
        """Wait."""
        begun.append(number)
        release.wait(SAFETY)
        return "late"

    async def ask(runner):
        holding = asyncio.create_task(runner.run([call("hold", number=0)]))
        await until(lambda: begun)
        (late,) = await runner.run([call("wait", number=1)])
        release.set()
        await holding
        await runner.run([call("hold", number=2)])  # the thread has done all work that came before
        return late

    hold = Toolbox(wait).rename({"wait": "hold"}).with_options(timeout=None)
    late = asyncio.run(ask(Runner(hold, Toolbox(wait).with_options(timeout=0.2, retries=0), threads=1)))
    assert "no thread was free" in late.text
    assert begun == [0, 2], "what was reported as not run is not run later"


def test_hanging_thread_does_not_keep_the_program_alive():
    import subprocess

    program = """
import time, toolwire
from toolwire import ToolCall
from toolwire.net.tools.runner import Runner
from toolwire.run.tools.toolbox import Toolbox

@toolwire.tool(effect="read")
def hang() -> str:
    "Hang."
    time.sleep(3600)
    return ""

print(Runner(Toolbox(hang).with_options(timeout=0.1)).run_sync([ToolCall("1", "hang", {})])[0].is_error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SAFETY, check=False)
    assert done.stdout == "True\n", done.stderr


def test_runner_remembers_untrusted_output_per_run():
    box = Toolbox(Toolbox(nap).with_options(untrusted=True), write)

    async def ask(run_id):
        runner = Runner(box, policy=Policy(taint="enforce"))
        await runner.run([call("nap", seconds=0.0)], run_id="r")
        return await runner.run([call("write", name="x")], run_id=run_id)

    assert result_code(asyncio.run(ask("r"))[0]) == "needs_approval"
    assert result_code(asyncio.run(ask("another"))[0]) == "ok"


def test_read_with_a_resource_keeps_its_order_among_writes(virtual_time):
    files = {"a": "old"}

    @tool
    async def write_file(path: str, text: str) -> str:
        """Write."""
        await asyncio.sleep(0.05)
        files[path] = text
        return "ok"

    @tool(effect="read")
    async def read_file(path: str) -> str:
        """Read."""
        return files[path]

    box = Toolbox(write_file, read_file).with_options(resource=lambda given: given["path"])
    calls = [
        call("read_file", 0, path="a"),
        call("write_file", 1, path="a", text="new"),
        call("read_file", 2, path="a"),
    ]
    assert [result.text for result in run(box, calls=calls)] == ["old", "ok", "new"]


def test_cancellation_inside_the_tool_counts_as_its_failure():
    @tool
    async def cancels() -> str:
        """Cancel something of its own."""
        LOG.append("begun")
        task = asyncio.create_task(asyncio.sleep(5))
        task.cancel()
        await task
        return ""

    (result,) = run(cancels, calls=[call("cancels")])
    assert result_code(result) == "outcome_unknown"
    assert LOG == ["begun"]
    (result,) = run(tool(name="reads", effect="read")(cancels.function), calls=[call("reads")])
    assert result_code(result) == "failed"


@tool(effect="read")
def marked(number: int) -> int:
    """A tool of a module."""
    return number + os.getpid() * 0


def test_decorated_tool_runs_in_a_process():
    box = Toolbox(marked).with_options(isolation="process", timeout=SAFETY)
    (result,) = run(box, calls=[call("marked", number=3)])
    assert result.text == "3"


def test_generators_are_collected():
    @tool(effect="read")
    def count(to: int) -> list[int]:
        """Count."""
        yield from range(to)

    @tool(effect="read")
    async def count_slowly(to: int) -> list[int]:
        """Count."""
        for number in range(to):
            yield number

    results = run(count, count_slowly, calls=[call("count", 0, to=3), call("count_slowly", 1, to=2)])
    assert [result.structured for result in results] == [[0, 1, 2], [0, 1]]


def test_unusual_results_and_exceptions_do_not_abort_the_run():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    @tool(effect="read")
    def odd(kind: str) -> object:
        """Odd."""
        if kind == "raise":
            raise Mute
        return {"half": "sun\ud800", "set": {1, 2}, "int": 3.0}[kind]

    half, kinds, mute = run(odd, calls=[call("odd", n, kind=kind) for n, kind in enumerate(("half", "set", "raise"))])
    assert half.text == "sun?"
    assert sorted(kinds.structured) == [1, 2]
    assert "Mute" in mute.text


def test_integral_float_is_accepted_as_an_integer():
    @tool(effect="pure")
    def repeat(times: int) -> str:
        """Repeat."""
        return "x" * times

    (result,) = run(repeat, calls=[call("repeat", times=3.0)])
    assert result.text == "xxx"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Policy(approve=("writes",)),
        lambda: Policy(taint="on"),
        lambda: Options(isolation="proces"),
        lambda: Options(timeout=-1),
    ],
)
def test_invalid_safety_setting_raises_config_error(wrong):

    with pytest.raises(ConfigError):
        wrong()


def test_path_argument_of_another_type_is_denied():
    @tool(effect="read")
    def show(path: dict) -> str:
        """Show."""
        return "x"

    (result,) = run(
        show, calls=[call("show", path={"a": "../x"})], policy=Policy(checks=(path_jail("path", "/files"),))
    )
    assert result_code(result) == "denied"


def test_unreferenced_runner_releases_its_threads():
    import gc

    before = threading.active_count()
    for _ in range(5):
        Runner(blocking_nap).run_sync([call("blocking_nap", n, seconds=0.0) for n in range(4)])
    gc.collect()
    wait_until(lambda: threading.active_count() <= before)


@pytest.mark.parametrize("name", ["max_parallel", "max_per_turn", "threads"])
def test_runner_that_could_not_run_a_call_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        Runner(**{name: 0})
