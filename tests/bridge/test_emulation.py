"""Calls on models that have none: a scripted model for every text format, behind every wire, whole and streaming.

The model is scripted, the wires are real: what it is asked is decoded from the body, what it says is encoded as that
wire's provider would, and cut into small pieces.
"""

from __future__ import annotations

import pytest

import toolwire
from tables import every_case
from toolwire import Message, Request, Response, Text, Tool, ToolCall, ToolChoice, ToolResult
from toolwire.bridge.emulation.requests import emulate
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.folding import fold, unfold
from toolwire.ir.response import Stop
from toolwire.testing import same

WEATHER = Tool(
    "get_weather",
    "The weather in a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CLOCK = Tool("get_time", "The time", {"type": "object", "properties": {"zone": {"type": "string"}}})
REQUEST = Request(
    model="small-model",
    messages=(Message("system", (Text("Be brief."),)), Message("user", (Text("Weather in Paris?"),))),
    tools=(WEATHER, CLOCK),
)
ARGUMENTS = {"city": "Paris", "days": 2}


def text_of(messages) -> str:
    return "\n".join(part.text for message in messages for part in message.parts if isinstance(part, Text))


class ScriptedModel:
    """Reads what arrives on the wire; says its lines one after the other."""

    def __init__(self, wire: str, *lines: str) -> None:
        self.wire = toolwire.wire.get(wire)
        self.lines = list(lines)
        self.requests: list[Request] = []

    def _answer(self, body) -> Response:
        self.requests.append(self.wire.decode_request(body))
        return Response(id="r1", model="small-model", parts=(Text(self.lines.pop(0)),), stop=Stop("stop"))

    def whole(self, body):
        return self.wire.encode_response(self._answer(body))[0]

    def stream(self, body) -> bytes:
        encoder = self.wire.stream_encoder()
        return b"".join(encoder.feed(event) for event in _in_small_deltas(unfold(self._answer(body))))


def _in_small_deltas(events):
    for event in events:
        if type(event).__name__ == "TextDelta":
            for start in range(0, len(event.text), 5):
                yield type(event).of(event.key, event.text[start : start + 5])
        else:
            yield event


def ask_whole(request, form, model):
    emulation = emulate(request, form)
    prepared = prepare(emulation.request, model.wire)
    body, _ = model.wire.encode_request(prepared.request)
    response = model.wire.decode_response(model.whole(body))
    return emulation.restore(prepared.exchange.restore(response))


def ask_streaming(request, form, model):
    emulation = emulate(request, form)
    prepared = prepare(emulation.request, model.wire)
    body, _ = model.wire.encode_request(prepared.request)
    decoder, names, reader = model.wire.stream_decoder(), prepared.exchange.make_restorer(), emulation.make_restorer()
    data = model.stream(body)
    events = []
    for start in range(0, len(data), 11):
        for event in decoder.feed(data[start : start + 11]):
            for named in names.feed(event):
                events += reader.feed(named)
    for event in decoder.close():
        for named in names.feed(event):
            events += reader.feed(named)
    return fold(events)


@pytest.mark.one_in(5)
@every_case("ask", [ask_whole, ask_streaming])
@every_case("wire", toolwire.wire.names())
@every_case("form", toolwire.text.names())
def test_emulated_call_round_trips_over_every_wire_and_format(form, wire, ask):
    text = toolwire.text.get(form)
    call = ToolCall("call00000", "get_weather", ARGUMENTS)
    spoken = text.render_call(call, REQUEST.tools)
    assert not spoken.losses
    model = ScriptedModel(wire, spoken.text, "It will rain.")
    answer = ask(REQUEST, form, model)
    (made,) = [part for part in answer.parts if isinstance(part, ToolCall)]
    assert (made.name, made.state) == ("get_weather", "complete")
    assert same(made.arguments, ARGUMENTS)
    assert answer.stop is not None
    assert answer.stop.reason == "tool_calls"
    heard = model.requests[0]
    assert not heard.tools
    assert "get_weather" in text_of(heard.messages)
    assert set(text.stops) <= set(heard.params.stop or ()) or wire == "openai_responses"  # which has no stop words

    replied = Message("user", (ToolResult(made.id, None, (Text("rain, 12 degrees"),)),))
    again = Request(
        model="small-model",
        messages=(*REQUEST.messages, Message("assistant", answer.parts), replied),
        tools=REQUEST.tools,
    )
    final = ask(again, form, model)
    assert [part.text for part in final.parts] == ["It will rain."]
    remembered = text_of(model.requests[1].messages)
    assert text.render_call(made, REQUEST.tools).text in remembered
    assert "rain, 12 degrees" in remembered


def test_restorer_signals_when_to_stop_the_stream():
    emulation = emulate(REQUEST, "function_xml")
    reader = emulation.make_restorer()
    said = (
        "<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\nEXECUTION RESULT of [get_weather]: sun"
    )
    seen = []
    for event in unfold(Response(id="r", parts=(Text(said),), stop=Stop("stop"))):
        seen += reader.feed(event)
        if reader.should_stop:
            break
    response = fold([*seen, *reader.close()])
    assert [part.arguments for part in response.parts if isinstance(part, ToolCall)] == [{"city": "Paris"}]
    assert response.stop == Stop("tool_calls")
    assert not [part for part in response.parts if isinstance(part, Text)]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ToolChoice("required"), "one of the functions get_weather, get_time"),
        (ToolChoice("tool", ("get_time",)), "the function get_time"),
        (ToolChoice("allowed", ("get_weather",), required=True), "the function get_weather"),
    ],
)
def test_required_tool_choice_is_written_into_the_prompt(choice, told):
    request = emulate(Request(messages=REQUEST.messages, tools=REQUEST.tools, choice=choice), "hermes").request
    assert told in text_of(request.messages)
    assert request.choice is None


def test_tool_choice_none_hides_tools_and_drops_calls():
    emulation = emulate(Request(messages=REQUEST.messages, tools=REQUEST.tools, choice=ToolChoice("none")), "hermes")
    assert "get_weather" not in text_of(emulation.request.messages)
    said = toolwire.text.get("hermes").render_call(ToolCall("x", "get_weather", ARGUMENTS)).text
    answer = emulation.restore(Response(parts=(Text(f"No.{said}"),), stop=Stop("stop")))
    assert [part.text for part in answer.parts] == ["No."]
    assert answer.stop == Stop("stop")


def test_disabled_parallel_calls_keep_only_the_first_call():
    emulation = emulate(Request(messages=REQUEST.messages, tools=REQUEST.tools, parallel=False), "hermes")
    calls = [ToolCall("a", "get_weather", ARGUMENTS), ToolCall("b", "get_time", {})]
    said = toolwire.text.get("hermes").render_calls(calls).text
    answer = emulation.restore(Response(parts=(Text(said),), stop=Stop("stop")))
    assert [part.name for part in answer.parts if isinstance(part, ToolCall)] == ["get_weather"]


def test_unreadable_answer_is_retried_once():
    emulation = emulate(REQUEST, "hermes")
    broken = Response(parts=(Text('<tool_call>{"name": get_weather}</tool_call>'),), stop=Stop("stop"))
    again = emulation.retry(broken)
    assert again is not None
    told = text_of(again.request.messages[-1:])
    assert "could not be read" in told
    assert "<tool_call>" in told
    assert again.retry(broken) is None


def test_answer_with_a_complete_call_is_never_retried():
    emulation = emulate(REQUEST, "hermes")
    said = toolwire.text.get("hermes").render_call(ToolCall("x", "get_weather", ARGUMENTS)).text
    assert emulation.retry(Response(parts=(Text(f"{said}<tool_call>{{broken"),), stop=Stop("stop"))) is None


def test_missing_required_call_is_retried():
    request = Request(messages=REQUEST.messages, tools=REQUEST.tools, choice=ToolChoice("required"))
    again = emulate(request, "function_xml").retry(Response(parts=(Text("It is sunny."),), stop=Stop("stop")))
    assert again is not None
    assert "You have to call" in text_of(again.request.messages[-1:])


def test_required_call_can_be_constrained_by_an_output_schema():
    request = Request(messages=REQUEST.messages, tools=REQUEST.tools, choice=ToolChoice("required"))
    output = emulate(request, "generic_json", constrain=True).request.output
    assert output is not None
    shapes = output.schema["properties"]["tool_call"]["anyOf"]
    assert [shape["properties"]["name"]["const"] for shape in shapes] == ["get_weather", "get_time"]
    assert emulate(REQUEST, "generic_json", constrain=True).request.output is None
    made = {"tool_call": {"name": "get_time", "arguments": {"zone": "UTC"}}}
    answer = emulate(request, "generic_json").restore(
        Response(parts=(Text(toolwire.ir.text.dumps(made)),), stop=Stop("stop"))
    )
    assert [part.name for part in answer.parts if isinstance(part, ToolCall)] == ["get_time"]


def test_truncated_call_is_not_complete():
    emulation = emulate(REQUEST, "function_xml")
    said = "<function=get_weather>\n<parameter=city>Paris</parameter>\n"
    cut = emulation.restore(Response(parts=(Text(said),), stop=Stop("length")))
    assert [part.state for part in cut.parts if isinstance(part, ToolCall)] == ["truncated"]
    stopped = emulation.restore(Response(parts=(Text(said),), stop=Stop("stop_sequence", "</function")))
    assert [part.state for part in stopped.parts if isinstance(part, ToolCall)] == ["complete"]


def test_call_ids_continue_the_numbering_of_the_conversation():
    before = (
        Message("assistant", (ToolCall("call00041", "get_weather", ARGUMENTS),)),
        Message("user", (ToolResult("call00041", "get_weather", (Text("rain"),)),)),
    )
    emulation = emulate(Request(messages=(*REQUEST.messages, *before), tools=REQUEST.tools), "hermes")
    said = toolwire.text.get("hermes").render_call(ToolCall("x", "get_time", {})).text
    answer = emulation.restore(Response(parts=(Text(said),), stop=Stop("stop")))
    assert [part.id for part in answer.parts if isinstance(part, ToolCall)] == ["call00042"]


def test_freeform_tool_is_offered_as_a_function_and_restored():
    patch = Tool("patch", "Apply a patch", kind="freeform")
    emulation = emulate(Request(messages=REQUEST.messages, tools=(patch,)), "hermes")
    said = toolwire.text.get("hermes").render_call(ToolCall("x", "patch", {"input": "*** Begin"})).text
    (call,) = emulation.restore(Response(parts=(Text(said),), stop=Stop("stop"))).parts
    assert (call.kind, call.raw) == ("freeform", "*** Begin")


def test_builtin_tool_is_reported_as_a_loss():
    search = Tool("web_search", kind="builtin")
    emulation = emulate(Request(messages=REQUEST.messages, tools=(search, WEATHER)), "hermes")
    assert [loss.path for loss in emulation.losses] == ["/tools/0"]


def test_results_are_written_in_the_order_of_their_calls():
    """A format without ids has nothing else to tell them apart."""
    calls = (ToolCall("a", "get_weather", {"city": "Paris"}), ToolCall("b", "get_weather", {"city": "Rome"}))
    results = tuple(call.result(f"sunny in {call.arguments['city']}") for call in reversed(calls))
    history = (*REQUEST.messages, Message("assistant", calls), Message("user", results))
    told = text_of(emulate(Request(messages=history, tools=REQUEST.tools), "hermes").request.messages)
    assert told.index("sunny in Paris") < told.index("sunny in Rome")


def test_missing_result_gets_a_placeholder_and_is_reported_as_a_loss():
    history = (*REQUEST.messages, Message("assistant", (ToolCall("a", "get_weather", {"city": "Paris"}),)))
    emulation = emulate(Request(messages=(*history, Message("user", (Text("Well?"),))), tools=REQUEST.tools), "hermes")
    told = text_of(emulation.request.messages)
    assert told.index("No result") < told.index("Well?")
    assert [loss.concept for loss in emulation.losses] == ["missing result"]
