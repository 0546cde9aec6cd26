"""What the local model does not get to see, or is not held to, is told."""

from toolwire import Media, Message, Request, Text, Tool, ToolCall, ToolChoice, ToolResult
from toolwire.ir.request import OutputFormat
from toolwire.local.plan import plan_call, plan_text

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
        ("/tools/0/input_schema/properties/tags/items/format", "format", "warning"),
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
