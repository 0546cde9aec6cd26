"""Strategies for canonical values: anything an author could build, sound or not quite."""

import string
from collections import Counter

from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.ir import (
    Alternative,
    Artefact,
    Fault,
    Media,
    Message,
    Opaque,
    OutputFormat,
    Params,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Request,
    Response,
    Stop,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from toolwire.ir.text import dumps

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
some_words = words.filter(bool)
names = st.one_of(
    st.sampled_from(["get_weather", "f", "a.b", "träume", "x" * 70, "mcp/server/tool", "9lives"]), some_words
)
ids = st.one_of(st.sampled_from(["", "call_1", "0", "toolu_01", "x" * 90, "id with space"]), words)
numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False, width=32))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(words, json_values, max_size=3)
artefacts = st.lists(
    st.builds(
        Artefact, st.sampled_from(["anthropic", "openai", "google"]), st.just("signature"), st.just("c2lnbmF0dXJl")
    ),
    max_size=1,
).map(tuple)

texts = st.builds(Text, words, cache=st.sampled_from([None, None, "5m", "default"]))
media = st.builds(
    lambda kind, name: Media(*kind, "aGVsbG8=", name=name),
    st.sampled_from(
        [
            ("image", "image/png"),
            ("audio", "audio/wav"),
            ("video", "video/mp4"),
            ("file", "application/pdf"),
            ("file", "audio/wav"),
        ]
    ),
    st.sampled_from([None, "a.pdf"]),
)


@st.composite
def calls(draw):
    if draw(st.booleans()) and draw(st.booleans()):
        return ToolCall(draw(ids), draw(names), None, draw(words), "complete", "freeform")
    arguments = draw(objects)
    raw = draw(st.sampled_from([None, dumps(arguments), "{", "[1]", ""]))
    if raw in ("{", "[1]"):
        return ToolCall(draw(ids), draw(names), None, raw, "truncated" if raw == "{" else "invalid")
    return ToolCall(draw(ids), draw(names), {} if raw == "" else arguments, raw, artefacts=draw(artefacts))


search_calls = st.builds(ToolCall, ids, st.just("search_tools"), objects, kind=st.just("search"))
results = st.builds(
    ToolResult,
    ids,
    st.one_of(st.none(), names),
    st.lists(st.one_of(texts, media), max_size=2).map(tuple),
    json_values,
    st.booleans(),
    found=st.sampled_from([(), (), ("get_weather",), ("a.b", "f")]),
)
own_id = {"openai_responses": {"id": "rs_1"}}
reasonings = st.builds(Reasoning, words, st.lists(words, max_size=2).map(tuple), artefacts, st.just(own_id))
user_messages = st.builds(Message, st.just("user"), st.lists(st.one_of(texts, media, results), max_size=3).map(tuple))
assistant_messages = st.builds(
    Message, st.just("assistant"), st.lists(st.one_of(texts, calls(), search_calls, reasonings), max_size=4).map(tuple)
)
system_messages = st.builds(
    Message, st.sampled_from(["system", "developer"]), st.lists(texts, min_size=1, max_size=2).map(tuple)
)
messages = st.one_of(user_messages, assistant_messages, system_messages)
tools = st.builds(
    Tool,
    names,
    st.one_of(st.none(), words),
    st.one_of(st.none(), st.just({"type": "object", "properties": {"city": {"type": "string"}}})),
    strict=st.sampled_from([None, True, False]),
    kind=st.sampled_from(["function", "function", "freeform", "search"]),
    deferred=st.sampled_from([None, None, True]),
    examples=st.lists(objects, max_size=1).map(tuple),
)


@st.composite
def requests(draw):
    declared = tuple(draw(st.lists(tools, max_size=3, unique_by=lambda tool: tool.name)))
    mode = draw(st.sampled_from([None, "auto", "required", "none", "tool", "allowed", "validated"]))
    if not declared and mode in ("tool", "allowed"):
        mode = None
    chosen = (declared[0].name,) if mode in ("tool", "allowed") else ()
    return Request(
        draw(st.sampled_from(["m", "claude-sonnet-4-5", "gemini-3-pro", "gpt-5.2"])),
        tuple(draw(st.lists(messages, max_size=6))),
        declared,
        None if mode is None else ToolChoice(mode, chosen, draw(st.booleans()) and mode == "allowed"),
        draw(st.sampled_from([None, True, False])),
        draw(params),
        draw(st.one_of(st.none(), reasoning_configs)),
        draw(st.one_of(st.none(), output_formats)),
        draw(st.sampled_from([None, True, False])),
    )


def distinct(request):
    """Give every reasoning part an id of its own, as a provider does."""
    numbers = Counter()

    def renamed(part):
        if not isinstance(part, Reasoning):
            return part
        numbers["rs"] += 1
        return replace(part, extra={"openai_responses": {"id": f"rs_{numbers['rs']}"}})

    messages = tuple(replace(one, parts=tuple(map(renamed, one.parts))) for one in request.messages)
    return replace(request, messages=messages)


params = st.builds(
    Params,
    max_tokens=st.sampled_from([None, 1, 4096]),
    temperature=st.sampled_from([None, 0, 0.7]),
    top_k=st.sampled_from([None, 40]),
    stop=st.sampled_from([None, ("x",), ("a", "b")]),
    seed=st.sampled_from([None, 7]),
    n=st.sampled_from([None, 1, 2]),
    user=st.sampled_from([None, "u", '{"device": 1}']),
    metadata=st.one_of(st.none(), st.dictionaries(st.sampled_from(string.ascii_letters), words, max_size=2)),
)
reasoning_configs = st.builds(
    ReasoningConfig,
    st.sampled_from([None, "off", "auto"]),
    st.sampled_from([None, "low", "high"]),
    st.sampled_from([None, 1024]),
    st.sampled_from([None, True, False]),
)
output_formats = st.one_of(
    st.builds(OutputFormat, st.sampled_from(["text", "json"])),
    st.builds(OutputFormat, st.just("json_schema"), st.just({"type": "object"}), st.just("answer")),
)

response_parts = st.lists(
    st.one_of(some_words.map(Text), some_words.map(Refusal), calls(), search_calls, reasonings), max_size=4
).map(tuple)
stops = st.sampled_from(["stop", "tool_calls", "length", "content_filter", "refusal", "pause", "unknown"]).map(Stop)
usages = st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6))
responses = st.builds(
    Response,
    st.sampled_from(["resp_1", "msg_1"]),
    st.just("m"),
    response_parts,
    stops,
    st.one_of(st.none(), usages),
    st.sampled_from([None, 1_700_000_000]),
    st.lists(st.builds(Alternative, response_parts, stops), max_size=1).map(tuple),
)

extras = st.sampled_from([{}, {"gemini": {"a": 1}}, {"anthropic": {"citations": [{"x": []}]}, "anthropic~": {":f": 0}}])
any_calls = st.builds(
    ToolCall,
    ids,
    names,
    st.one_of(st.none(), objects),
    st.sampled_from([None, "", "{", "null", "x", '{"a": 1}']),
    st.sampled_from(["complete", "truncated", "invalid"]),
    st.sampled_from(["function", "freeform"]),
    st.sampled_from([None, "ns"]),
    st.sampled_from([None, "5m"]),
    artefacts,
    extras,
)
any_parts = st.lists(
    st.one_of(
        st.builds(Text, words, st.sampled_from([None, "5m"]), artefacts, extras),
        st.builds(Refusal, words, extras),
        st.builds(Reasoning, words, st.lists(words, max_size=3).map(tuple), artefacts, extras),
        st.builds(Opaque, st.just("gemini"), st.just("code"), objects),
        any_calls,
        media,
    ),
    max_size=4,
).map(tuple)
any_stops = st.one_of(
    st.none(),
    st.builds(Stop, st.sampled_from(["stop", "refusal", "length"]), st.none(), st.sampled_from([None, "no"]), extras),
)
any_responses = st.builds(
    Response,
    st.sampled_from(["", "r"]),
    st.just("m"),
    any_parts,
    any_stops,
    st.one_of(st.none(), usages),
    st.sampled_from([None, 0, 1_700_000_000]),
    st.lists(st.builds(Alternative, any_parts, any_stops, extras), max_size=2).map(tuple),
    st.sampled_from([None, None, Fault("server", "failed", 500)]),
    extras,
)
"""Every value of the type, including answers that no provider sends."""
