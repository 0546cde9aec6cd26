"""The reasoning at the start of a turn and the text after it, byte for byte, for any chunking."""

import pytest

from tables import every_case
from toolwire.adapters.turn_reader import ReasoningSplitter
from toolwire.text import get

CALL = '<tool_call>{"name": "f", "arguments": {"a": "</think>"}}</tool_call>'


def split(pieces, *, opened, name="hermes"):
    splitter = ReasoningSplitter(get(name), opened=opened)
    parts = [*map(splitter.feed, pieces), splitter.close()]
    return "".join(reasoning for reasoning, _ in parts), "".join(rest for _, rest in parts)


@every_case("opened", [False, True])
@every_case(
    ("text", "reasoning", "rest"),
    [
        ("<think>a</think>\n\nb <think>c</think>", "a", "\n\nb <think>c</think>"),
        ("\n<think>\na\n</think>b", "\na\n", "b"),
        ("<think></think>b", "", "b"),
        ("<think>a", "a", ""),
        ("<think>a</th", "a</th", ""),
        (f"<think>a {CALL} tail", "a ", f"{CALL} tail"),
        (f"<think>a</think>{CALL}", "a", CALL),
        ("<think>a mention of <tool_call> is no call</think>b", "a mention of <tool_call> is no call", "b"),
    ],
)
def test_text_after_the_reasoning_is_unchanged(text, reasoning, rest, opened):
    for pieces in ([text], list(text), [text[:9], text[9:11], text[11:]]):
        assert split(pieces, opened=opened) == (reasoning, rest)


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        ("a</think>b", "a", "b"),
        ("a", "a", ""),
        ("</think>b", "", "b"),
        ("<", "<", ""),
        ("<thin</think>b", "<thin", "b"),
    ],
)
def test_reasoning_that_the_prompt_opened(text, reasoning, rest):
    for pieces in ([text], list(text)):
        assert split(pieces, opened=True) == (reasoning, rest)


@pytest.mark.parametrize("text", ["b", "b <think>a</think>", CALL, "<tool", "<thi"])
def test_text_without_reasoning_is_unchanged(text):
    for pieces in ([text], list(text)):
        assert split(pieces, opened=False) == ("", text)


def test_format_without_tags_of_reasoning_passes_everything():
    text = "<|channel|>analysis<|message|>a<|end|>"
    assert split(list(text), opened=True, name="harmony") == ("", text)


def test_marks_inside_the_reasoning_do_not_move_its_end():
    text = "<|START_THINKING|>a <co>b</co: 0:[1]><|END_THINKING|><|START_RESPONSE|>c <co>d</co: 0:[1]><|END_RESPONSE|>"
    for pieces in ([text], list(text)):
        reasoning, rest = split(pieces, opened=False, name="cohere_action")
        assert (reasoning, rest) == ("a b", text.partition("<|END_THINKING|>")[2])
