"""Structured outputs in the loop: accepted, asked for again a bounded number of times, never guessed."""

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from toolwire import Message, Request, Response, Text, Tool, ToolCall, ToolChoice
from toolwire.ir import Params, Refusal, Stop
from toolwire.ir.request import ReasoningConfig
from toolwire.run import Budget, OutputPlan, Session, StructuredOutput
from toolwire.run.session.state import AskModel, Done, GiveUp, RunTools
from toolwire.testing import says


class City(BaseModel):
    """A city."""

    name: str
    population: int


VALID = '{"name": "Oslo", "population": 7}'
REQUEST = Request("m", (Message("user", (Text("Which city?"),)),), (Tool("search", input_schema={"type": "object"}),))


def make_session(mode, *, request=REQUEST, spec=City, **options):
    plan = OutputPlan(StructuredOutput(spec).resolve(), mode, request.tools, **options)
    return Session(request, now=lambda: 0.0, output=plan)


def final(arguments, call_id="1"):
    return ToolCall(call_id, "final_answer", arguments)


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_valid_text_ends_the_run(mode):
    session = make_session(mode)
    session.add_response(says(VALID))
    step = session.next()
    assert isinstance(step, Done)
    assert session.output.read(step.response).value == City(name="Oslo", population=7)


def test_native_schema_is_the_output_format_of_the_request():
    step = make_session("native").next()
    assert (step.request.output.kind, step.request.output.name, step.request.output.strict) == (
        "json_schema",
        "City",
        True,
    )
    assert step.request.output.schema["required"] == ["name", "population"]
    assert step.request.tools == REQUEST.tools


def test_schema_in_the_prompt_extends_the_system_message():
    system = Message("system", (Text("Be brief."),))
    step = make_session("prompt", request=replace(REQUEST, messages=(system, *REQUEST.messages))).next()
    assert [message.role for message in step.request.messages] == ["system", "user"]
    assert step.request.messages[0].parts[0] == Text("Be brief.")
    assert '"population"' in step.request.messages[0].parts[1].text
    assert make_session("prompt").next().request.messages[0].role == "system"


def test_final_answer_tool_is_offered_and_a_call_is_required():
    step = make_session("tool").next()
    tool = step.request.tools[-1]
    assert (tool.name, tool.effect, tool.input_schema["required"]) == ("final_answer", "pure", ["name", "population"])
    assert tool.description.endswith("A city.")
    assert step.request.choice.mode == "required"


def test_call_is_not_required_with_a_thinking_budget():
    reasoning = ReasoningConfig("budget", budget=2048)
    assert make_session("tool", request=replace(REQUEST, reasoning=reasoning)).next().request.choice is None


def test_call_is_not_required_of_a_model_that_cannot_be_forced():
    assert make_session("tool", requires_call=False).next().request.choice is None


def test_choice_of_no_tool_leaves_the_final_answer():
    choice = make_session("tool", request=replace(REQUEST, choice=ToolChoice("none"))).next().request.choice
    assert choice == ToolChoice("tool", ("final_answer",))


def test_name_of_the_final_answer_tool_does_not_collide():
    request = replace(REQUEST, tools=(Tool("final_answer"), Tool("final_answer_2")))
    session = make_session("tool", request=request)
    assert session.next().request.tools[-1].name == "final_answer_3"
    session.add_response(says(ToolCall("1", "final_answer", {})))
    assert isinstance(session.next(), RunTools)


def test_final_answer_call_ends_the_run_and_has_a_result():
    session = make_session("tool")
    session.add_response(says(final({"name": "Oslo", "population": 7})))
    step = session.next()
    assert isinstance(step, Done)
    assert session.output.read(step.response).value == City(name="Oslo", population=7)
    *_, assistant, last = session.state.request.messages
    assert [part.call_id for part in last.parts] == [part.id for part in assistant.parts] == ["1"]
    assert session.state.calls == 0


def test_valid_json_text_is_accepted_instead_of_the_call():
    session = make_session("tool")
    session.add_response(says(VALID))
    assert isinstance(session.next(), Done)


def test_other_calls_run_before_a_final_answer_is_accepted():
    session = make_session("tool")
    search = ToolCall("2", "search", {})
    session.add_response(says(final({"name": "Oslo", "population": 7}), search, final({"name": "Bergen"}, "3")))
    step = session.next()
    assert isinstance(step, RunTools) and step.calls == (search,)
    session.add_results([search.result("found")])
    results = session.state.request.messages[-1].parts
    assert [(result.call_id, result.is_error) for result in results] == [("1", True), ("2", False), ("3", True)]
    assert "same turn" in results[0].text
    assert isinstance(session.next(), AskModel)


def test_different_final_answers_in_one_turn_are_refused():
    first, second = final({"name": "Oslo", "population": 7}), final({"name": "Rome", "population": 7}, "2")
    session = make_session("tool")
    session.add_response(says(first, second))
    assert isinstance(session.next(), AskModel)
    assert all(result.is_error for result in session.state.request.messages[-1].parts)
    session.add_response(says(first, replace(first, id="2")))
    assert isinstance(session.next(), Done)


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        ("native", says('{"name": "Oslo"}')),
        ("tool", says(final({"name": "Oslo"}))),
        ("tool", says("It is Oslo.")),
        ("prompt", says("It is Oslo.")),
        ("native", Response(stop=Stop("stop"))),
    ],
)
def test_model_is_asked_again_with_the_problems_a_bounded_number_of_times(mode, answer):
    session = make_session(mode, retries=2)
    for asked in range(3):
        assert isinstance(session.next(), AskModel), asked
        session.add_response(answer)
    step = session.next()
    assert isinstance(step, GiveUp)
    assert step.reason.startswith("no valid output after 3 attempts: /: ")
    feedback = [message for message in session.state.request.messages if message.role == "user"][1:]
    assert len(feedback) == 2
    text = feedback[0].parts[0].text
    assert text.startswith("The answer was not accepted:\n- /: ")
    assert session.state.iterations == 3
    assert all(message.parts for message in session.state.request.messages[:-1])


def test_run_continues_with_a_valid_answer_after_an_invalid_one():
    session = make_session("tool")
    session.add_response(says(final({"name": "Oslo"})))
    assert "'population' is missing" in session.next().request.messages[-1].parts[0].text
    session.add_response(says(final({"name": "Oslo", "population": 7}, "2")))
    assert isinstance(session.next(), Done)


def test_same_request_is_sampled_again_before_the_model_is_asked_again():
    session = make_session("native", retries=1, resamples=2)
    requests = []
    while isinstance(step := session.next(), AskModel):
        requests.append(step.request)
        session.add_response(says("no"))
    assert [len(request.messages) for request in requests] == [1, 1, 1, 3, 3, 3]
    assert isinstance(step, GiveUp)


@pytest.mark.parametrize("params", [Params(temperature=0), Params(seed=1)])
def test_deterministic_request_is_not_sampled_again(params):
    session = make_session("native", request=replace(REQUEST, params=params), resamples=2)
    session.add_response(says("no"))
    assert len(session.next().request.messages) == 3


def test_resampled_and_repeated_answers_count_in_the_budget():
    plan = OutputPlan(StructuredOutput(City).resolve(), "native", retries=9, resamples=9)
    session = Session(REQUEST, now=lambda: 0.0, budget=Budget(iterations=4), output=plan)
    while isinstance(session.next(), AskModel):
        session.add_response(says("no"))
    assert session.next().reason == "max iterations reached (4)"


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
def test_refusal_ends_the_run_at_once(reason):
    session = make_session("native", resamples=2)
    session.add_response(Response(parts=(Refusal("I cannot."),), stop=Stop(reason)))
    assert session.next().reason == f"the model refused ({reason}): I cannot."


def test_truncated_answer_is_never_completed():
    session = make_session("native")
    session.add_response(Response(parts=(Text('{"name": "Oslo", "population": 7'),), stop=Stop("length")))
    assert "truncated" in session.next().request.messages[-1].parts[0].text


def test_commentary_before_the_answer_is_ignored():
    session = make_session("native")
    session.add_response(says("Let me think {about} it.", VALID))
    assert isinstance(session.next(), Done)


def test_run_with_an_output_continues_in_another_process():
    session = make_session("tool")
    session.add_response(says(final({"name": "Oslo"})))
    session.add_response(says(final({}, "2"), ToolCall("3", "search", {})))
    plan = OutputPlan(StructuredOutput(City).resolve(), "tool", REQUEST.tools)
    loaded = Session.load(session.dump(), now=lambda: 0.0, output=plan)
    assert loaded.next() == session.next()
    loaded.add_results([ToolCall("3", "search", {}).result("found")])
    assert [result.call_id for result in loaded.state.request.messages[-1].parts] == ["2", "3"]
    loaded.add_response(says(final({"name": "Rome"}, "4")))
    assert loaded.state.asked_again == 2
    loaded.add_response(says(final({"name": "Rome"}, "5")))
    assert isinstance(loaded.next(), GiveUp)
