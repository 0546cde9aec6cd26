"""The statements of a request, each defined once: docs/wires.md and docs/translation.md are made from them."""

from typing import Any

from msgspec.structs import replace
from statements import (
    ANSWER,
    ASKS_JSON,
    BASE,
    CALL,
    FREE,
    IMAGE,
    MARK,
    NO_STORE,
    NO_TOOLS,
    PDF,
    SCHEMA,
    SEARCH,
    SIGNATURES,
    TOOL,
    USER,
    WEB,
    Statement,
    linked_media,
    read_caches,
    read_calls,
    read_choice,
    read_extra,
    read_field,
    read_media,
    read_order,
    read_output,
    read_parts,
    read_reasoning,
    read_result_media,
    read_results,
    read_schemas,
    read_signatures,
    read_strict_schemas,
    read_texts,
    read_tools,
    reasoning,
    sign,
    stored_media,
    with_answer,
    with_extra,
    with_messages,
    with_params,
    with_property,
    with_tool,
    with_turn,
    with_user,
)

from toolwire.ir import (
    Grammar,
    Media,
    Message,
    Opaque,
    OutputFormat,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolwire.wire import names

__all__ = ["GROUPS", "LOCATED", "STATEMENTS"]

PLAIN_TURN = with_turn(CALL, CALL.result("ok"))
SECOND_CALL = ToolCall("call_2", "f", {"city": f"{MARK}2"}, f'{{"city": "{MARK}2"}}')
LONG_NAME = "find_the_weather_station_that_is_nearest_to_a_city_in_a_country_of_the_world"
LONG_CALL = replace(CALL, name=LONG_NAME)
TEXT_PROPERTY = with_property({"type": "string"})
FREEFORM = with_tool(kind="freeform", input_schema=None)
STARTED = with_answer(Text("ok"))


_CONVERSATION = [
    Statement("system message", BASE, with_messages(Message("system", (Text(MARK),)), USER), read_texts),
    Statement(
        "several system messages",
        with_messages(Message("system", (Text("a"),)), USER),
        with_messages(Message("system", (Text("a"),)), Message("system", (Text(MARK),)), USER),
        read_texts,
    ),
    Statement(
        "system message between others",
        with_messages(USER, USER),
        with_messages(USER, Message("system", (Text(MARK),)), USER),
        read_texts,
        unfitted=True,
    ),
    Statement("developer message", BASE, with_messages(Message("developer", (Text(MARK),)), USER), read_texts),
    Statement("text", BASE, with_messages(Message("user", (Text(MARK),))), read_texts),
    Statement(
        "text.cache",
        BASE,
        with_messages(Message("user", (Text("hi", cache="default"),))),
        lambda r: read_caches(r, Text),
    ),
    Statement("blank text", BASE, with_messages(USER, Message("user", (Text(" "),))), read_texts, unfitted=True),
    Statement("image, inline", BASE, with_user(IMAGE), read_media),
    Statement("image by URL", BASE, linked_media("image", "image/png", f"https://example.com/{MARK}.png"), read_media),
    Statement(
        "image.detail",
        with_user(IMAGE),
        with_user(replace(IMAGE, detail="high")),
        lambda r: [part.detail for part in read_parts(r, Media)],
    ),
    Statement("PDF, inline", BASE, with_user(replace(PDF, name="a.pdf")), read_media),
    Statement(
        "PDF by URL",
        BASE,
        linked_media("file", "application/pdf", f"https://example.com/{MARK}.pdf"),
        read_media,
    ),
    Statement("image by file id", BASE, stored_media("image", media_type="image/png"), read_media),
    Statement("PDF by file id", BASE, stored_media("file", media_type="application/pdf"), read_media),
    Statement("audio", BASE, with_user(Media("audio", "audio/wav", MARK)), read_media),
    Statement("video", BASE, with_user(Media("video", "video/mp4", MARK)), read_media),
    Statement("answer of the assistant", with_messages(USER, USER), with_answer(Text(MARK)), read_texts),
    Statement("image of the assistant", STARTED, with_answer(Text("ok"), IMAGE), read_media),
    Statement("refusal", STARTED, with_answer(Refusal(MARK)), lambda r: [part.text for part in read_parts(r, Refusal)]),
    Statement(
        "reasoning",
        STARTED,
        {wire: with_answer(reasoning(wire), Text("ok")) for wire in names()},
        lambda r: [part.joined_text for part in read_parts(r, Reasoning)],
    ),
    Statement(
        "reasoning.signature",
        STARTED,
        {wire: with_answer(sign(Reasoning(), wire), Text("ok")) for wire in SIGNATURES},
        read_signatures,
    ),
    Statement(
        "assistant message at the start",
        BASE,
        with_messages(Message("assistant", (Text(MARK),)), USER),
        read_texts,
        unfitted=True,
    ),
    Statement(
        "assistant message at the end", BASE, with_messages(USER, Message("assistant", (Text(MARK),))), read_texts
    ),
]

_CALLS = [
    Statement("call", BASE, PLAIN_TURN, read_calls),
    Statement(
        "several calls at once",
        PLAIN_TURN,
        with_messages(
            USER,
            Message("assistant", (CALL, SECOND_CALL)),
            Message("user", (CALL.result("ok"), SECOND_CALL.result("ok"))),
        ),
        read_calls,
    ),
    Statement("call.name of 76 characters", PLAIN_TURN, with_turn(LONG_CALL, LONG_CALL.result("ok")), read_calls),
    Statement(
        "call.signature", PLAIN_TURN, {"gemini": with_turn(sign(CALL, "gemini"), CALL.result("ok"))}, read_signatures
    ),
    Statement(
        "call.cache",
        PLAIN_TURN,
        with_turn(replace(CALL, cache="default"), CALL.result("ok")),
        lambda r: read_caches(r, ToolCall),
    ),
    Statement("freeform call", BASE, with_turn(FREE, FREE.result("ok")), read_calls),
    Statement("text before a call", PLAIN_TURN, with_turn(CALL, CALL.result("ok"), Text(f"{MARK}2")), read_order),
    Statement(
        "text after a call",
        PLAIN_TURN,
        with_messages(USER, Message("assistant", (CALL, Text(f"{MARK}2"))), Message("user", (CALL.result("ok"),))),
        read_order,
    ),
    Statement("result", with_turn(CALL, CALL.result("")), with_turn(CALL, CALL.result(f"{MARK}2")), read_results),
    Statement(
        "result, structured",
        with_turn(CALL, CALL.result("")),
        with_turn(CALL, CALL.result({"celsius": f"{MARK}2"})),
        read_results,
    ),
    Statement("result that failed", PLAIN_TURN, with_turn(CALL, CALL.result(f"{MARK}2", is_error=True)), read_results),
    Statement(
        "result with an image",
        PLAIN_TURN,
        with_turn(CALL, replace(CALL.result("ok"), parts=(Text("ok"), replace(IMAGE, data=f"{MARK}2")))),
        read_result_media,
    ),
    Statement(
        "result.cache",
        PLAIN_TURN,
        with_turn(CALL, replace(CALL.result("ok"), cache="default")),
        lambda r: read_caches(r, ToolResult),
    ),
    Statement(
        "call without a result",
        PLAIN_TURN,
        with_messages(USER, Message("assistant", (CALL,)), USER),
        lambda r: len(read_parts(r, ToolResult)),
        unfitted=True,
    ),
    Statement(
        "call of a built-in tool",
        STARTED,
        {
            "anthropic": with_answer(
                Opaque(
                    "anthropic",
                    "server_tool_use",
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": MARK}},
                ),
                Text("ok"),
            ),
            "gemini": with_answer(
                Opaque("gemini", "executableCode", {"executableCode": {"language": "PYTHON", "code": MARK}}), Text("ok")
            ),
            "openai_responses": with_answer(
                Opaque(
                    "openai_responses",
                    "web_search_call",
                    {
                        "type": "web_search_call",
                        "id": "ws_1",
                        "status": "completed",
                        "action": {"type": "search", "query": MARK},
                    },
                ),
                Text("ok"),
            ),
        },
        read_extra,
    ),
]

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


_PARAMETERS = [
    *(Statement(name, TEXT_PROPERTY, with_property(schema, **more), read_schemas) for name, schema, more in _SCHEMAS),
    *(_strict(*entry) for entry in _SCHEMAS if entry[0] in _STRICT),
]

_TOOLS = [
    Statement("tool", NO_TOOLS, with_tool(name=MARK), lambda r: [tool.name for tool in read_tools(r)]),
    Statement("tool.description", BASE, with_tool(description=MARK), read_field("description")),
    Statement(
        "tool without parameters", BASE, with_tool(input_schema={"type": "object", "properties": {}}), read_schemas
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
    *(
        Statement(
            f"choice {mode}",
            BASE,
            replace(BASE, choice=ToolChoice(mode, chosen)),
            read_choice,
            ("ollama",) if mode == "auto" else (),
        )
        for mode, chosen in (("auto", ()), ("required", ()), ("none", ()), ("tool", ("f",)), ("validated", ()))
    ),
    Statement(
        "choice allowed",
        replace(BASE, tools=(TOOL, replace(TOOL, name="g"))),
        replace(BASE, tools=(TOOL, replace(TOOL, name="g")), choice=ToolChoice("allowed", ("f",))),
        read_choice,
    ),
    Statement("one call at a time", BASE, replace(BASE, parallel=False), lambda r: r.parallel),
]

_SETTINGS = [
    Statement(
        "params.max_tokens",
        with_params(max_tokens=31_000),
        with_params(max_tokens=1_000),
        lambda r: r.params.max_tokens,
    ),
    *(
        Statement(
            f"params.{name}", NO_TOOLS, with_params(**{name: value}), lambda r, name=name: getattr(r.params, name)
        )
        for name, value in (
            ("temperature", 0.5),
            ("top_p", 0.5),
            ("top_k", 5),
            ("stop", ("END",)),
            ("seed", 7),
            ("n", 2),
            ("presence_penalty", 0.1),
            ("frequency_penalty", 0.1),
            ("logprobs", True),
            ("top_logprobs", 3),
            ("user", "u"),
            ("metadata", {"k": "v"}),
            ("service_tier", "flex"),
            ("cache_key", "k"),
            ("safety_identifier", "s"),
            ("verbosity", "low"),
        )
    ),
    Statement(
        "params.store",
        replace(NO_TOOLS, extra=NO_STORE),
        replace(with_params(store=True), extra=NO_STORE),
        lambda r: r.params.store,
    ),
    Statement(
        "params.include_usage",
        replace(NO_TOOLS, stream=True),
        replace(with_params(include_usage=True), stream=True),
        lambda r: r.params.include_usage,
        ("anthropic", "gemini", "ollama", "openai_responses"),
    ),
    Statement(
        "reasoning.effort",
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto", "low")),
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto", "high")),
        read_reasoning("effort"),
    ),
    Statement(
        "reasoning.budget",
        NO_TOOLS,
        replace(NO_TOOLS, reasoning=ReasoningConfig("budget", budget=2048)),
        read_reasoning("budget"),
    ),
    Statement("reasoning off", NO_TOOLS, replace(NO_TOOLS, reasoning=ReasoningConfig("off")), read_reasoning("mode")),
    Statement(
        "reasoning.visible",
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto")),
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto", visible=True)),
        read_reasoning("visible"),
        ("ollama",),
    ),
    Statement("answer as JSON", ASKS_JSON, replace(ASKS_JSON, output=OutputFormat("json")), read_output),
    Statement(
        "answer by a schema",
        NO_TOOLS,
        replace(NO_TOOLS, output=OutputFormat("json_schema", ANSWER, strict=True)),
        read_output,
    ),
    Statement("stream", NO_TOOLS, replace(NO_TOOLS, stream=True), lambda r: r.stream),
    Statement(
        "field that only one wire has",
        NO_TOOLS,
        {wire: with_extra(**{wire: {"x_new": MARK}}) for wire in names()},
        read_extra,
    ),
    Statement(
        "reference to a stored conversation",
        NO_TOOLS,
        {
            "openai_responses": with_extra(openai_responses={"previous_response_id": MARK}),
            "gemini": with_extra(gemini={"cachedContent": f"cachedContents/{MARK}"}),
        },
        read_extra,
    ),
]

GROUPS = {
    "Conversation": _CONVERSATION,
    "Calls and results": _CALLS,
    "Parameters of a tool": _PARAMETERS,
    "Tools and choice": _TOOLS,
    "Settings": _SETTINGS,
}
STATEMENTS = [statement for group in GROUPS.values() for statement in group]
# Those that have a field of their own: schemas are JSON Schema on every wire, and an order or an absence has no field.
_NOT_LOCATED = {
    *[statement.name for statement in _PARAMETERS],
    "tool without parameters",
    "several calls at once",
    "call.name of 76 characters",
    "call without a result",
    "blank text",
    "built-in tool",
    "field that only one wire has",
}
LOCATED = [statement for statement in STATEMENTS if statement.name not in _NOT_LOCATED]
