"""The words of a prompt decide whether the local model calls a tool."""

import sys

import pytest

from places import ROOT
from toolwire import Message, Request, Text, Tool, ToolChoice
from toolwire.local.plan import may_need_call, mentions_tool, plan_call

sys.path.append(str(ROOT / "bench"))

from local_obvious import FIRST, SECOND
from local_prompts import PROMPTS, TOOLS

WEATHER = Tool("weather", *FIRST.tools["weather"])


def asking(text, *tools, choice=None):
    return Request(messages=(Message("user", (Text(text),)),), tools=tools, choice=choice)


def count_mentions(prompts):
    wanted = [
        mentions_tool(asking(text, Tool(name, *prompts.tools[name])))
        for name, texts in prompts.calls.items()
        for text in texts
    ]
    plain = [
        mentions_tool(asking(text, Tool(name, *about)))
        for name, about in prompts.tools.items()
        for text in prompts.plain
    ]
    return sum(wanted), sum(plain)


@pytest.mark.finding("U12")
@pytest.mark.parametrize("prompts", [FIRST, SECOND])
def test_most_obvious_prompts_mention_their_tool_and_plain_ones_do_not(prompts):
    wanted, plain = count_mentions(prompts)
    assert wanted >= 40  # of 50
    assert plain <= 1  # of 100


@pytest.mark.finding("U12")
def test_prompts_without_a_need_for_a_tool_mention_none():
    surplus = [
        one.text
        for one in PROMPTS
        if one.function is None and mentions_tool(asking(one.text, *(Tool(name, *TOOLS[name]) for name in one.tools)))
    ]
    assert surplus == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("How warm is it in Oslo?", True), ("Why is the sky blue?", False), ("How do I make tea?", False), ("", False)],
)
def test_model_is_asked_only_about_prompts_with_a_name_or_a_number(text, expected):
    assert may_need_call(asking(text, WEATHER)) is expected


def test_tool_with_required_numbers_needs_them_in_the_prompt():
    multiply = Tool("product", "Multiply.", FIRST.tools["multiply"][1])
    assert mentions_tool(asking("What is 6 times 7?", multiply))
    assert mentions_tool(asking("What is six times seven?", multiply))
    assert not mentions_tool(asking("What is 6?", multiply))
    assert not may_need_call(asking("Who is Ann?", multiply))


def offered(text, **fields):
    plan = plan_call(asking(text, WEATHER, **fields))
    withheld = [loss.path for loss in plan.losses if loss.concept == "optional argument"]
    return '"days"' in plan.body["grammar"], withheld


def test_optional_argument_is_offered_only_if_the_prompt_mentions_it():
    assert offered("What is the weather in Paris?") == (False, ["/tools/0/input_schema/properties/days"])
    assert offered("What is the weather in Paris for 3 days?") == (True, [])


def test_required_call_keeps_all_arguments():
    assert offered("What is the weather in Paris?", choice=ToolChoice("required")) == (True, [])


def test_builtin_tools_are_not_compared():
    assert not mentions_tool(asking("Search the web.", Tool("web_search", kind="builtin")))
