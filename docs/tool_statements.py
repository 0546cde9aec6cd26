"""Statements about tools: their parameters, their other fields, and the tool choice."""

from typing import Any

from msgspec.structs import replace
from statements import (
    BASE,
    HOSTED_SEARCHES,
    MARK,
    NO_TOOLS,
    SCHEMA,
    SEARCH,
    TOOL,
    TYPED,
    WEB,
    Statement,
    read_choice,
    read_extra,
    read_field,
    read_schemas,
    read_strict_schemas,
    read_tools,
    with_property,
    with_tool,
)

from toolwire.ir import Grammar, ToolChoice

__all__ = ["PARAMETERS", "TOOLS"]

TEXT_PROPERTY = with_property({"type": "string"})
FREEFORM = with_tool(kind="freeform", input_schema=None)
THREE_TOOLS = replace(BASE, tools=(TOOL, replace(TOOL, name="g"), replace(TOOL, name="h")))
CLOSED = {**SCHEMA, "additionalProperties": False}
_SCHEMAS: tuple[tuple[str, Any, Any], ...] = (
    ("free map", {"type": "object", "additionalProperties": {"type": "string"}}, {}),
    ("optional property", {"type": "string"}, {"required": []}),
    ("closed object", {"type": "string"}, {"additionalProperties": False}),
    ("bounds", {"type": "integer", "minimum": 1, "maximum": 9}, {}),
    ("pattern", {"type": "string", "pattern": "^[a-z]+$"}, {}),
    ("format", {"type": "string", "format": "date-time"}, {}),
    ("default", {"type": "string", "default": MARK}, {}),
    ("nullable", {"type": ["string", "null"]}, {}),
    ("integer enum", {"type": "integer", "enum": [1, 2]}, {}),
    ("anyOf", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, {}),
    ("$ref", {"$ref": "#/$defs/name"}, {"$defs": {"name": {"type": "string", "description": MARK}}}),
    (
        "recursion",
        {"$ref": "#/$defs/node"},
        {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}},
    ),
)


_STRICT = ("optional property", "bounds", "pattern", "default", "nullable")  # handled differently in a strict tool


def _strict(name: str, schema: Any, more: Any) -> Statement:
    """Return the statement in a strict tool, whose objects are closed."""
    request = with_property(schema, additionalProperties=False, **more)
    strict = replace(request, tools=(replace(request.tools[0], strict=True),))
    return Statement(f"{name}, strict", TEXT_PROPERTY, strict, read_strict_schemas)


PARAMETERS = [
    *(Statement(name, TEXT_PROPERTY, with_property(schema, **more), read_schemas) for name, schema, more in _SCHEMAS),
    *(_strict(*entry) for entry in _SCHEMAS if entry[0] in _STRICT),
]

TOOLS = [
    Statement("tool", NO_TOOLS, with_tool(name=MARK), lambda r: [tool.name for tool in read_tools(r)]),
    Statement("tool.description", BASE, with_tool(description=MARK), read_field("description")),
    Statement(
        "tool without parameters", BASE, with_tool(input_schema={"type": "object", "properties": {}}), read_schemas
    ),
    Statement(
        "tool.name with a dot", BASE, with_tool(name=f"f.{MARK}"), lambda r: [tool.name for tool in read_tools(r)]
    ),
    Statement(
        "129 tools",
        BASE,
        replace(BASE, tools=tuple(replace(TOOL, name=f"f{number}") for number in range(129))),
        lambda r: len(r.tools) == 129,
    ),
    Statement(
        "tool.strict",
        with_tool(input_schema=CLOSED),
        with_tool(input_schema=CLOSED, strict=True),
        read_field("strict"),
    ),
    Statement(
        "tool.output_schema",
        BASE,
        with_tool(output_schema={"type": "object", "description": MARK}),
        read_field("output_schema"),
    ),
    Statement("tool.examples", BASE, with_tool(examples=({"city": MARK},)), read_field("examples")),
    Statement("tool.namespace", BASE, with_tool(namespace=MARK), read_field("namespace")),
    Statement("tool.cache", BASE, with_tool(cache="default"), read_field("cache")),
    Statement(
        "tool.deferred, beside a search tool",
        replace(BASE, tools=(SEARCH, TOOL)),
        replace(BASE, tools=(SEARCH, replace(TOOL, deferred=True))),
        read_field("deferred"),
    ),
    Statement(
        "tool.deferred, without a search tool",
        BASE,
        with_tool(deferred=True),
        read_field("deferred"),
        unfitted=True,
    ),
    Statement(
        "tool search of the provider",
        BASE,
        {wire: replace(BASE, tools=(TOOL, tool)) for wire, tool in HOSTED_SEARCHES.items()},
        lambda r: any(tool.kind == "builtin" and tool.name.startswith("tool_search") for tool in r.tools),
    ),
    Statement(
        "freeform tool",
        NO_TOOLS,
        with_tool(name=MARK, kind="freeform", input_schema=None),
        lambda r: [(tool.name, tool.kind) for tool in r.tools],
    ),
    Statement(
        "freeform tool.grammar",
        FREEFORM,
        with_tool(kind="freeform", input_schema=None, grammar=Grammar("lark", MARK)),
        read_field("grammar"),
    ),
    Statement(
        "built-in tool", BASE, {wire: replace(BASE, tools=(TOOL, tool)) for wire, tool in WEB.items()}, read_extra
    ),
    Statement(
        "tool that the client runs, declared by its type",
        BASE,
        {wire: replace(BASE, tools=(TOOL, tool)) for wire, tool in TYPED.items()},
        lambda r: [tool.name for tool in read_tools(r)],
    ),
    *(
        Statement(
            f"choice {mode}",
            BASE,
            replace(BASE, choice=ToolChoice(mode, chosen)),
            read_choice,
            ("cohere", "ollama") if mode == "auto" else (),
        )
        for mode, chosen in (("auto", ()), ("required", ()), ("none", ()), ("tool", ("f",)), ("validated", ()))
    ),
    Statement(
        "choice allowed",
        THREE_TOOLS,
        replace(THREE_TOOLS, choice=ToolChoice("allowed", ("f", "g"))),
        read_choice,
    ),
    Statement(
        "choice allowed, required",
        THREE_TOOLS,
        replace(THREE_TOOLS, choice=ToolChoice("allowed", ("f", "g"), required=True)),
        read_choice,
    ),
    Statement(
        "parallel calls",
        BASE,
        replace(BASE, parallel=True),
        lambda r: r.parallel,
        ("bedrock", "cohere", "gemini", "gemini_interactions", "ollama"),
    ),
    Statement("one call at a time", BASE, replace(BASE, parallel=False), lambda r: r.parallel),
]
