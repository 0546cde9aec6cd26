"""The auxiliary model of an agent: repaired calls, duplicates, summaries, their limits and their usage."""

import json
import re
import time

import pytest

from toolwire import Agent, ToolCall, tool
from toolwire.ir import ConfigError, Fault, Response, Stop, Text, ToolResult, UpstreamError, Usage
from toolwire.net import Auxiliary
from toolwire.run import Budget, Compaction, Policy, Session, Suspend, deny
from toolwire.run.values.results import NOTES_KEY, result_code
from toolwire.testing import ScriptedModel, says

RAN: list[str] = []
LONG = "\n".join(f"line {number} of the report" for number in range(1000))


@pytest.fixture(autouse=True)
def clean():
    RAN.clear()


@tool(effect="read")
def weather(city: str, days: int) -> str:
    """Get the weather."""
    RAN.append(f"weather {city} {days}")
    return f"sun in {city}"


@tool
def book(city: str, days: int) -> str:
    """Book a trip."""
    RAN.append(f"book {city} {days}")
    return f"booked {city}"


@tool(effect="read")
def report(version: int) -> str:
    """Get a report."""
    return LONG.replace("line 500 ", f"line 500 (version {version}) ")


def call(name: str, number: int = 1, **arguments) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments)


def broken(name: str) -> ToolCall:
    return ToolCall("c1", name, None, '{"city": Paris, "days": two}', "invalid")


def run(agent, prompt, streamed):
    return list(agent.stream_sync(prompt))[-1] if streamed else agent.run_sync(prompt)


def notes(result: ToolResult) -> dict:
    return result.extra.get(NOTES_KEY, {})


both_ways = pytest.mark.parametrize("streamed", [False, True])


@pytest.mark.finding("X5")
@both_ways
@pytest.mark.parametrize("made", [broken("weather"), call("weather", city="Paris", days={"count": "two"})])
def test_malformed_call_is_repaired_and_run(streamed, made):
    model = ScriptedModel([says(made), says("Sun.")])
    small = ScriptedModel([says(call("weather", 9, city="Paris", days=2))])
    answer = run(Agent(model, [weather], auxiliary=small), "Weather?", streamed)
    assert RAN == ["weather Paris 2"]
    (result,) = answer.results
    assert result.call_id == "c1"
    assert result.text == ('[The arguments were invalid and were repaired to {"city":"Paris","days":2}]\nsun in Paris')
    (request,) = small.requests
    assert [one.name for one in request.tools] == ["weather"]
    assert (request.choice.mode, request.choice.names) == ("tool", ("weather",))
    assert "Weather?" not in str(request), "the conversation is not sent"


@pytest.mark.finding("X5")
@both_ways
def test_repaired_call_with_effects_is_only_suggested(streamed):
    model = ScriptedModel([says(broken("book")), says(call("book", 2, city="Paris", days=2)), says("Booked.")])
    small = ScriptedModel([says(call("book", 9, city="Paris", days=2))])
    answer = run(Agent(model, [book], auxiliary=small), "Book.", streamed)
    first, second = answer.results
    assert result_code(first) == "invalid_arguments"
    assert first.text.endswith('make the call with them yourself: {"city":"Paris","days":2}')
    assert notes(first)["suggested_arguments"] == {"city": "Paris", "days": 2}
    assert (second.text, RAN) == ("booked Paris", ["book Paris 2"]), "only the call of the model itself was run"


@pytest.mark.finding("X5")
def test_repaired_call_passes_all_gates():
    model = ScriptedModel([says(broken("weather")), says("No.")])
    small = ScriptedModel([says(call("weather", 9, city="Paris", days=2))])
    answer = Agent(model, [weather], auxiliary=small, policy=Policy((deny("weather"),))).run_sync("Weather?")
    assert RAN == []
    assert result_code(answer.results[0]) == "denied"


@pytest.mark.finding("X5")
def test_repaired_call_that_waits_for_approval_runs_once_with_the_approved_arguments():
    @tool(effect="read", approve=True)
    def secret(city: str, days: int) -> str:
        """Read a secret."""
        RAN.append(f"secret {city} {days}")
        return "42"

    small = ScriptedModel([says(call("secret", 9, city="Paris", days=2))] * 2)
    options = {"auxiliary": small, "approve": lambda *_: Suspend()}
    waiting = Agent(ScriptedModel([says(broken("secret"))]), [secret], **options).run_sync("Secret?")
    assert [one.arguments for one in waiting.pending] == [{"city": "Paris", "days": 2}]
    assert RAN == []
    session = Session.load(waiting.state, now=time.time)
    session.approve("c1")
    answer = Agent(ScriptedModel([says("42.")]), [secret], **options).run_sync(session)
    assert (answer.output, RAN) == ("42.", ["secret Paris 2"])


@pytest.mark.parametrize(
    "reply",
    [
        says("I cannot."),
        says(call("weather", 9, town="Paris")),
        says(call("book", 9, city="Paris", days=2)),
        says(ToolCall("c9", "weather", {"city": "Paris"}, '{"city"', "truncated")),
    ],
)
def test_useless_repair_leaves_the_refusal(reply):
    model = ScriptedModel([says(broken("weather")), says("No.")])
    answer = Agent(model, [weather, book], auxiliary=ScriptedModel([reply])).run_sync("Weather?")
    assert RAN == []
    assert result_code(answer.results[0]) == "invalid_arguments"
    assert "suggested_arguments" not in notes(answer.results[0])


def test_truncated_call_is_not_repaired():
    small = ScriptedModel([])
    model = ScriptedModel([says(ToolCall("c1", "weather", None, '{"city": "Par', "truncated")), says("No.")])
    answer = Agent(model, [weather], auxiliary=small).run_sync("Weather?")
    assert (result_code(answer.results[0]), small.requests, RAN) == ("truncated", [], [])


@both_ways
def test_long_result_is_summarised_and_stays_readable(streamed):
    model = ScriptedModel([says(call("report", version=1)), says("Fine.")])
    small = ScriptedModel([says("1,000 lines about a report.")])
    agent = Agent(model, [report], auxiliary=Auxiliary(small, summarise_above=5000, max_input=2000))
    answer = run(agent, "Report?", streamed)
    (result,) = answer.results
    size = len(report(1))
    assert result.text == (
        f"[Summary of {size:,} characters of output, written by another model; it may be incomplete; "
        'read them with read_output(id="out1", offset=0) or find text with search_output]\n'
        "1,000 lines about a report."
    )
    assert notes(result)["output"] == "out1"
    assert [tool.name for tool in model.requests[1].tools] == ["report", "read_output", "search_output"]
    read = ToolCall("r", "read_output", {"id": "out1", "offset": 10, "limit": 20})
    (part,) = agent.runner.run_sync([read], run_id=answer.run_id)
    assert part.text.startswith(report(1)[10:30])
    assert len(str(small.requests[0].messages[1].parts[0].text)) < 2200
    assert model.requests[1].messages[-1].parts[0].text == result.text


@pytest.mark.parametrize("reply", [says(""), says("x" * 100_000)], ids=["empty", "too long"])
def test_summary_is_limited_and_never_longer_than_the_result(reply):
    model = ScriptedModel([says(call("report", version=1)), says("Fine.")])
    auxiliary = Auxiliary(ScriptedModel([reply]), summarise_above=5000)
    answer = Agent(model, [report], auxiliary=auxiliary).run_sync("Report?")
    text = answer.results[0].text
    assert len(text) == len(report(1)) or (text.startswith("[Summary of") and 4000 < len(text) < 4200)


def test_repeated_result_stays_readable_if_a_compaction_may_remove_the_first_one():
    script = [says(call("report", 1, version=1)), says(call("report", 2, version=1))]
    reading = lambda request: says(
        ToolCall("c3", "read_output", {"id": re.search(r'id="([^"]+)"', request.messages[-1].parts[0].text)[1]})
    )
    model = ScriptedModel([*script, reading, says("Done.")])
    settings = Auxiliary(ScriptedModel([]), summarise_above=None)
    agent = Agent(model, [report], auxiliary=settings, compaction=Compaction(max_tokens=100_000))
    _, second, third = agent.run_sync("Reports?").results
    assert second.text.startswith('[The same as the earlier result of report({"version":1})]')
    assert third.text.startswith(report(1)[:8000])


@both_ways
def test_repeated_result_is_replaced_by_a_reference(streamed):
    versions = [(1, 1), (2, 1), (3, 2)]
    script = [says(call("report", number, version=version)) for number, version in versions]
    model, small = ScriptedModel([*script, says("Done.")]), ScriptedModel([])
    answer = run(Agent(model, [report], auxiliary=Auxiliary(small, summarise_above=None)), "Reports?", streamed)
    first, second, third = answer.results
    assert first.text == report(1)
    assert second.text == '[The same as the earlier result of report({"version":1})]'
    assert notes(second)["duplicate_of"] == "c1"
    assert third.text == (
        '[1000 lines. The first 500 and the last 499 are those of the earlier result of report({"version":1}). '
        "The lines between them:]\nline 500 (version 2) of the report"
    )
    assert small.requests == []


def test_usage_and_number_of_requests_are_limited_and_counted():
    def answer_with(usage):
        return Response(parts=(Text("Short."),), stop=Stop("stop"), usage=usage)

    script = [says(call("report", number, version=number)) for number in range(5)]
    small = ScriptedModel([answer_with(Usage(100, 10))] * 5)
    auxiliary = Auxiliary(small, summarise_above=5000, deduplicate=False, max_requests=2)
    agent = Agent(
        ScriptedModel([*script, answer_with(Usage(7, 1))]), [report], auxiliary=auxiliary, price=lambda one: 1.0
    )
    answer = agent.run_sync("Reports?")
    assert len(small.requests) == 2
    assert (answer.auxiliary_usage.input, answer.auxiliary_usage.output) == (200, 20)
    assert answer.usage.input >= 207
    assert answer.cost == 8.0, "six answers and two summaries"


def test_exhausted_budget_stops_auxiliary_requests():
    small = ScriptedModel([Response(parts=(Text("Short."),), stop=Stop("stop"), usage=Usage(10_000, 10))] * 9)
    script = [says(*[call("report", number, version=number) for number in range(4)]), says("Done.")]
    auxiliary = Auxiliary(small, summarise_above=5000, deduplicate=False)
    answer = Agent(ScriptedModel(script), [report], auxiliary=auxiliary, budget=Budget(tokens=15_000)).run_sync("Go.")
    assert len(small.requests) == 2
    assert "max tokens" in answer.reason


@pytest.mark.parametrize("error", [UpstreamError(Fault("overloaded", "busy", 529)), KeyError("choices")], ids=repr)
def test_failing_auxiliary_model_does_not_end_the_run(error):
    class Failing:
        async def ask(self, request):
            raise error

        async def stream(self, request):
            raise AssertionError
            yield

    model = ScriptedModel([says(call("report", version=1)), says(broken("weather")), says("Fine.")])
    auxiliary = Auxiliary(Failing(), summarise_above=5000)
    answer = Agent(model, [report, weather], auxiliary=auxiliary).run_sync("Report?")
    assert answer.output == "Fine."
    assert answer.results[0].text == report(1)


@both_ways
def test_replaced_turns_are_summarised(streamed):
    small = ScriptedModel([says("It read reports 0 to 8.")])
    model = ScriptedModel(
        [*[says(call("weather", number, city=f"C{number}", days=1)) for number in range(12)], says("Done.")]
    )
    agent = Agent(
        model,
        [weather],
        auxiliary=Auxiliary(small, max_requests=1),
        compaction=Compaction(max_messages=20, keep_last=2, summarise=True),
        budget=Budget(iterations=20),
    )
    answer = run(agent, "Go on.", streamed)
    assert answer.output == "Done."
    marker = next(message for message in model.requests[-1].messages if "replaced" in message.extra.get(NOTES_KEY, {}))
    assert marker.parts[0].text.endswith("not an instruction]\nIt read reports 0 to 8.")
    asked = small.requests[0].messages[1].parts[0].text
    assert 'calls weather({"city":"C0","days":1})' in asked
    assert "result of weather: sun in C0" in asked
    assert json.dumps(asked)


def test_summaries_need_an_auxiliary_model():
    with pytest.raises(ConfigError, match="summaries need an auxiliary model"):
        Agent(ScriptedModel([]), compaction=Compaction(max_tokens=100, summarise=True))
    with pytest.raises(ConfigError, match="max_requests must be at least 1, got 0"):
        Auxiliary(ScriptedModel([]), max_requests=0)
