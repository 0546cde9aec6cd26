"""Rejection of emulated answers in streams: the same decision as for whole answers, and no retracted event."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.bridge import emulate
from toolwire.bridge.emulation.retries import AnswerContinuation, RejectableAnswer
from toolwire.ir import Message, Request, Response, Stop, Text, Tool, ToolChoice, Usage, fold
from toolwire.ir.events import (
    CallStart,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
)
from toolwire.testing import same

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (Tool("look", "Look.", SCHEMA), Tool("find", "Find.", SCHEMA))
PIECES = {
    "hermes": (
        '<tool_call>{"name": "look", "arguments": {"city": "Rome"}}</tool_call>',
        '<tool_call>{"name": "look", "arguments": {"city": Rome}}</tool_call>',
        '<tool_call>{"name": 7}</tool_call>',
        '<tool_call>{"name": "find", "argum',
        "<tool_call>",
    ),
    "qwen3_xml": (
        "<tool_call><function=look><parameter=city>Rome</parameter></function></tool_call>",
        "<tool_call><function=look><parameter=city>Rome",
        "<tool_call><function=></function></tool_call>",
    ),
    "pythonic": ("[look(city='Rome')]", "[look(city=)]", "[look(city='Rome'", "[find("),
    "llama3_json": ('{"name": "look", "parameters": {"city": "Rome"}}', '{"name": "look", "parameters": {"city": }}'),
}


def request(choice):
    return Request("m", (Message("user", (Text("Go."),)),), TOOLS, choice)


@st.composite
def answers(draw, form):
    words = st.sampled_from(["Hello. ", "<think>Hm.</think>", "\n", "x < y ", "ü"])
    return "".join(draw(st.lists(st.one_of(words, st.sampled_from(PIECES[form])), max_size=4)))


def chunks(text, cuts):
    """The events of an answer whose text is cut at these positions."""
    positions = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    yield ResponseStart("r", "m")
    yield TextStart(0)
    for start, end in pairwise(positions):
        yield TextDelta.of(0, text[start:end])
    yield TextEnd(0)
    yield UsageUpdate(Usage(3, 2))
    yield ResponseEnd((Stop("stop"),))


@pytest.mark.parametrize("form", PIECES)
@given(data=st.data(), required=st.booleans(), cuts=st.lists(st.integers(0, 500), max_size=8))
def test_streamed_answer_is_rejected_like_a_whole_one(form, data, required, cuts):
    text = data.draw(answers(form))
    emulation = emulate(request(ToolChoice("required") if required else None), form)
    answer = RejectableAnswer(emulation, emulation.make_restorer())
    emitted = [event for raw in chunks(text, cuts) for event in answer.feed(raw)]
    whole = Response("r", "m", (Text(text),), Stop("stop"), Usage(3, 2))
    assert (answer.rejected is None) == (emulation.problem(whole) is None)
    if answer.rejected is None:
        assert same(fold(emitted), emulation.restore(whole))
        return
    assert answer.rejected.response.text == text
    assert answer.rejected.problem == emulation.problem(whole)
    assert not any(isinstance(event, (CallStart, ResponseEnd)) for event in emitted)
    opened = [event.key for event in emitted if isinstance(event, (TextStart, ReasoningStart))]
    assert opened == [event.key for event in emitted if isinstance(event, (TextEnd, ReasoningEnd))]
    continued = list(AnswerContinuation(Usage(3, 2)).feed(chunks("Again.", ())))
    response = fold([*emitted, *continued])
    assert response.text.endswith("Again.")
    assert response.usage == Usage(6, 4)


@pytest.mark.parametrize("form", PIECES)
@given(data=st.data())
def test_retry_is_never_rejected(form, data):
    text = data.draw(answers(form))
    emulation = emulate(request(None), form)
    retry = emulation.make_retry(Response(parts=(Text("x"),)), "Again.")
    answer = RejectableAnswer(retry, retry.make_restorer())
    emitted = [event for raw in chunks(text, ()) for event in answer.feed(raw)]
    assert answer.rejected is None
    assert isinstance(emitted[-1], ResponseEnd)
