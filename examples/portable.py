"""The loop of openai_only.py for any provider: the conversation is canonical, and the wire only determines its encoding."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

import toolwire
from toolwire import Message, Request, Text, ToolCall, ToolResult
from toolwire.schema import validator


@toolwire.tool(effect="idempotent")
def refund(order: int, reason: str) -> str:
    """Refund an order in full. Refunding it again changes nothing.

    Args:
        order: the number on the invoice
        reason: why, for the books
    """
    return f"order {order} is refunded: {reason}"


TOOLS = {tool.name: tool for tool in (refund,)}


def run(call: ToolCall) -> ToolResult:
    """Run one call; errors become results for the model."""
    tool = TOOLS.get(call.name)
    if tool is None or call.arguments is None or call.state != "complete":
        return call.result(f"there is no tool {call.name}, or the call was cut short", is_error=True)
    try:
        validator(tool.input_schema).check(call.arguments)
        return call.result(tool.function(**call.arguments))
    except toolwire.ToolwireError as error:
        return call.result(str(error), is_error=True)


def converse(
    ask: Callable[[dict[str, Any]], dict[str, Any]], question: str, wire: str, model: str, turns: int = 10
) -> str:
    """Run the loop; `ask` sends a request of `wire` to a model and returns the response."""
    codec = toolwire.wire.get(wire)
    request = Request(model, (Message("user", (Text(question),)),), tuple(TOOLS.values()))
    for _ in range(turns):
        prepared = toolwire.prepare(request, codec)
        answer = prepared.exchange.restore(codec.decode_response(ask(codec.encode_request(prepared.request).body)))
        if answer.fault is not None:
            raise toolwire.UpstreamError(answer.fault)
        if not answer.calls:
            return answer.text
        results = Message("user", tuple(run(call) for call in answer.calls))
        request = replace(request, messages=(*request.messages, Message("assistant", answer.parts), results))
    raise TimeoutError(f"no answer in {turns} turns")
