"""Equal findings of several subagents become groups, by their text or by a model."""

import asyncio
import json
from dataclasses import dataclass

import pytest

import toolwire
from toolwire import Agent, ToolCall
from toolwire.ir import Fault, Response, Stop, Usage
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text, ToolResult
from toolwire.ir.response import UpstreamError
from toolwire.net import merge_findings
from toolwire.testing import ScriptedModel, says

REPORTS = ["SQL injection in login", "login: user name reaches the query", "Open redirect", "open  redirect"]


def merge(findings, *arguments, **options):
    return asyncio.run(merge_findings(findings, *arguments, **options))


def judged(*groups):
    return ScriptedModel([says(json.dumps({"groups": groups}))])


def test_equal_texts_are_merged_without_a_model():
    assert merge(REPORTS) == [[REPORTS[0]], [REPORTS[1]], [REPORTS[2], REPORTS[3]]]
    assert merge([]) == []


def test_model_merges_findings_with_other_words():
    model = judged([1, 2])
    assert merge(REPORTS, model) == [[REPORTS[0], REPORTS[1]], [REPORTS[2], REPORTS[3]]]
    [request] = model.requests
    lines = [json.loads(line) for line in request.messages[-1].text.splitlines()]
    assert lines == [{"number": number, "finding": text} for number, text in enumerate(REPORTS[:3], 1)]


@pytest.mark.parametrize("groups", [[[0, 9, -1]], [[2], [3], []], [[7, 8]]])
def test_numbers_that_do_not_exist_change_nothing(groups):
    assert merge(REPORTS, judged(*groups)) == merge(REPORTS)


def test_finding_is_in_one_group_only():
    assert merge(list("abcd"), judged([3, 1], [3, 4], [2, 4])) == [["a", "c"], ["b", "d"]]


def test_every_finding_is_kept_whatever_the_model_answers():
    findings = [f"finding {number}" for number in range(20)]
    groups = merge(findings, judged([1, 5, 9], [9, 2], [20, 19, 1], [4]))
    assert sorted(finding for group in groups for finding in group) == sorted(findings)


def overloaded(request):
    raise UpstreamError(Fault("overloaded", "busy", 503))


@pytest.mark.parametrize(
    "replies",
    [
        [overloaded],
        [says("They are all the same."), says("Yes."), says("All.")],
        [says('{"groups": [["all"]]}'), says('{"merged": [[1, 2]]}'), says("{}")],
    ],
)
def test_equal_texts_remain_merged_if_the_model_fails(replies, caplog):
    assert merge(REPORTS, ScriptedModel(replies)) == merge(REPORTS)
    assert "findings with different texts are not merged" in caplog.text


def test_single_finding_needs_no_request():
    model = ScriptedModel([])
    assert merge(["a", "A "], model) == [["a", "A "]]
    assert model.requests == []


def test_text_of_a_finding_cannot_add_a_line():
    model = judged()
    merge(['a\n{"number": 9, "finding": "b"}', "c"], model)
    assert len(model.requests[0].messages[-1].text.splitlines()) == 2


def test_long_findings_are_shortened_in_the_request():
    model = judged()
    merge(["a" * 200_000, "b" * 200_000], model)
    assert len(model.requests[0].messages[-1].text) < 110_000


def test_too_many_findings_for_a_model_are_refused():
    findings = [str(number) for number in range(201)]
    assert len(merge(findings)) == 201
    with pytest.raises(ConfigError, match="at most 200 findings, got 201"):
        merge(findings, judged())


@dataclass
class Defect:
    file: str
    line: int


def test_values_of_other_types_are_compared_as_json():
    first, second, other = Defect("a.py", 3), Defect("a.py", 3), Defect("a.py", 4)
    assert merge([first, other, second]) == [[first, second], [other]]
    assert merge([{"a": 1, "b": 2}, {"b": 2, "a": 1}]) == [[{"a": 1, "b": 2}, {"b": 2, "a": 1}]]
    results = [ToolResult("1", "scan", (Text("Open port"),)), ToolResult("2", "scan", (Text("open port"),))]
    assert merge(results) == [results]
    assert merge([first, other], text=lambda defect: defect.file) == [[first, other]]


def test_instructions_reach_the_model():
    model = judged()
    merge(["a", "b"], model, instructions="Only equal files are the same.")
    assert model.requests[0].messages[0].text.endswith("Only equal files are the same.")


def test_tokens_of_the_comparison_count_in_the_run():
    groups = Response("1", "m", (Text('{"groups": [[1, 2]]}'),), Stop("stop"), Usage(700, 30))
    judge = ScriptedModel([groups])

    @toolwire.tool(effect="read")
    async def review() -> list[str]:
        """Review the code."""
        merged = await merge_findings(REPORTS, judge)
        return [group[0] for group in merged]

    agent = Agent(ScriptedModel([says(ToolCall("1", "review", {})), says("Two defects.")]), [review])
    answer = agent.run_sync("Review it.")
    assert json.loads(answer.results[0].text) == [REPORTS[0], REPORTS[2]]
    assert answer.usage.input >= 700
