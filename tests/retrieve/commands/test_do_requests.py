"""Must-hold 5: 60 requests over more than 30 common commands, with a scripted model."""

import asyncio

import pytest

from do_fixtures import REQUESTS, load_fixture_commands, make_arguments, make_candidates
from toolwire import ToolCall
from toolwire.cli.do.candidates import NOTHING_FITS
from toolwire.cli.do.command import run_request
from toolwire.testing import ScriptedModel, says

FITTING = [one for one in REQUESTS if one["command"] is not None]
UNFIT = [one for one in REQUESTS if one["command"] is None]


@pytest.fixture(scope="module")
def commands():
    return load_fixture_commands()


@pytest.fixture(scope="module")
def candidates(commands):
    return make_candidates(commands)


def tool_name(command):
    return command.replace(" ", "_")


def run(scripted, request, candidates, **given):
    return asyncio.run(run_request(scripted, request, candidates, make_arguments(**given)))


def test_there_are_60_requests_over_30_commands():
    assert len(REQUESTS) == 60
    assert len({one["command"] for one in FITTING}) >= 30
    assert len(UNFIT) >= 5


@pytest.mark.parametrize("one", FITTING, ids=lambda one: one["request"])
def test_request_offers_the_right_command_and_its_call_becomes_the_right_vector(one, candidates):
    model = ScriptedModel([says(ToolCall("1", tool_name(one["command"]), one["arguments"]))])
    outcome = run(model, one["request"], candidates, dry_run=True)
    offered = {tool.name: tool for tool in model.requests[0].tools}
    assert tool_name(one["command"]) in offered
    assert set(one["arguments"]) <= set(offered[tool_name(one["command"])].input_schema["properties"])
    assert outcome.kind == "shown", outcome.message
    assert list(outcome.vector) == one["vector"]
    assert one["effect"] in outcome.effect["kinds"]
    is_asked = one["vector"][0] in ("tar", "git") or "--follow" in one["vector"]
    assert outcome.effect["read_only"] == (one["effect"] == "read" and not is_asked)


def test_small_model_gets_few_commands_with_values_of_the_request(candidates):
    """The grammar of a small model admits no value that the request does not contain."""
    right = 0
    for one in FITTING:
        tools = candidates.search(one["request"], 6, is_small=True).tools
        assert 1 <= len(tools) <= 3
        right += tools[0].name == tool_name(one["command"])
        for tool in tools:
            for name, schema in tool.input_schema["properties"].items():
                values = schema.get("enum") or schema.get("items", {}).get("enum") or ()
                assert schema["type"] == "boolean" or values or name in tool.input_schema["required"]
                assert all(str(value) in one["request"] for value in values)
    assert right >= 40


@pytest.mark.parametrize("one", UNFIT, ids=lambda one: one["request"])
def test_nothing_fits_is_an_answer(one, candidates):
    model = ScriptedModel([says(ToolCall("1", NOTHING_FITS, {"reason": "no command does this"}))])
    outcome = run(model, one["request"], candidates, yes=True)
    assert outcome.kind == "nothing_fits"
    assert outcome.message
    assert not outcome.vector


@pytest.mark.parametrize("one", UNFIT, ids=lambda one: one["request"])
def test_small_model_is_not_asked_about_a_request_that_no_command_mentions(one, candidates):
    model = ScriptedModel([])
    outcome = run(model, one["request"], candidates, model="local/smollm2", yes=True)
    assert outcome.kind == "nothing_fits"
    assert model.requests == []


def test_text_of_the_model_is_the_reason(candidates):
    model = ScriptedModel(["I cannot do that with one command.\x1b[31m"])
    outcome = run(model, "list all my running containers", candidates)
    assert (outcome.kind, outcome.message) == ("nothing_fits", "I cannot do that with one command.\\x1b[31m")


def test_call_that_does_not_fit_is_returned_to_the_model_once(candidates):
    wrong = says(ToolCall("1", "docker_ps", {"last": "five"}))
    right = says(ToolCall("2", "docker_ps", {"last": 5}))
    model = ScriptedModel([wrong, right])
    outcome = run(model, "show the last 5 containers", candidates, dry_run=True)
    assert list(outcome.vector) == ["docker", "ps", "--last=5"]
    assert "expected integer" in model.requests[1].messages[-1].parts[0].parts[0].text


def test_second_call_that_does_not_fit_is_refused(candidates):
    model = ScriptedModel([says(ToolCall(str(number), "docker_ps", {"last": "five"})) for number in range(2)])
    outcome = run(model, "show the last 5 containers", candidates, yes=True)
    assert outcome.kind == "refused"
    assert "expected integer" in outcome.message
