"""The parts of the framework adapters that need no framework."""

import asyncio
import subprocess
import sys

import pytest

import toolwire
from tables import every_case
from toolwire import Toolbox, adapters
from toolwire.adapters.framework_runner import CallOrder, CallScope, FrameworkRunner, choose_effect, open_question
from toolwire.ir import ConfigError, MissingExtra, ToolCall
from toolwire.net.tools import steps as store_steps
from toolwire.run import Suspended
from waiting import wait_until

FRAMEWORKS = {
    "pydantic_ai": ("pydantic_ai", "pydantic_ai_toolset", "pydantic-ai-slim"),
    "langchain": ("langchain_core", "langchain_tool", "langchain-core"),
    "llama_index": ("llama_index", "llama_index_tool", "llama-index-core"),
    "openai_agents": ("agents", "openai_agents_tool", "openai-agents"),
    "google_adk": ("google", "google_adk_tool", "google-adk"),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("direction", ["to", "from"])
def test_missing_framework_is_reported_with_the_install_command(name, direction, monkeypatch):
    module, own_module, package = FRAMEWORKS[name]
    for loaded in [one for one in sys.modules if one == module or one.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"toolwire.adapters.{own_module}", raising=False)
    with pytest.raises(MissingExtra) as caught:
        getattr(adapters, f"{direction}_{name}")([])
    assert caught.value.hint == f"pip install {package}"


def test_adapters_import_no_framework():
    names = [f"{direction}_{name}" for name in FRAMEWORKS for direction in ("to", "from")]
    modules = {module for module, _, _ in FRAMEWORKS.values()} | {"langgraph", "pydantic"}
    program = (
        "import sys, toolwire.adapters\n"
        f"for name in {names!r}: getattr(toolwire.adapters, name)\n"
        f"print(sorted({modules!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@toolwire.tool
async def write(text: str) -> str:
    """Write."""
    return text


@toolwire.tool(resource=lambda arguments: arguments["file"])
async def write_file(file: str) -> str:
    """Write a file."""
    return file


@toolwire.tool(effect="read", resource=lambda arguments: arguments["file"])
async def read_file(file: str) -> str:
    """Read a file."""
    return file


@toolwire.tool(effect="pure")
async def add(a: int) -> int:
    """Add."""
    return a


BOX = Toolbox(write, write_file, read_file, add)
A, B = {"file": "a"}, {"file": "b"}


@every_case(
    ("first", "second", "waits"),
    [
        (("write", {"text": "1"}), ("write", {"text": "2"}), True),
        (("write_file", A), ("write_file", A), True),
        (("write_file", A), ("write_file", B), False),
        (("write_file", A), ("write", {"text": "1"}), True),
        (("write", {"text": "1"}), ("read_file", A), True),
        (("write_file", A), ("read_file", A), True),
        (("write_file", A), ("read_file", B), False),
        (("read_file", A), ("write_file", A), True),
        (("read_file", A), ("read_file", A), False),
        (("write", {"text": "1"}), ("add", {"a": 1}), False),
    ],
)
def test_call_waits_for_earlier_calls_that_conflict(first, second, waits):
    async def main():
        order, release, events = CallOrder(), asyncio.Event(), []

        async def hold():
            async with order.wait_turn("run", BOX.find(first[0]), first[1]):
                await release.wait()
                events.append("first")

        async def follow():
            async with order.wait_turn("run", BOX.find(second[0]), second[1]):
                events.append("second")

        tasks = [asyncio.create_task(hold()), asyncio.create_task(follow())]
        for _ in range(5):
            await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*tasks)
        return events

    assert asyncio.run(main()) == (["first", "second"] if waits else ["second", "first"])


def test_cancelled_call_releases_the_calls_after_it_and_not_those_before():
    async def main():
        order, release, events = CallOrder(), asyncio.Event(), []

        async def call(name, *, hold=False):
            async with order.wait_turn("run", BOX.find("write"), {"text": name}):
                if hold:
                    await release.wait()
                events.append(name)

        tasks = [asyncio.create_task(call(name, hold=name == "1")) for name in "123"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        await asyncio.sleep(0)
        assert events == []
        release.set()
        await asyncio.gather(tasks[0], tasks[2])
        return events, order._started

    assert asyncio.run(main()) == (["1", "3"], {})


def test_runs_do_not_wait_for_each_other():
    async def main():
        order = CallOrder()
        async with order.wait_turn("one", BOX.find("write"), {}), order.wait_turn("two", BOX.find("write"), {}):
            return "not blocked"

    assert asyncio.run(main()) == "not blocked"


@pytest.mark.parametrize(
    ("metadata", "effect"),
    [
        ((), "write"),
        (({"annotations": {"readOnlyHint": True}},), "read"),
        (({"idempotentHint": True},), "idempotent"),
        (({"toolwire": {"effect": "pure"}, "annotations": {"readOnlyHint": True}},), "pure"),
        (({"toolwire": {"effect": "harmless"}},), "write"),
        (({"readOnlyHint": "yes"}, None, "text"), "write"),
        ((None, {"readOnlyHint": True}), "read"),
    ],
)
def test_effect_of_metadata(metadata, effect):
    assert choose_effect("tool", None, *metadata) == effect
    assert choose_effect("tool", {"tool": "pure"}, *metadata) == "pure"


def test_call_without_an_id_is_never_taken_for_a_repeated_one():
    written = []

    @toolwire.tool
    def note(text: str) -> str:
        """Write a note."""
        written.append(text)
        return "noted"

    runner = FrameworkRunner(note, {})
    for _ in range(2):
        runner.run_sync(ToolCall("", "note", {"text": "a"}), CallScope("run", "run"))
    assert written == ["a", "a"]


def test_same_call_id_in_another_conversation_is_another_call():
    written = []

    @toolwire.tool
    def note(text: str) -> str:
        """Write a note."""
        written.append(text)
        return "noted"

    runner = FrameworkRunner(note, {})
    for scope in ("one", "one", "two"):
        runner.run_sync(ToolCall("c1", "note", {"text": "a"}), CallScope(scope, scope))
    assert written == ["a", "a"]


def test_call_id_without_a_scope_is_never_that_of_a_repeated_call():
    written = []

    @toolwire.tool
    def note(text: str) -> str:
        """Write a note."""
        written.append(text)
        return "noted"

    runner = FrameworkRunner(note, {})
    for _ in range(2):
        runner.run_sync(ToolCall("call_0", "note", {"text": "a"}), CallScope())
    assert written == ["a", "a"]


def test_expired_results_are_deleted_from_the_default_store(monkeypatch):
    monkeypatch.setattr(store_steps, "_SWEEP_INTERVAL", 0.0)
    runner = FrameworkRunner(write, {"ttl": 1e-9})
    for number in range(10):
        runner.run_sync(ToolCall(f"c{number}", "write", {"text": "a"}), CallScope("run", "run"))
    wait_until(lambda: len(runner.runner.store._records) <= 3)


def test_shortened_result_does_not_name_a_tool_that_is_not_offered():
    @toolwire.tool(effect="read", output_limit=100)
    def read_log() -> str:
        """Read the log."""
        return "x" * 1000

    runner = FrameworkRunner(read_log, {})
    result = runner.run_sync(ToolCall("c1", "read_log", {}), CallScope("run", "run"))
    assert "characters omitted" in result.text
    assert "read_output" not in result.text
    assert [tool.name for tool in runner.runner.tools_for_run("run")] == ["read_log"]


def test_idempotency_key_in_the_arguments_is_used():
    keys = []

    @toolwire.tool
    def note(text: str) -> str:
        """Write a note."""
        keys.append(toolwire.run.current_call().idempotency_key)
        return "noted"

    runner = FrameworkRunner(note, {})
    runner.run_sync(ToolCall("c1", "note", {"text": "a", "idempotency_key": "mine"}), CallScope())
    assert keys == ["mine"]


def test_waiting_result_of_a_tool_is_no_question_for_approval():
    @toolwire.tool
    def order(item: str) -> Suspended:
        """Order."""
        return Suspended(why="delivery")

    result = FrameworkRunner(order, {}).run_sync(ToolCall("c1", "order", {"item": "a"}))
    assert open_question(result) is None
    assert "waits for a result" in result.text


def test_tool_that_is_no_function_is_refused():
    entry = toolwire.run.Entry(toolwire.ir.Tool("grep", kind="freeform"), lambda text: text)
    with pytest.raises(ConfigError, match="freeform"):
        FrameworkRunner(entry, {})
