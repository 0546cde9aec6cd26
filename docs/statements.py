"""Build and read the statements of a request.

A statement is a pair of canonical requests that differ in one thing, and a function that reads this thing from a
request. Fields that only one wire has are in `extra` of that wire, so the same request can be written on every wire.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from toolwire.ir import Artefact, Media, Message, Opaque, Params, Reasoning, Request, Text, Tool, ToolCall, ToolResult
from toolwire.ir.tools import SEARCH_TOOLS
from toolwire.wire import get, names

MARK = "oslo"  # the text of a statement; its position in a document is the location of the statement
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = Tool("f", input_schema=SCHEMA)
CALL = ToolCall("call_1", "f", {"city": MARK}, f'{{"city": "{MARK}"}}')
FREE = ToolCall("call_1", "f", None, MARK, kind="freeform")
USER = Message("user", (Text("hi"),))
BASE = Request("m", (USER,), (TOOL,), params=Params(max_tokens=32_000))
NO_TOOLS = replace(BASE, tools=())
ASKS_JSON = replace(NO_TOOLS, messages=(Message("user", (Text("Answer in JSON."),)),))
# Without it, the encoders write `"store": false`.
NO_STORE = {f"{wire}~": {":store": "absent"} for wire in ("openai_responses", "gemini_interactions")}
IMAGE = Media("image", "image/png", f"iVBORw0KGgoA{MARK}")  # begins as a PNG does
PDF = Media("file", "application/pdf", MARK)
ANSWER: dict[str, Any] = {
    "type": "object",
    "description": MARK,
    "properties": {},
    "required": [],
    "additionalProperties": False,
}
SEARCH = Tool(
    "search",
    kind="builtin",
    extra={
        "anthropic": {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        "openai_responses": {"type": "tool_search"},
    },
)
HOSTED_SEARCHES = {
    wire: Tool(declaration.get("name", "tool_search"), kind="builtin", extra={wire: declaration})
    for wire, declaration in SEARCH.extra.items()
}
LOOKUP = ToolCall("call_1", SEARCH_TOOLS, {"query": "weather"}, kind="search")
WEB = {
    "anthropic": Tool(
        "web_search", kind="builtin", extra={"anthropic": {"type": "web_search_20250305", "name": "web_search"}}
    ),
    "gemini": Tool("googleSearch", kind="builtin", extra={"gemini": {"googleSearch": {}}}),
    "gemini_interactions": Tool(
        "google_search", kind="builtin", extra={"gemini_interactions": {"type": "google_search"}}
    ),
    "openai_responses": Tool("web_search", kind="builtin", extra={"openai_responses": {"type": "web_search"}}),
}
TYPED = {
    wire: get(wire).decode_tools([declaration])[0]
    for wire, declaration in {
        "anthropic": {"type": "bash_20250124", "name": "bash"},
        "openai_responses": {"type": "apply_patch"},
    }.items()
}


class Statement(NamedTuple):
    """One thing that a request can state. `read` returns it from a canonical request.

    `after` is a mapping by wire if the same thing differs from wire to wire; a wire without an entry has no such thing.
    """

    name: str
    before: Request
    after: Request | Mapping[str, Request]
    read: Callable[[Request], Any]
    implied: tuple[str, ...] = ()  # wires that always behave in this way and have no field for it
    unfitted: bool = False  # a client may write it although providers refuse it, so it is encoded without fitting

    def on(self, wire: str) -> Request:
        """Return the request with the statement, for a wire; without it, if the wire has no such thing."""
        return self.after if isinstance(self.after, Request) else self.after.get(wire, self.before)


def with_tool(**fields: Any) -> Request:
    return replace(BASE, tools=(replace(TOOL, **fields),))


def with_property(schema: Any, **more: Any) -> Request:
    """Declare a tool with one required property of this schema."""
    return with_tool(input_schema={"type": "object", "properties": {"city": schema}, "required": ["city"], **more})


def with_user(*parts: Any) -> Request:
    return replace(BASE, messages=(Message("user", (*parts, Text("hi"))),))


def with_messages(*messages: Message) -> Request:
    return replace(BASE, messages=messages)


def with_turn(call: ToolCall, result: Any, *before: Any) -> Request:
    turn = (USER, Message("assistant", (*before, call)), Message("user", (result,)))
    kind = "freeform" if call.kind == "freeform" else "function"
    schema = SCHEMA if kind == "function" else None
    tool = replace(TOOL, name=call.name, kind=kind, input_schema=schema)  # type: ignore[arg-type]
    return replace(BASE, messages=turn, tools=(tool,))


def with_answer(*parts: Any) -> Request:
    return with_messages(USER, Message("assistant", parts), USER)


def with_params(**fields: Any) -> Request:
    return replace(NO_TOOLS, params=replace(NO_TOOLS.params, **fields))


def with_extra(**fields: Any) -> Request:
    return replace(NO_TOOLS, extra=fields)


# Readers: each returns one aspect of a request, without ids and fields of one wire.


def read_parts(request: Request, kind: type) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


def read_texts(request: Request) -> list[tuple[str, str]]:
    """Return the text of the conversation in order, with the roles."""
    return [(message.role, part.text) for message in request.messages for part in message.parts if type(part) is Text]


def read_media(request: Request) -> list[Any]:
    return [(part.kind, part.data, part.url, part.file_id) for part in read_parts(request, Media)]


def read_calls(request: Request) -> list[Any]:
    return [
        (part.name, part.kind, part.raw if part.kind == "freeform" else part.arguments)
        for part in read_parts(request, ToolCall)
    ]


def read_order(request: Request) -> list[Any]:
    """Return the texts and calls of the model in order."""
    return [
        part.text if type(part) is Text else part.name
        for message in request.messages
        if message.role == "assistant"
        for part in message.parts
        if isinstance(part, (Text, ToolCall))
    ]


def read_results(request: Request) -> list[Any]:
    return [
        (part.text if part.structured is None else part.structured, part.is_error)
        for part in read_parts(request, ToolResult)
    ]


def read_result_media(request: Request) -> list[Any]:
    return [
        (inner.kind, inner.data)
        for part in read_parts(request, ToolResult)
        for inner in part.parts
        if isinstance(inner, Media)
    ]


def read_caches(request: Request, kind: type) -> list[Any]:
    return [part.cache for part in read_parts(request, kind)]


def read_tools(request: Request) -> list[Tool]:
    return [tool for tool in request.tools if tool.kind != "builtin"]


def read_schemas(request: Request) -> list[Any]:
    return [tool.input_schema for tool in read_tools(request)]


def read_strict_schemas(request: Request) -> list[Any]:
    return [tool.input_schema if tool.strict else None for tool in read_tools(request)]


def read_field(field: str) -> Callable[[Request], Any]:
    """Return a reader of a field of the tools; unset and empty are the same."""
    return lambda request: [getattr(tool, field) or None for tool in read_tools(request)]


def read_choice(request: Request) -> Any:
    choice = request.choice
    return None if choice is None else (choice.mode, choice.names, choice.required)


def read_reasoning(field: str) -> Callable[[Request], Any]:
    return lambda request: None if request.reasoning is None else getattr(request.reasoning, field)


def read_output(request: Request) -> Any:
    return None if request.output is None else (request.output.kind, request.output.schema)


def read_extra(request: Request) -> list[Any]:
    """Return the fields that only one wire has, of the request and of its built-in tools and parts."""
    return [
        *[fields for name, fields in request.extra.items() if not name.endswith("~")],
        *[next(iter(tool.extra.items())) for tool in request.tools if tool.kind == "builtin"],
        *[part.value for part in read_parts(request, Opaque)],
    ]


def read_signatures(request: Request) -> list[str]:
    parts = [*read_parts(request, Reasoning), *read_parts(request, ToolCall)]
    return [artefact.data for part in parts for artefact in part.artefacts]


PROVIDERS = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "gemini": "google",
    "gemini_interactions": "google",
    "openai_chat": "openai",
    "openai_responses": "openai",
}
_GOOGLE = ("gemini", "gemini_interactions")
SIGNATURES = {
    "anthropic": "signature",
    "bedrock": "signature",
    "gemini": "thought_signature",
    "gemini_interactions": "thought_signature",
    "openai_responses": "encrypted",
}


def sign(part: Any, wire: str) -> Any:
    return replace(part, artefacts=(Artefact(PROVIDERS[wire], SIGNATURES[wire], MARK),))


def reasoning(wire: str) -> Reasoning:
    """Return reasoning in a form that the decoder of a wire makes, which shows that it is the wire's own."""
    form = {":field": "reasoning_content"} if wire == "openai_chat" else {}
    part = Reasoning(MARK, extra={f"{wire}~": form})
    return sign(part, wire) if wire in ("anthropic", "bedrock") else part


def linked_media(kind: Any, media_type: str, url: str) -> dict[str, Request]:
    """Return requests with media by URL; only Google's wires have a media type beside it."""
    return {wire: with_user(Media(kind, media_type if wire in _GOOGLE else None, url=url)) for wire in names()}


def stored_media(kind: Any, **fields: Any) -> dict[str, Request]:
    """Return requests with media that the provider of each wire stores; Bedrock reads them from S3."""
    google = "https://generativelanguage.googleapis.com/v1beta/files/"
    places = {"gemini": google, "gemini_interactions": google, "bedrock": "s3://bucket/"}
    in_s3 = {"media_type": "image/png" if kind == "image" else "application/pdf"}
    return {
        wire: with_user(
            Media(
                kind,
                file_id=places.get(wire, "") + MARK,
                owner=owner,
                **{**fields, **(in_s3 if wire == "bedrock" else {})},
            )
        )
        for wire, owner in PROVIDERS.items()
    }
