"""Objects in a model's reasoning are drafts: they are never used as arguments, with the marks of any text format."""

import pytest

from tables import every_case
from toolwire.schema import repair_arguments
from toolwire.schema.repair.arguments import POLICIES
from toolwire.text import get, names

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHANNELS = {
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|end|>"),
    ("<|start|>assistant to=self<|message|>", "<|eom|>"),
}
ALL_MARKS = {pair for name in names() for pair in get(name).reasoning} | CHANNELS
MARKS = sorted(pair for pair in ALL_MARKS if pair[0] != "thought\n")
OTHERS = [
    ("<reasoning>", "</reasoning>"),
    ("<Thought>", "</Thought>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|thinking_start|>", "<|thinking_end|>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<thinking>", "</thinking>"),
]


def read(text, policy):
    return repair_arguments(text, SCHEMA, policy=policy).arguments


@pytest.mark.finding("R")
@every_case("policy", POLICIES)
@every_case(("opener", "closer"), [*MARKS, *OTHERS])
def test_object_in_unfinished_reasoning_is_never_used(opener, closer, policy):
    draft = '{"city": "Rome"}'
    for text in (
        f"{opener}{draft}",
        f"{opener}I could use {draft}",
        f"Well. {opener}\n```json\n{draft}\n```",
        f"{opener}{draft} or {draft}",
        f"{opener}{draft},",
        f'{opener}"city": "Rome"}}',
        f"{opener}f(city='Rome')",
        f"{opener}draft{closer}{opener}{draft}",
        f"{opener}{draft}{closer}",
        f"{opener}{draft}{closer} That is it.",
    ):
        assert read(text, policy) is None, text


@pytest.mark.finding("R")
@every_case("policy", POLICIES[1:])
@every_case(("opener", "closer"), [*MARKS, *OTHERS])
def test_object_after_reasoning_is_used(opener, closer, policy):
    for text in (
        f'{opener}{{"city": "Rome"}}?{closer}{{"city": "Paris"}}',
        f'{opener}hm{closer}\n\n```json\n{{"city": "Paris",}}\n```',
        f"{opener}hm{closer}f(city='Paris')",
        f'{opener}hm{closer}"city" = "Paris"}}',
    ):
        assert read(text, policy) == {"city": "Paris"}, text


@pytest.mark.finding("R")
@pytest.mark.parametrize("policy", POLICIES[1:])
def test_reasoning_of_gemma_without_its_first_token_is_recognised(policy):
    assert ("thought\n", "<channel|>") in ALL_MARKS
    assert read('thought\n{"city": "Rome"}', policy) is None
    assert read('thought\n{"city": "Rome"}<channel|>{"city": "Paris"}', policy) == {"city": "Paris"}
