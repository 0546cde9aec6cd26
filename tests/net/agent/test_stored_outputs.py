"""A result that was shortened stays readable for the model of its run, with `read_output` and `search_output`."""

import asyncio

import pytest

import toolwire
from toolwire import Agent, Policy, Runner, ToolCall, ToolResult
from toolwire.run import deny
from toolwire.run.values.outputs import LIMIT, StoredOutputs
from toolwire.run.values.results import result_code
from toolwire.testing import ScriptedModel, says
from work_counter import assert_linear, count_work

TEXT = "".join(f"line {number:06d} of the report\n" for number in range(20_000))
AT = TEXT.index("line 012345")


@toolwire.tool(effect="read")
async def report() -> str:
    return TEXT


@toolwire.tool(effect="read")
async def short() -> str:
    return "short"


def call(name, number=1, /, **arguments):
    return ToolCall(f"c{number}", name, arguments)


def results_of(answer):
    return [part for message in answer.messages for part in message.parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_reads_and_searches_an_output_that_was_cut(streamed):
    turns = [
        says(call("report")),
        says(
            call("read_output", 2, id="out1", offset=AT, limit=30),
            call("search_output", 3, id="out1", pattern="012345"),
        ),
        says("done"),
    ]
    model = ScriptedModel(turns)
    agent = Agent(model, [report, short])

    async def run():
        if not streamed:
            return await agent.run("go")
        return [item async for item in agent.stream("go")][-1]

    answer = asyncio.run(run())
    cut, part, found = results_of(answer)
    assert len(cut.text) < LIMIT + 300
    assert 'read them with read_output(id="out1", offset=49152) or find text with search_output' in cut.text
    assert part.text == f"{TEXT[AT : AT + 30]}\n\n[characters {AT:,} to {AT + 30:,} of {len(TEXT):,}]"
    assert found.structured["matches"][0]["offset"] == AT + 5
    assert "line 012345 of the report" in found.structured["matches"][0]["text"]
    assert found.structured["more"] is False
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered[0] == ["report", "short"]
    assert offered[1] == offered[2] == ["report", "short", "read_output", "search_output"]


def test_the_tools_are_not_offered_if_nothing_was_cut():
    model = ScriptedModel([says(call("short")), says("done")])
    Agent(model, [report, short]).run_sync("go")
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["report", "short"]] * 2


def test_a_run_cannot_read_the_outputs_of_another_run():
    runner = Runner(report)
    runner.run_sync([call("report")], run_id="first")
    reads = [call("read_output", 1, id="out1"), call("search_output", 2, id="out1", pattern="line")]
    assert [result.is_error for result in runner.run_sync(reads, run_id="first")] == [False, False]
    for run_id in ("second", ""):
        results = runner.run_sync(reads, run_id=run_id)
        assert all("No output has the id 'out1' in this run" in result.text for result in results)
        assert len(runner.tools_for_run(run_id)) == 1
    runner.close()


@pytest.mark.parametrize("count", [1, 2])
def test_calls_without_a_run_id_store_nothing(count):
    runner = Runner(report)
    results = runner.run_sync([call("report", number) for number in range(count)])
    assert all("characters omitted …]" in result.text for result in results)
    assert not runner._outputs._texts
    runner.close()


def test_own_tools_with_these_names_take_precedence():
    @toolwire.tool(name="read_output", effect="read")
    async def own(id: str) -> str:  # noqa: A002
        return "own"

    runner = Runner(report, own)
    (result,) = runner.run_sync([call("report")], run_id="r")
    assert "characters omitted …]" in result.text
    assert runner.run_sync([call("read_output", 1, id="x")], run_id="r")[0].text == "own"
    assert [tool.name for tool in runner.tools_for_run("r")] == ["report", "read_output"]
    runner.close()


def test_a_policy_applies_to_the_tools():
    runner = Runner(report, policy=Policy(checks=(deny("read_*"),)))
    runner.run_sync([call("report")], run_id="r")
    (result,) = runner.run_sync([call("read_output", 1, id="out1")], run_id="r")
    assert result_code(result) == "denied"
    runner.close()


def test_the_tools_stay_offered_when_a_retriever_chooses():
    class OnlyFirst:
        def choose(self, request, tools, offered):
            return tools[:1]

    model = ScriptedModel([says(call("report")), says("done")])
    Agent(model, [report, short], retriever=OnlyFirst()).run_sync("go")
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered == [["report"], ["report", "read_output", "search_output"]]


def test_positions_and_lengths_are_bounded():
    runner = Runner(report)
    runner.run_sync([call("report")], run_id="r")
    calls = [
        call("read_output", 1, id="out1", limit=10**9),
        call("read_output", 2, id="out1", offset=10**9),
        call("read_output", 3, id="out1", offset=-5),
        call("search_output", 4, id="out1", pattern=""),
        call("search_output", 5, id="out1", pattern="x" * 100_000),
        call("search_output", 6, id="out1", pattern="REPORT", offset=100),
        call("search_output", 7, id="out1", pattern="(a+)+$"),
    ]
    huge, beyond, negative, empty, long, many, regex = runner.run_sync(calls, run_id="r")
    runner.close()
    assert huge.is_error
    assert beyond.text == f"\n\n[characters 1,000,000,000 to {len(TEXT):,} of {len(TEXT):,}]"
    assert [result.is_error for result in (negative, empty, long)] == [True, True, True]
    assert (len(many.structured["matches"]), many.structured["more"]) == (20, True)
    assert regex.structured == {"matches": [], "more": False}


def test_the_stored_size_is_bounded_and_the_oldest_texts_are_deleted():
    outputs = StoredOutputs(100)
    assert outputs.store("r", "x" * 101) is None
    assert [outputs.store("r", letter * 40) for letter in "abc"] == ["out1", "out2", "out3"]
    assert outputs.read("r", "out1") is None
    assert outputs.read("r", "out3", 38) == "cc"
    many = StoredOutputs()
    for number in range(5000):
        many.store(f"run{number}", "x")
    assert len(many._texts) <= 256
    assert len(many._ids) <= 512


@pytest.mark.parametrize("pattern", ["zzz", "a" * 199 + "b", "A" * 200])
def test_the_work_of_a_search_is_linear(pattern):
    outputs, sizes = StoredOutputs(), (50_000, 100_000, 200_000)
    ids = {size: outputs.store("r", "a" * size) for size in sizes}
    assert_linear([(size, count_work(lambda size=size: outputs.search("r", ids[size], pattern))) for size in sizes])
