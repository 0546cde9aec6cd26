"""Structured outputs for random schemas: on every wire, native and by the final-answer tool, whole and streamed.

A scripted provider answers each request with an instance of the schema that it received. The run must end with a value
of the original schema, or ask again.
"""

import json
import os
from functools import cache
from random import Random

import pytest
from hypothesis import assume, given, settings
from msgspec.structs import replace

import tables
from places import TESTS
from random_schemas import new_documents
from toolwire import Message, Request, Response, Text, ToolCall
from toolwire.audit import check_body
from toolwire.ir import CallDelta, SchemaError, Stop, TextDelta, fold, unfold
from toolwire.ir.losses import Losses
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.run import OutputPlan, Session, StructuredOutput
from toolwire.run.session.partial_output import PartialReader
from toolwire.run.session.state import AskModel, Done, GiveUp
from toolwire.schema import lower, output_dialect, validator
from toolwire.schema.parsing.membership import json_equal
from toolwire.testing.instances import instances
from toolwire.testing.preservation import close_schema, drop_null
from toolwire.testing.stream_checks import bytewise, random_chunks
from toolwire.text import get as get_format

MODELS = {
    "openai_chat": "openai/gpt-5.6",
    "openai_responses": "openai/gpt-5.6",
    "anthropic": "anthropic/claude-opus-4-8",
    "gemini": "gemini/gemini-3-pro",
    "ollama": "ollama/qwen3",
}
ENDPOINTS = {wire: resolve(model, {}, key="k", wire=wire) for wire, model in MODELS.items()}
REQUEST = Request("", (Message("user", (Text("Which one?"),)),))
SCHEMAS = TESTS / "vectors/schema/random_outputs.jsonl"
OTHER_VALUES = (1e300, ["?"], {"?": "?"}, "?", None, False, -7.25)

wires = pytest.mark.parametrize("wire", MODELS)
modes = pytest.mark.parametrize("mode", ["native", "tool"])


@cache
def random_outputs():
    """Return 200 random schemas that have values, each with its output type and a value.

    They are drawn once and stored, because hypothesis takes half a minute to draw them; EXPLORE=1 draws others.
    """
    if os.environ.get("EXPLORE"):
        return draw_outputs()
    lines = SCHEMAS.read_text(encoding="utf-8").splitlines()
    return [(schema, StructuredOutput(schema).resolve(), first_value(schema)) for schema in map(json.loads, lines)]


def draw_outputs():
    """Draw different schemas of `new_documents()` that are valid and have values."""
    found = {}

    @settings(max_examples=1000)
    @given(new_documents())
    def draw(schema):
        text = json.dumps(schema, sort_keys=True)
        if len(found) == 200 or text in found:
            return
        try:
            output = StructuredOutput(schema).resolve()
            found[text] = (schema, output, first_value(schema))
        except (SchemaError, StopIteration):
            assume(False)

    draw()
    return list(found.values())


def first_value(schema):
    return next(instances(schema, seed="output", count=1))


def some_outputs(*place):
    """Return all random outputs; in `make test`, a third of them that depends on the place."""
    start = sum(map(len, place)) % 3
    return random_outputs()[start::3] if tables.selects else random_outputs()


class Exchange:
    """A session with a structured output, and the provider of one wire."""

    def __init__(self, output, wire, mode):
        self.wire = wire
        self.mode = mode
        self.endpoint = ENDPOINTS[wire]
        self.session = Session(REQUEST, now=lambda: 0.0, output=OutputPlan(output, mode))

    def send(self, *, stream=False):
        """Encode the request of the next step, and return it as the provider reads it."""
        step = self.session.next()
        assert isinstance(step, AskModel)
        self.sent = EndpointRequest(step.request, self.endpoint, stream=stream, text=None, losses=Losses())
        body = json.loads(self.sent.body)
        assert check_body(body, self.wire, self.endpoint.model) == []
        return self.endpoint.wire.decode_request(body)

    def lowered(self, received):
        """Return the lowered schema that the provider received, with its codec; None if it is in the instructions."""
        output, dialect = self.session.output.output, self.endpoint.wire.dialect
        if self.mode == "tool":
            return lower(output.arguments_schema, dialect)
        if received.output is None or received.output.kind != "json_schema":
            assert not lower(output.schema, output_dialect(dialect, strict=None)).conforms
            assert (
                json.dumps(output.schema, separators=(",", ":"), ensure_ascii=False)
                in received.messages[0].parts[0].text
            )
            return None
        return lower(output.schema, output_dialect(dialect, strict=received.output.strict))

    def write(self, value, received):
        """Return the value as the provider writes it."""
        lowered = self.lowered(received)
        return value if lowered is None else lowered.encode(self.arguments(value))

    def arguments(self, value):
        output = self.session.output.output
        return value if self.mode == "native" or output.schema is output.arguments_schema else {"result": value}

    def answer(self, written, call_id="call_1"):
        """Return the provider's response with a value of the lowered schema."""
        if self.mode == "native":
            return Response(f"r{call_id}", "m", (Text(json.dumps(written)),), Stop("stop"))
        name = self.session.output.tool.name
        return Response(f"r{call_id}", "m", (ToolCall(call_id, name, written),), Stop("tool_calls"))

    def receive(self, response):
        """Return the response as the agent receives it in one document."""
        body = self.endpoint.wire.encode_response(response).body
        return self.sent.restore(self.sent.decode_answer(json.dumps(body).encode()))

    def stream(self, response, cut, received):
        """Return the response that the agent receives as a stream, and the partial outputs."""
        encoder = self.endpoint.wire.stream_encoder(received)
        data = b"".join(encoder.feed(event) for event in split_deltas(response))
        incoming, reader, events = self.sent.open_stream(), PartialReader(), []
        for piece in cut(data):
            events += incoming.feed(piece)
        events += incoming.close()
        partial = [found.value for event in events if (found := reader.feed(event, self.session.output))]
        return fold(events), partial


def split_deltas(response):
    for event in unfold(response):
        if isinstance(event, (TextDelta, CallDelta)):
            for start in range(0, len(event.text), 5):
                yield type(event).of(event.key, event.text[start : start + 5])
        else:
            yield event


def is_same(value, expected):
    """Compare up to an explicit null under an optional property: absent and null are the same to a model."""
    return json_equal(drop_null(value), drop_null(expected))


@modes
@wires
def test_output_is_valid_for_every_schema_whole_and_streamed(wire, mode):
    for number, (schema, output, value) in enumerate(some_outputs(wire, mode)):
        whole = Exchange(output, wire, mode)
        written = whole.write(value, whole.send())
        whole.session.add_response(whole.receive(whole.answer(written)))
        step = whole.session.next()
        assert isinstance(step, Done), (schema, value)
        found = whole.session.output.read(step.response).value
        assert validator(schema).accepts(found) and is_same(found, value), (schema, value, found)

        streamed = Exchange(output, wire, mode)
        received = streamed.send(stream=True)
        cut = bytewise if number % 20 == 0 else lambda data, seed=number: random_chunks(data, Random(seed), 6)
        response, partial = streamed.stream(streamed.answer(written), cut, received)
        streamed.session.add_response(response)
        step = streamed.session.next()
        assert isinstance(step, Done), (schema, value)
        assert json_equal(streamed.session.output.read(step.response).value, found), (schema, value)
        assert found is None or (partial and json_equal(partial[-1], found)), (schema, value, partial)


@modes
@wires
def test_other_answers_of_the_received_schema_are_valid_or_refused(wire, mode):
    """A provider may not enforce all of a schema, so an answer that it allows may still be invalid."""
    accepted, outputs = 0, some_outputs(wire, mode)
    for schema, output, _ in outputs:
        exchange = Exchange(output, wire, mode)
        lowered = exchange.lowered(exchange.send())
        sent_schema = schema if lowered is None else lowered.schema
        for written in instances(close_schema(sent_schema), seed="answer", count=1):
            exchange.session.add_response(exchange.receive(exchange.answer(written)))
            step = exchange.session.next()
            if isinstance(step, Done):
                accepted += 1
                assert validator(schema).accepts(exchange.session.output.read(step.response).value), (schema, written)
            else:
                exchange.send()  # the feedback is valid on the wire
    assert accepted > len(outputs) / 2


@modes
@wires
def test_invalid_output_is_refused_and_asked_for_again(wire, mode):
    refused, outputs = 0, some_outputs(wire, mode)
    for schema, output, value in outputs:
        accepts = validator(schema).accepts
        exchange = Exchange(output, wire, mode)
        for attempt, invalid in enumerate([other for other in OTHER_VALUES if not accepts(other)][:3]):
            exchange.send()
            response = exchange.answer(exchange.arguments(invalid), f"call_{attempt}")
            if mode == "tool" and type(response.calls[0].arguments) is not dict:
                response = replace(response, parts=(Text(json.dumps(invalid)),), stop=Stop("stop"))
            exchange.session.add_response(exchange.receive(response))
            step = exchange.session.next()
            if isinstance(step, Done):
                found = exchange.session.output.read(step.response).value
                assert accepts(found), (schema, invalid, found)  # repaired
                break
            assert attempt < 2 or isinstance(step, GiveUp), (schema, value)
            refused += 1
    assert refused > len(outputs)


@pytest.mark.parametrize("form", ["hermes", "llama3_json", "deepseek_v3", "mistral_v3_json", "pythonic", "harmony"])
def test_output_is_valid_for_every_schema_with_calls_in_text(form):
    """A model without tool calls writes the call of the final-answer tool as text."""
    for number, (schema, output, value) in enumerate(some_outputs(form)):
        exchange = Exchange(output, "openai_chat", "tool")
        request = exchange.session.next().request
        call = ToolCall("call00000", "final_answer", exchange.arguments(value))
        text = get_format(form).render_call(call, request.tools).text
        response = Response("r", "m", (Text(text),), Stop("stop"))
        for stream in (False, True):
            exchange = Exchange(output, "openai_chat", "tool")
            exchange.sent = EndpointRequest(request, exchange.endpoint, stream=stream, text=form, losses=Losses())
            cut = lambda data, seed=number: random_chunks(data, Random(seed), 6)
            received = exchange.stream(response, cut, None)[0] if stream else exchange.receive(response)
            exchange.session.add_response(received)
            step = exchange.session.next()
            assert isinstance(step, Done), (schema, value, text, received.parts)
            found = exchange.session.output.read(step.response).value
            assert validator(schema).accepts(found) and is_same(found, value), (schema, value, found)
