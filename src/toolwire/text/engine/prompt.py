"""Render the declarations of tools for the prompt, and the results of calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.text import dumps
from ...ir.tools import Tool
from ...ir.value import Value
from .style import Style
from .typescript import render_typescript

__all__ = ["ResultTemplate", "ToolPrompt", "render_tools"]

_FIELD = re.compile(r"\{(id|name|json|content)\}")


class ToolPrompt(Value, frozen=True):
    """The text `before` the tools, each as an `entry`, and `after` them.

    `explain` adds how to call one, for models that were not trained on the format.
    """

    before: str = "# Tools\n\nYou may call these functions. Their signatures are JSON, one a line:\n<tools>\n"
    after: str = "\n</tools>"
    entry: Literal["openai", "function", "typescript", "prose", "signature"] = "openai"
    join: str = "\n"
    explain: bool = True


class ResultTemplate(Value, frozen=True):
    """The template of a result and its `role`; if `grouped`, several results share one message."""

    template: str = "<tool_response>\n{content}\n</tool_response>"
    role: Literal["user", "tool"] = "user"
    grouped: bool = True

    def render(self, result: ToolResult, join: Callable[[Sequence[str]], str] = "".join) -> str:
        """Fill the template. An error is marked in the text, because text formats have no error flag.

        `join` concatenates the text of the template and the fields.
        """
        content = f"error: {result.text}" if result.is_error else result.text
        fields = {"content": content, "json": dumps(content), "id": result.call_id, "name": result.name or ""}
        pieces = _FIELD.split(self.template)  # literal text and names of fields alternate
        return join([fields[piece] if number % 2 else piece for number, piece in enumerate(pieces)])

    @property
    def literals(self) -> tuple[str, ...]:
        """The text of the template between the fields."""
        return tuple(_FIELD.split(self.template)[::2])


def render_tools(declare: ToolPrompt, style: Style, tools: Sequence[Tool], *, one_call: bool) -> str:
    """Return the text for the system prompt; empty without tools."""
    if not tools:
        return ""
    entries = declare.join.join(_render_entry(declare, tool) for tool in tools)
    text = f"{declare.before}{entries}{declare.after}"
    if not declare.explain:
        return text
    many = "one call a turn" if one_call else "as many calls as you need"
    return (
        f"{text}\n\nTo call a function, write exactly this, with {many}, and nothing behind it:\n"
        f"{style.write([_example_call(tools[0])])}\n\nValues follow the parameter's type. "
        "Do not write the result yourself: it will be given to you."
    )


def _example_call(tool: Tool) -> ToolCall:
    """Build a call of a tool with its own example, or with placeholders of the right type."""
    if tool.examples:
        return ToolCall("", tool.name, tool.examples[0])
    schema = tool.input_schema or {}
    properties = schema.get("properties")
    required = schema.get("required")
    names = [name for name in (required if isinstance(required, list) else []) if isinstance(name, str)]
    names = names or list(properties if isinstance(properties, dict) else [])[:1]
    known: Object = properties if isinstance(properties, dict) else {}
    return ToolCall("call00000", tool.name, {name: _placeholder(name, known.get(name)) for name in names})


def _placeholder(name: str, schema: object) -> object:
    """Return an example value for a parameter: from its schema if that has one, else by its type."""
    if not isinstance(schema, dict):
        return f"the {name}"
    for source in ("enum", "examples"):
        if isinstance(schema.get(source), list) and schema[source]:
            return schema[source][0]
    for source in ("const", "default"):
        if schema.get(source) is not None:
            return schema[source]
    simple: Object = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    kind = schema.get("type")
    return simple.get(kind, f"the {name}") if isinstance(kind, str) else f"the {name}"


def _render_signature(tool: Tool) -> str:
    """Render a tool with few tokens: the names of its parameters, and the first line of its description."""
    properties = (tool.input_schema or {}).get("properties")
    description = (tool.description or "").strip().partition("\n")[0]
    return f"- {tool.name}({', '.join(properties or ())})" + (f": {description}" if description else "")


def _render_entry(declare: ToolPrompt, tool: Tool) -> str:
    """Render the declaration of one tool in the notation that `declare.entry` names."""
    if declare.entry == "typescript":
        return render_typescript(tool)
    if declare.entry == "signature":
        return _render_signature(tool)
    function: Object = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    schema = tool.input_schema or {"type": "object", "properties": {}}
    function["parameters"] = schema
    if declare.entry == "prose":
        description = f": {tool.description}" if tool.description else ""
        return f"## {tool.name}{description}\nParameters: {dumps(schema)}"
    return dumps(function if declare.entry == "function" else {"type": "function", "function": function})
