"""A scripted model that derives its answer from the request.

It calls the first function that it is offered, with arguments that match the schema, answers with text once it has
results, and with a value of the schema if the request asks for structured output.
"""

import json
from typing import Any

from toolwire.ir.parts import Reasoning, Text, ToolCall, ToolResult
from toolwire.ir.request import Request
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing.instances import instances

__all__ = ["EndlessScript", "answer"]


class EndlessScript(list[Any]):
    """A script that answers every request with its only entry."""

    def pop(self, index: Any = -1) -> Any:
        return self[0]


def answer(request: Request) -> Response:
    """Answer a request."""
    usage = Usage(12, 7)
    tool = next((one for one in request.tools if one.kind == "function"), None)
    may_call = request.choice is None or request.choice.mode != "none"
    if tool is not None and may_call and not _has_results(request):
        call = ToolCall(f"call_{len(request.messages)}", tool.name, _instance(tool.input_schema or {"type": "object"}))
        return Response(parts=(call,), stop=Stop("tool_calls"), usage=usage)
    if request.output is not None and request.output.schema is not None:
        text = json.dumps(_instance(request.output.schema))
        return Response(parts=(Text(text),), stop=Stop("stop"), usage=usage)
    thought = (Reasoning("Considering the question."),) if request.reasoning is not None else ()
    return Response(parts=(*thought, Text("This is a test. It has two sentences.")), stop=Stop("stop"), usage=usage)


def _has_results(request: Request) -> bool:
    """Check whether the last turn of the user has results."""
    for message in reversed(request.messages):
        if message.role == "assistant":
            return False
        if any(isinstance(part, ToolResult) for part in message.parts):
            return True
    return False


def _instance(schema: dict[str, Any]) -> Any:
    """Return a value with content, not an empty one."""
    values = list(instances(_lower_types(schema), seed="sdk example", count=8))
    return max(values, key=lambda value: len(json.dumps(value))) if values else {}


def _lower_types(schema: Any) -> Any:
    """Write the types of a schema in lower case; google-genai's README has a JSON Schema with upper case."""
    if isinstance(schema, dict):
        lowered = {name: _lower_types(value) for name, value in schema.items()}
        kind = lowered.get("type")
        return {**lowered, "type": kind.lower()} if isinstance(kind, str) else lowered
    return [_lower_types(value) for value in schema] if isinstance(schema, list) else schema
