"""The tools of Toolformer run in bounded time and refuse everything else."""

import threading

import pytest

from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.learn import calculator_tool, calendar_tool, convert_tool, qa_tool, search_tool, translate_tool
from toolwire.learn.toolformer.candidates import CallExecutor
from toolwire.learn.toolformer.mining_tool import evaluate, format_number
from toolwire.run.calls.context import ToolError
from toolwire.run.tools.function_tool import tool
from waiting import SAFETY


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("231 * 17", "3927"),
        ("675647 - 372676", "302971"),
        ("400 / 1400", "0.29"),
        ("-(2 + 3) * 4", "-20"),
        ("1,200 / 8", "150"),
        ("007 + 1", "8"),
        ("0.5 - 0.5", "0"),
        ("0 - 0.001", "0"),
    ],
)
def test_expression_is_evaluated(expression, result):
    assert format_number(evaluate(expression)) == result


@every_case(
    "expression",
    [
        "",
        "1 +",
        "2 ** 9",
        "9 // 2",
        "1 / 0",
        "__import__('os')",
        "1(2)",
        "999999999999999 * 9",
        "9" * 199,
        "1" + "+1" * 200,
        "(" * 150 + "1" + ")" * 49,
        "1e9",
    ],
)
def test_other_expressions_are_refused(expression):
    with pytest.raises(ToolError):
        evaluate(expression)


@pytest.fixture
def executor():
    tools = [
        calculator_tool(),
        calendar_tool("2025-07-04"),
        convert_tool(),
        search_tool(["Pittsburgh lies in Pennsylvania.", "Boston lies in Massachusetts."]),
        qa_tool({"Who founded the company?": "Ada", "Where is the harbour?": "in the north"}),
        translate_tool({"casa": "house", "branca": "white", "casa branca": "white house"}),
    ]
    with CallExecutor(tools) as opened:
        yield opened


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("Calculator(8 - 2)", "6"),
        ("Calendar()", "Today is Friday, July 4, 2025."),
        ("Convert(26.2 miles to kilometers)", "42.16 kilometers"),
        ("Convert(212 fahrenheit to celsius)", "100 celsius"),
        ("Convert(72 km/h to m/s)", "20 m/s"),
        ('Search("where is Boston")', "Boston lies in Massachusetts."),
        ('QA("Who founded the company?")', "Ada"),
        ('Translate("casa branca")', "white house"),
        ('Translate("branca casa")', "white house"),
    ],
)
def test_calls_run_through_the_runtime(executor, call, result):
    [executed] = executor.execute([(call, None)])
    assert (executed.result, executed.reason) == (result, "")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("Calculator(1 / 0)", "division by zero"),
        ("Calculator(1 +)", "the expression is not valid"),
        ("Calculator(1", "not a call"),
        ("Unknown(1)", "not a call"),
        ("Calculator()", "invalid arguments"),
        ("Convert(3 miles to liters)", "cannot convert miles to liters"),
        ("Convert(many miles)", "the request must be an amount and two units, such as 3 miles to kilometers"),
        ('QA("Where is the company now?")', "no answer is known"),
        ('Translate("casa azul")', "'azul' is not in the dictionary"),
        ('Search("zzz")', "nothing was found"),
    ],
)
def test_failed_calls_have_a_reason(executor, call, reason):
    [executed] = executor.execute([(call, None)])
    assert (executed.result, executed.reason) == (None, reason)


def test_spaces_of_dictionary_entries_do_not_matter():
    with CallExecutor([translate_tool({" casa  branca ": "white house"})]) as executor:
        [found] = executor.execute([('Translate("casa branca")', None)])
    assert found.result == "white house"


class CountedText(str):
    """A text that counts comparisons with other dates."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountedText.compared += 1
        return str.__eq__(self, other)


def test_calls_of_many_dates_are_grouped_once():
    dates = [CountedText(f"date {number}") for number in range(200)]
    with CallExecutor([translate_tool({})]) as executor:
        executor.execute([("not a call", date) for date in dates])
    assert CountedText.compared < 2_000  # not one comparison for each pair of dates


def test_calendar_answers_with_the_date_of_the_text(executor):
    found = executor.execute([("Calendar()", "2024-02-29"), ("Calendar()", None)])
    assert [one.result for one in found] == ["Today is Thursday, February 29, 2024.", "Today is Friday, July 4, 2025."]


def test_slow_tool_is_stopped_and_an_identical_call_runs_once():
    from toolwire.learn import MiningTool

    ran, may_end = [], threading.Event()

    @tool(name="Quick", effect="pure", timeout=SAFETY)
    def quick(number: int) -> str:
        """Return at once."""
        ran.append(number)
        return "done"

    @tool(name="Wait", effect="pure", timeout=0.2)
    def wait(number: int) -> str:
        """Wait."""
        may_end.wait(SAFETY)
        return "done"

    with CallExecutor([MiningTool(quick, "", (), "[0-9]"), MiningTool(wait, "", (), "[0-9]")]) as opened:
        found = opened.execute([("Quick(0)", None), ("Wait(1)", None), ("Quick(0)", None)])
        may_end.set()
    assert [(one.result, one.reason) for one in found] == [("done", ""), (None, "timeout"), ("done", "")]
    assert ran == [0]


def test_wrong_date_is_refused():
    with pytest.raises(ConfigError, match="'July 4' is not a date"):
        calendar_tool("July 4")


def test_examples_of_every_prompt_are_calls_of_their_tool():
    from toolwire.learn.toolformer.corpus import parse_call

    for mining_tool in (calculator_tool(), calendar_tool(), convert_tool(), search_tool(["a"]), qa_tool({"a": "b"})):
        for example in mining_tool.examples:
            call = example.partition("[")[2].partition("]")[0]
            assert parse_call(call, [mining_tool.tool]) is not None, call
            assert f"Input: {example.replace(f'[{call}] ', '')}\nOutput: {example}\n" in mining_tool.prompt("x")


@pytest.mark.parametrize("effect", ["write", "idempotent"])
def test_tool_with_side_effects_is_not_mined(effect):
    from toolwire.learn import MiningTool

    @tool(name="Delete", effect=effect)
    def delete(path: str) -> str:
        """Delete a file."""
        raise AssertionError("a sampled call ran")

    with pytest.raises(ConfigError, match=f"'Delete' has side effects .effect '{effect}'"):
        CallExecutor([MiningTool(delete, "", (), "[a-z]+")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"filter": "rank", "share": 0.0}, "share of kept candidates"),
        ({"filter": "rank", "share": float("nan")}, "share of kept candidates"),
        ({"threshold": float("nan")}, "threshold must be a number"),
        ({"call_probability": 1.5}, "call_probability must be from 0 to 1"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": float("inf")}, "temperature must be positive"),
    ],
)
def test_settings_without_meaning_are_refused_before_the_model_is_used(settings, message):
    from toolwire.learn import MiningSettings, mine_toolformer_data

    with pytest.raises(ConfigError, match=message):
        mine_toolformer_data(None, ["8 - 2 = 6"], calculator_tool(), settings=MiningSettings(**settings))
