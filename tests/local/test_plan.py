"""What the local model does not get to see, or is not held to, is told."""

import pytest
from msgspec.structs import replace

from toolwire import Media, Message, Request, Text, Tool, ToolCall, ToolChoice, ToolResult
from toolwire.ir.request import OutputFormat, Params
from toolwire.ir.response import UpstreamError
from toolwire.local.engine import MAX_JSON_TOKENS, MAX_TOKENS, limit_tokens
from toolwire.local.grammar import check_call
from toolwire.local.plan import plan_call, plan_text
from toolwire.run.tools.refusal import NOTHING_FITS, ranked

SCHEMA = {
    "type": "object",
    "title": "Order",
    "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{3}$", "description": "three letters"},
        "tags": {"type": "array", "items": {"type": "string", "format": "uuid"}, "uniqueItems": True},
    },
    "required": ["code"],
}
QUESTION = Message("user", (Text("Order one."),))


def loss_summary(losses):
    return {(loss.path, loss.concept, loss.severity) for loss in losses}


def test_unsupported_parts_of_a_call_request_are_reported():
    search = Tool("search", kind="builtin")
    request = Request(
        messages=(QUESTION,),
        tools=(Tool("order", "Orders.", SCHEMA), search),
        choice=ToolChoice("required"),
        parallel=True,
        output=OutputFormat("json"),
    )
    assert loss_summary(plan_call(request).losses) == {
        ("/tools/0/input_schema/properties/code/pattern", "pattern", "warning"),
        ("/tools/0/input_schema/properties/tags/uniqueItems", "uniqueItems", "warning"),
        ("/tools/1", "search", "error"),
        ("/parallel", "parallel calls", "info"),
        ("/output", "output format", "warning"),
    }


def test_unsupported_parts_of_a_text_request_are_reported():
    said = Message("assistant", (ToolCall("c1", "order", {"code": "ABC"}), ToolCall("c2", "stop", {})))
    heard = Message("user", (ToolResult("c1", parts=(Text("done"), Media("image", "image/png", "AAAA"))),))
    request = Request(messages=(QUESTION, said, heard), tools=(Tool("search", kind="builtin"),))
    assert loss_summary(plan_text(request).losses) == {
        ("/messages/1/parts/0", "arguments", "warning"),
        ("/messages/2/parts/0", "media in a result", "error"),
        ("/tools/0", "search", "error"),
    }


def test_supported_request_has_no_losses():
    plain = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    request = Request(messages=(QUESTION,), tools=(Tool("weather", "It.", plain),), choice=ToolChoice("required"))
    assert plan_call(request).losses == ()
    assert plan_text(request).losses == ()


@pytest.mark.finding("U12")
def test_texts_and_calls_without_a_limit_get_one():
    assert limit_tokens({}) == MAX_TOKENS < MAX_JSON_TOKENS
    assert limit_tokens({"grammar": "start: x"}) == MAX_JSON_TOKENS
    assert limit_tokens({"max_tokens": 7}) == limit_tokens({"max_completion_tokens": 7}) == 7


def test_report_of_a_result_is_short_unless_the_request_sets_a_limit():
    said = Message("assistant", (ToolCall("c1", "order", {}),))
    heard = Message("user", (ToolResult("c1", parts=(Text("done"),)),))
    request = Request(messages=(QUESTION, said, heard))
    assert plan_text(request).body["max_tokens"] < MAX_TOKENS
    assert limit_tokens(plan_text(replace(request, params=Params(max_tokens=300))).body) == 300


def test_ranked_tools_are_offered_in_their_order():
    tools = tuple(Tool(f"t{number}", "Orders." if number > 8 else "Other.", {"type": "object"}) for number in range(10))
    request = Request(messages=(QUESTION,), tools=tools, extra=ranked([1] * 10))
    assert plan_call(request).functions == ("t0", "t1", "t2", "t3", "t4", "t5", NOTHING_FITS)


def test_only_offered_tools_have_unenforced_keywords():
    tools = tuple(Tool(f"order{number}", "Orders.", SCHEMA) for number in range(10))
    paths = {loss.path.split("/")[2] for loss in plan_call(Request(messages=(QUESTION,), tools=tools)).losses}
    assert paths == {str(number) for number in range(10)}
    unenforced = [
        loss for loss in plan_call(Request(messages=(QUESTION,), tools=tools)).losses if loss.concept == "pattern"
    ]
    assert len(unenforced) == 6


LEVEL = {"type": "object", "properties": {"level": {"type": "integer", "maximum": 10}}, "required": ["level"]}


def plan_level():
    return plan_call(Request(messages=(QUESTION,), tools=(Tool("set_level", "Set it.", LEVEL),)))


@pytest.mark.parametrize(
    "text",
    ['{"name":"set_level","arguments":{"level":42}}', '{"name":"other","arguments":{"level":4}}', "{}", "Hello!"],
)
def test_text_that_the_grammar_forbids_is_refused(text):
    """llama.cpp ignores a grammar that it refuses, without an error."""
    with pytest.raises(UpstreamError, match="set_level"):
        check_call(plan_level().shape("set_level"), text)


@pytest.mark.parametrize("text", ['{"name":"set_level","arguments":{"level":4}}', '{"name":"set_lev', '{"na', ""])
def test_call_and_its_beginning_are_accepted(text):
    check_call(plan_level().shape("set_level"), text)
