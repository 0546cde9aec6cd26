"""Slips of models: each is read right from its policy on, or refused; never read as something else."""

import json

import pytest

from places import TESTS
from tables import every_case
from toolwire.ir.text import dumps
from toolwire.schema import repair_arguments
from toolwire.schema.repair.arguments import POLICIES
from toolwire.schema.repair.coercion import RepairStep

VECTORS = json.loads((TESTS / "vectors/repair/slips.json").read_text(encoding="utf-8"))
SCHEMAS, SLIPS = VECTORS["schemas"], VECTORS["slips"]
REPAIRED = [row for row in SLIPS if row["policy"] in ("safe", "aggressive")]


def repair(row, policy, **options):
    return repair_arguments(row["text"], SCHEMAS[row["schema"]], policy=policy, names=row.get("names", ()), **options)


@pytest.mark.finding("R", "TX1", "TX2", "TX8")
@every_case("policy", POLICIES)
@every_case("row", SLIPS, ids=lambda row: row["slip"])
def test_slip_is_read_right_from_its_policy_on_or_refused(row, policy):
    found = repair(row, policy)
    enough = row["policy"]
    if enough is None or POLICIES.index(policy) < POLICIES.index(enough):
        assert found.arguments is None, f"read as {found.arguments}"
        assert found.problems
    else:
        assert dumps(found.arguments) == dumps(row["right"])
        assert [step.name for step in found.steps] == row["steps"]


@pytest.mark.finding("R")
@every_case("row", REPAIRED, ids=lambda row: row["slip"])
def test_slip_names_its_repairs(row):
    assert row["steps"]
    assert all(RepairStep(name).lossless for name in row["steps"]) == (row["policy"] == "safe")


@pytest.mark.finding("R")
def test_most_slips_need_no_guess():
    slips = {row["slip"] for row in SLIPS}
    assert len(slips) == len(SLIPS) > 170
    assert sum(row["policy"] == "safe" for row in REPAIRED) > 0.6 * len(REPAIRED)


CALLS_OF_ANOTHER_TOOL = (
    '{"name": "get_time", "arguments": {"city": "Paris"}}',
    '{"name": "get_time", "arguments": "{}"}',
    '[{"type": "function", "function": {"name": "get_time", "arguments": {}}}]',
    '{"tool": "get_time", "tool_input": {"city": "Paris"}, "thought": "hm"}',
)
NOT_ANOTHER_TOOL = ('{"name": "functions.get_weather", "arguments": {"days": 3}}', '{"name": "get_time"}')


@pytest.mark.finding("R")
@pytest.mark.parametrize("policy", ("safe", "aggressive"))
@pytest.mark.parametrize("text", CALLS_OF_ANOTHER_TOOL)
def test_call_of_another_tool_is_named(text, policy):
    found = repair_arguments(text, SCHEMAS["weather"], policy=policy, names=["get_weather"])
    assert found.arguments is None
    (problem,) = found.problems
    assert problem.message == "a call of 'get_time', which is another tool; write only the arguments of this tool"


@pytest.mark.finding("R")
@pytest.mark.parametrize("text", NOT_ANOTHER_TOOL)
def test_other_arguments_are_not_called_another_tool(text):
    problems = repair_arguments(text, SCHEMAS["weather"], names=["get_weather"]).problems
    assert problems and not any("another tool" in problem.message for problem in problems)


@pytest.mark.finding("R")
def test_number_or_text_is_an_ambiguity_that_names_both():
    (problem,) = repair_arguments('{"ref": +33}', SCHEMAS["reference"]).problems
    assert (problem.path, problem.keyword) == ("/ref", "ambiguous")
    assert problem.message == 'ambiguous: +33 may be a number or text; can be read as {"ref":33} or {"ref":"+33"}'
    assert repair_arguments('{"ref": -0}', SCHEMAS["reference"]).arguments == {"ref": 0}  # valid JSON
