"""Results that the conversation already contains."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolwire.ir import Media, Message, Text, ToolCall, ToolResult
from toolwire.run.values.outputs import replace_duplicate
from toolwire.run.values.results import annotate

LONG = "\n".join(f"line {number}" for number in range(100))


def conversation(*outputs: str | ToolResult, name: str = "look") -> list[Message]:
    messages = []
    for number, output in enumerate(outputs):
        call = ToolCall(f"c{number}", name, {"number": number})
        result = call.result(output) if isinstance(output, str) else output
        messages += [Message("assistant", (call,)), Message("user", (result,))]
    return messages


NEW = ToolCall("new", "look", {"number": 9})


def replaced(output: str, messages: list[Message]) -> str:
    return replace_duplicate(NEW, NEW.result(output), messages).text


def test_identical_result_is_a_reference():
    assert replaced(LONG, conversation("other", LONG)) == '[The same as the earlier result of look({"number":1})]'


def test_results_of_other_tools_and_short_results_are_kept():
    assert replaced(LONG, conversation(LONG, name="find")) == LONG
    assert replaced("short", conversation("short")) == "short"


def test_result_that_is_no_longer_in_the_conversation_is_not_referred_to():
    shortened = annotate(ToolCall("c0", "look").result("[removed]"), shortened=900)
    summarised = annotate(ToolCall("c0", "look").result(LONG), summarised=900)
    assert replaced(LONG, conversation(shortened)) == LONG
    assert replaced(LONG, conversation(summarised)) == LONG


def test_result_with_media_is_kept():
    result = ToolResult("new", "look", (Text(LONG), Media("image", "image/png", "aGVsbG8h")))
    assert replace_duplicate(NEW, result, conversation(LONG)) is result


def test_structured_result_is_compared_by_its_text():
    value = {"rows": list(range(500))}
    messages = [
        Message("assistant", (ToolCall("c0", "look"),)),
        Message("user", (ToolCall("c0", "look").result(value),)),
    ]
    assert replace_duplicate(NEW, NEW.result(value), messages).text == "[The same as the earlier result of look({})]"


lines = st.lists(st.sampled_from(["a" * 40, "b" * 40, "c", ""]), min_size=0, max_size=60)


@given(before=lines, after=lines, shared=lines)
def test_changed_lines_restore_the_text(before, after, shared):
    """The first and the last lines of the earlier result and the lines of the note are the whole result."""
    earlier = "\n".join([*shared, *before, *shared])
    text = "\n".join([*shared, *after, *shared])
    note = replaced(text, conversation(earlier))
    assert len(note) <= len(text)
    if note == text or text == earlier:
        return
    head, _, changed = note.partition("\n")
    numbers = [int(word) for word in head.replace("[", "").split() if word.isdigit()]
    count, first, last = numbers[:3]
    old = earlier.split("\n")
    middle = changed.split("\n") if first + last < count else []
    assert "\n".join([*old[:first], *middle, *old[len(old) - last :]]) == text
