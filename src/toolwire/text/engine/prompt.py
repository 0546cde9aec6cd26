"""Text that a format adds to the prompt: declarations of tools, results of calls, and the beginning of a forced call.

Declarations are written as the models of the format were trained to read them: JSON, prose, signatures or TypeScript.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.text import dumps
from ...ir.tools import Tool
from ...ir.value import Value
from .style import Style

_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
# levels of a type in the prompt, where deeper ones are `any`: a line must stay readable. Not measured
_DEPTH = 8


def render_typescript(tool: Tool) -> str:
    """Render the tool as `type NAME = (_: {…}) => any;`."""
    comment = "".join(f"// {line}\n" for line in (tool.description or "").splitlines())
    schema = tool.input_schema or {}
    if not schema.get("properties"):
        return f"{comment}type {tool.name} = () => any;"
    return f"{comment}type {tool.name} = (_: {_render_object(schema, 0)}) => any;"


def _render_object(schema: dict[str, Any], depth: int) -> str:
    """Render the properties, each after its description as a comment; `?` marks an optional one."""
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    lines = []
    for name, part in schema["properties"].items():
        described = part.get("description") if isinstance(part, dict) else None
        lines += [f"// {line}" for line in str(described).splitlines()] if described else []
        default = f", // default: {dumps(part['default'])}" if isinstance(part, dict) and "default" in part else ","
        lines.append(f"{name}{'' if name in needed else '?'}: {_render_type(part, depth + 1)}{default}")
    return "{\n" + "\n".join(lines) + "\n}"


def _render_type(schema: Any, depth: int) -> str:
    """Render a schema as a type; `any` for a schema that has no simple type, or beyond the depth limit."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(map(dumps, schema["enum"])) or "any"
    if "const" in schema:
        return dumps(schema["const"])
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return " | ".join(dict.fromkeys(_render_type(branch, depth + 1) for branch in schema[word])) or "any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_render_type({**schema, "type": name}, depth + 1) for name in kind) or "any"
    if kind == "array":
        return f"{_parenthesise(_render_type(schema.get('items'), depth + 1))}[]"
    if kind == "object":
        return _render_object(schema, depth) if isinstance(schema.get("properties"), dict) else "object"
    return _SIMPLE.get(kind, "any") if isinstance(kind, str) else "any"


def _parenthesise(name: str) -> str:
    return f"({name})" if " | " in name else name


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


# The beginning of a call, for a prompt that forces the model to make one.
#
# It is the common prefix of all calls of the offered tools, derived by writing such calls in the format. The model
# chooses the name, if there are several, and the call's id.


_ARGUMENTS: tuple[Object, ...] = ({"a": "x"}, {"b": 1}, {"c": [True], "d": None})
_ANY_TOOL = ("a", "b")  # names without a common beginning


def call_opening(style: Style, tools: Sequence[Tool]) -> str:
    """Return the text with which every call of these tools begins; empty if they have nothing in common."""
    if not tools:
        return ""
    names = (tools[0].name,) if len(tools) == 1 else _ANY_TOOL
    arguments = _ARGUMENTS if all((tool.input_schema or {}).get("required") for tool in tools) else (*_ARGUMENTS, {})
    return _without_partial_token(_common_prefix(list(_write_samples(style, names, arguments))))


def _write_samples(style: Style, names: Sequence[str], arguments: Sequence[Object]) -> Iterator[str]:
    """Write calls with different ids, because some formats write the id, and some number their calls in it."""
    for name in names:
        for number, sample in enumerate(arguments):
            for call_id in (str(number) * 9, f"functions.{name}:{number}"):
                yield style.write([ToolCall(call_id, name, sample)])


def _common_prefix(texts: Sequence[str]) -> str:
    """Return the common prefix, which is the same for the first and the last text in sorted order."""
    first, last = min(texts), max(texts)
    length = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length]


def _without_partial_token(text: str) -> str:
    """Remove the beginning of a special token from the end, because the model has to write such a token as a whole.

    A tag with attributes, such as `<invoke name="`, is not one token.
    """
    start = text.rfind("<")
    return text[:start] if start > text.rfind(">") and "=" not in text[start:] else text
