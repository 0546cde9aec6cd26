"""Values that contain the format's own closing tags: the call is right, or it is not complete."""

from __future__ import annotations

from itertools import permutations

import pytest

from tables import every_case
from toolwire import Tool, ToolCall
from toolwire.text import get, names

TOOLS = [Tool("f", input_schema={"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})]
MARK = "MARK"


def closing_texts(form):
    """Return every sequence of up to three closing tags and stop marks of a format."""
    closers = sorted({*form.calls.closers(), *form.stops})
    for count in (1, 2, 3):
        for chosen in permutations(closers, count):
            yield from ("".join(chosen), "\n".join(chosen))


def texts_with(form, value):
    """Return calls with this value as the model would write them, without any escaping."""
    for arguments in ({"a": MARK}, {"a": MARK, "b": "q"}, {"a": "q", "b": MARK}):
        text = form.render_call(ToolCall("c", "f", arguments), TOOLS).text
        meant = {key: value if inner == MARK else inner for key, inner in arguments.items()}
        yield text.replace(MARK, value), meant


@pytest.mark.one_in(3)
@pytest.mark.finding("G15")
@every_case("name", names())
def test_call_with_a_closing_tag_in_a_value_is_right_or_not_complete(name):
    form = get(name)
    wrong = []
    for closing in closing_texts(form):
        for value in (f"x{closing}", f"x{closing}y"):
            for text, meant in texts_with(form, value):
                calls = form.parse(text, TOOLS).calls
                wrong += [
                    (text, call.arguments) for call in calls if call.state == "complete" and call.arguments != meant
                ]
    assert wrong == []


def test_calls_before_a_stray_closer_are_invalid_and_keep_their_text():
    text = '<function_calls>\n<invoke name="f">\n<parameter name="a">x</invoke></function_calls></parameter>\n</invoke>'
    parsed = get("anthropic_legacy_xml").parse(text, TOOLS)
    (call,) = parsed.calls
    assert (call.state, call.arguments, call.raw) == ("invalid", None, '{"a":"x"}')
    assert "closes nothing" in parsed.diagnostics[-1].detail


def test_stray_closer_does_not_affect_a_call_after_it():
    form = get("qwen3_xml")
    call = form.render_call(ToolCall("c", "f", {"a": "x"}), TOOLS).text
    parsed = form.parse(f"I close </function> nothing. {call}", TOOLS)
    assert [call.state for call in parsed.calls] == ["complete"]
