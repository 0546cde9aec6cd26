"""The prompt in which the local model chooses a call. Its adapter is trained on this text."""

import pytest

from toolwire import Message, Request, Text, Tool, ToolChoice
from toolwire.ir.request import Params
from toolwire.ir.text import dumps
from toolwire.local.plan import MAX_TOOLS, declare, plan_call, write_call
from toolwire.run.tools.refusal import NOTHING, NOTHING_FITS, RANKED, ranked

WEATHER = Tool(
    "get_weather",
    "Get the weather of a city. It knows the next seven days.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "name of the city"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "array", "items": {"type": "integer"}},
            "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        },
        "required": ["city"],
    },
)


def ask(text, *tools, **fields):
    return Request(messages=(Message("user", (Text(text),)),), tools=tools, **fields)


def system_prompt(plan):
    return plan.body["messages"][0]["content"]


def grammar(plan):
    """Return the grammar of the name, which has all functions that the model may call."""
    return plan.name_body(plan.functions)["grammar"]


def test_functions_are_declared_in_one_line_each():
    assert declare([WEATHER, NOTHING]) == (
        "Functions:\n"
        "- get_weather(city: string (name of the city), unit?: celsius|fahrenheit, days?: integer[], note?: string): "
        "Get the weather of a city. It knows the next seven days.\n"
        "- nothing_fits(): None of these functions does what the user asks for.\n"
        "Answer with one call as JSON."
    )


def test_more_functions_have_shorter_descriptions():
    long = Tool("long", "One sentence of thirty letters. " * 20)
    lengths = [len(declare([long, *[Tool(f"other{n}") for n in range(more)]]).split("\n")[1]) for more in (0, 3)]
    assert lengths[0] > lengths[1] > 100


def test_call_is_written_as_the_grammar_allows_it():
    assert write_call("get_weather", {"city": "Øya"}) == '{"name":"get_weather","arguments":{"city":"Øya"}}'


def test_model_may_refuse_unless_a_call_is_required():
    free = plan_call(ask("How warm is it?", WEATHER))
    assert f"- {NOTHING_FITS}()" in system_prompt(free)
    assert NOTHING_FITS in grammar(free)
    forced = plan_call(ask("How warm is it?", WEATHER, choice=ToolChoice("required")))
    assert NOTHING_FITS not in system_prompt(forced) + grammar(forced)


def test_client_with_its_own_refusal_has_it_once():
    plan = plan_call(ask("How warm is it?", WEATHER, NOTHING))
    assert system_prompt(plan).count(NOTHING_FITS) == 1


def test_nearest_functions_of_many_are_offered_best_first():
    others = [Tool(f"tool_{number}", "Something else.") for number in range(20)]
    plan = plan_call(ask("How warm is the city of Oslo, the weather I mean?", *others, WEATHER))
    lines = system_prompt(plan).split("\n")
    assert lines[1].startswith("- get_weather(")
    assert len(lines) == 1 + MAX_TOOLS + 2
    dropped = [loss for loss in plan.losses if loss.concept == "function"]
    assert len(dropped) == 21 - MAX_TOOLS
    assert "tool_19" not in grammar(plan)


def test_system_prompt_of_the_request_precedes_the_functions():
    request = Request(
        messages=(Message("system", (Text("Be kind."),)), Message("user", (Text("Weather in Oslo?"),))),
        tools=(WEATHER,),
    )
    assert system_prompt(plan_call(request)).startswith("Be kind.\n\nFunctions:\n")


@pytest.mark.parametrize("names", [("get_weather",), ("get_weather", "stop")])
def test_choice_of_named_functions_keeps_them(names):
    others = [Tool(f"tool_{number}", "Something else.") for number in range(9)]
    request = ask("Stop.", *others, WEATHER, Tool("stop"), choice=ToolChoice("allowed", names, required=True))
    plan = plan_call(request)
    said = system_prompt(plan) + grammar(plan)
    assert all(said.count(name) == 2 for name in names)
    assert "tool_1" not in said


def test_call_is_constrained_to_the_chosen_function():
    plan = plan_call(ask("Stop the music in Oslo.", WEATHER, Tool("stop")))
    assert plan.functions == ("stop", "get_weather", NOTHING_FITS)  # the best first
    written = plan.call_body("stop")["grammar"]
    assert '"stop"' in written and "get_weather" not in written and NOTHING_FITS not in written


def test_functions_of_one_name_are_chosen_once():
    twice = (WEATHER, Tool("get_weather", "Another one."), Tool("stop"))
    plan = plan_call(ask("Weather in Oslo?", *twice, choice=ToolChoice("required")))
    assert plan.functions == ("get_weather", "stop")
    assert "Oslo" in plan.call_body("get_weather")["grammar"]


def test_choice_ignores_parameters_of_the_client():
    params = Params(max_tokens=7, temperature=1.5, seed=3, stop=("x",))
    bodies = [
        plan.name_body(plan.functions)
        for plan in (plan_call(ask("Weather?", WEATHER, params=given)) for given in (params, Params()))
    ]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("name", ['say "hi"', "new\nline", "back\\slash", "}\n{", "日本", "%json"])
def test_any_name_is_a_word_of_the_grammar(name):
    plan = plan_call(ask("Hello.", Tool(name), Tool("stop")))
    assert dumps(dumps(name)[1:]) in grammar(plan)
    assert "\n" not in grammar(plan).partition("start: ")[2]


def test_ranked_functions_have_priors_and_the_engine_gets_no_ranks():
    tools = (Tool("first"), Tool("second"), Tool("third"), NOTHING)
    plan = plan_call(ask("Hello.", *tools, extra=ranked([1, 1, 8])))
    assert plan.priors["first"] > plan.priors["second"] and NOTHING_FITS not in plan.priors
    assert plan.priors["third"] > plan_call(ask("Hello.", *tools, extra=ranked([1, 1, 1]))).priors["third"]
    assert RANKED not in plan.body
    assert plan_call(ask("Hello.", *tools)).priors == {}


@pytest.mark.parametrize("counts", [3, "x", None, [0], [-1], ["a"], [1.5], [True], {}])
def test_invalid_ranks_are_ignored(counts):
    plan = plan_call(ask("Hello.", Tool("first"), Tool("second"), extra={"openai_chat": {RANKED: counts}}))
    assert plan.priors == {} and RANKED not in plan.body


def test_values_of_a_conversation_are_free():
    """They may be in an earlier message or in a result."""
    question = Message("user", (Text("And in Oslo?"),))
    single = Request(messages=(question,), tools=(WEATHER,))
    talk = Request(messages=(question, Message("assistant", (Text("Cold."),)), question), tools=(WEATHER,))
    assert '"Oslo"' in plan_call(single).call_body("get_weather")["grammar"]
    assert '"Oslo"' not in plan_call(talk).call_body("get_weather")["grammar"]
