"""Forced calls on Ollama for random schemas: every value of the sent schema is a call, whole and in every chunking."""

import json
from itertools import islice
from random import Random

import pytest

import toolwire
from places import TESTS
from toolwire.ir import Losses, Message, fold
from toolwire.schema import validator
from toolwire.testing import random_chunks
from toolwire.testing.instances import instances
from toolwire.wire import get

SCHEMAS = TESTS / "vectors/schema/random_outputs.jsonl"
OLLAMA = get("ollama")
HEAD = {"model": "qwen3", "created_at": "2026-08-21T18:48:22.196249Z"}
END = {"done": True, "done_reason": "stop"}
PART = 8


def random_tools(part):
    """Return tools of stored random schemas, three at a time."""
    schemas = [json.loads(line) for line in SCHEMAS.read_text("utf-8").splitlines()]
    arguments = [{"type": "object", "properties": {"value": schema}, "required": ["value"]} for schema in schemas]
    for start in range(part * 3, len(arguments), PART * 3):
        yield tuple([toolwire.Tool(f"t{n}", "", one) for n, one in enumerate(arguments[start : start + 3])])


def prepare(tools, parallel):
    user = Message("user", (toolwire.Text("Call one."),))
    return toolwire.prepare(
        toolwire.Request("qwen3", (user,), tools, toolwire.ToolChoice("required"), parallel), "ollama"
    )


def stream_of(text, random):
    """Return the lines of a stream that has the text in random pieces."""
    cuts = sorted(random.sample(range(len(text)), min(6, len(text))))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    messages = [{**HEAD, "message": {"role": "assistant", "content": piece}, "done": False} for piece in pieces]
    last = {**HEAD, "message": {"role": "assistant", "content": ""}, **END}
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*messages, last])


def restore_stream(prepared, data, random):
    decoder, restorer = OLLAMA.stream_decoder(), prepared.exchange.make_restorer()
    chunks = random_chunks(data, random, 9)
    events = [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()
    return fold([restored for event in events for restored in restorer.feed(event)])


@pytest.mark.parametrize("part", range(PART))
def test_every_value_of_the_schema_is_a_call_in_every_chunking(part):
    random, checked = Random(part), 0
    for tools in random_tools(part):
        for parallel in (None, True):
            prepared = prepare(tools, parallel)
            schema = prepared.request.output.schema
            for value in islice(instances(schema, seed=f"call {part}", count=3), 3):
                text = json.dumps(value, ensure_ascii=random.random() < 0.5)
                body = {**HEAD, "message": {"role": "assistant", "content": text}, **END}
                losses = Losses()
                answer = prepared.exchange.restore(OLLAMA.decode_response(body), losses)
                written = value if parallel else [value]
                assert [call.name for call in answer.calls] == [call["name"] for call in written]
                assert [call.state for call in answer.calls] == ["complete"] * len(written)
                assert (len(answer.parts), answer.stop.reason, list(losses)) == (len(written), "tool_calls", [])
                streamed = restore_stream(prepared, stream_of(text, random), random)
                assert (streamed.parts, streamed.stop) == (answer.parts, answer.stop)
                check_arguments(prepared, tools, answer, written)
                checked += 1
    assert checked > 20


def check_arguments(prepared, tools, answer, written):
    """Check that calls of unchanged shape have the arguments that the model wrote."""
    for call, said in zip(answer.calls, written, strict=True):
        if call.name not in prepared.exchange.lifts:
            assert call.arguments == said["arguments"]


@pytest.mark.parametrize("part", range(PART))
def test_calls_that_the_grammar_admits_are_valid_outside_of_the_reported_keywords(part):
    """A tool without a report is enforced fully: its arguments are valid for the original schema."""
    for tools in random_tools(part):
        prepared = prepare(tools, None)
        reported = {loss.path.split("/")[2] for loss in prepared.losses if loss.path.startswith("/tools/")}
        for index, tool in enumerate(tools):
            if str(index) in reported or tool.name in prepared.exchange.lifts:
                continue
            shapes = prepared.request.output.schema
            shape = shapes["anyOf"][index]["properties"]["arguments"]
            check = validator(tool.input_schema)
            for value in instances({**shape, "$defs": shapes.get("$defs", {})}, seed="valid", count=3):
                assert not check.problems(value)


def test_truncated_texts_give_no_complete_call():
    tools = next(random_tools(0))
    prepared = prepare(tools, None)
    value = next(instances(prepared.request.output.schema, seed="cut", count=1))
    text = json.dumps(value)
    for end in range(len(text) - 1):  # only the last brace follows the arguments
        body = {**HEAD, "message": {"role": "assistant", "content": text[:end]}, "done": True, "done_reason": "length"}
        answer = prepared.exchange.restore(OLLAMA.decode_response(body))
        assert all(call.state != "complete" for call in answer.calls), text[:end]
        assert answer.stop.reason == "length"
