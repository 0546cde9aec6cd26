"""One document and its translations: the elements that they have in common, at exact positions."""

import json
from pathlib import Path

import pytest

from places import TESTS
from tables import every_case
from toolwire.bridge.comparison import compare, documents, reading, sources, text_formats
from toolwire.bridge.comparison import streams as stream_elements
from toolwire.bridge.comparison.reading import MAX_ELEMENTS
from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.ir.events import TextDelta
from toolwire.ir.folding import unfold
from toolwire.ir.parts import Reasoning, Text, ToolCall, ToolResult
from toolwire.ir.pointer import resolve
from toolwire.ir.request import Message, Request
from toolwire.ir.response import Fault, Response, Stop
from toolwire.ir.tools import Tool
from toolwire.stream.positions import CodeUnits, StringOffsets, find_places
from toolwire.text import names as format_names
from toolwire.wire import get, names

PAIRS = [
    (wire, vector)
    for wire in names()
    for vector in json.loads((Path(TESTS) / "vectors" / "wire" / f"{wire}.json").read_text())
    if vector["kind"] in ("request", "response", "tools") and "body" in vector
]
TOOL = {
    "name": "get.weather",
    "description": "Weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z]"},
            "unit": {"enum": ["c", "f"]},
            "place": {"type": "object", "properties": {"street": {"type": "string"}}},
        },
    },
}
REQUEST = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": "Be brief",
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "get.weather",
                    "input": {"city": 'Paris "1" 😀', "place": {"street": "a\nb"}, "days": 3},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "22 C"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                        },
                    ],
                }
            ],
        },
    ],
}


def as_text(document):
    return json.dumps(document, indent=1, ensure_ascii=False)


def placed(document):
    """Return the texts of the elements of a document by id."""
    return {place.id: [document.text[slice(*at)] for at in place.ranges] for place in document.places}


def value_of(text, kind, *, in_string):
    """Parse the text of an element. Arguments and parameters begin with their key; quotes in a string are escaped."""
    if in_string:
        text = json.loads(f'"{text}"')
    if kind not in ("argument", "arguments", "parameter", "parameters"):
        return json.loads(text)
    try:
        value = next(iter(json.loads("{" + text + "}").values()))
    except ValueError:
        value = json.loads(text)  # an item of an array
    if kind == "arguments" and isinstance(value, str):  # JSON text, empty or null for no arguments
        return read_arguments(value)
    return value


def read_arguments(text):
    try:
        return json.loads(text or "{}") or {}
    except ValueError:
        return text


@pytest.mark.one_in(7)
@every_case("wire, vector", PAIRS, ids=[f"{wire}: {vector['name']}" for wire, vector in PAIRS])
def test_linked_elements_have_equal_values_at_both_ends(wire, vector):
    try:
        comparison = compare(as_text(vector["body"]), source=wire, kind=vector["kind"])
    except ProtocolError:
        return  # a vector of invalid documents
    source = {place.id: place for place in comparison.source.places}
    assert set(source) <= set(comparison.elements)
    for output in comparison.outputs:
        assert (output.text is None) == (output.error is not None)
        for place in output.places:
            kind = comparison.elements[place.id].kind
            if place.is_changed or kind in ("tool", "call", "result", "reasoning", "media", "choice", "stop", "param"):
                continue
            begin = source[place.id]
            here = value_of(shown(comparison.source, begin), kind, in_string=is_inside_string(comparison.source, begin))
            if place.pointer is None:  # part of a string
                assert json.loads(f'"{shown(output, place)}"') == here, (output.name, place)
                continue
            there = value_of(shown(output, place), kind, in_string=is_inside_string(output, place))
            if kind in ("parameters", "parameter"):
                assert type(here) is type(there)  # equal as standard JSON Schema; Gemini has its own notation
            else:
                assert here == there, (output.name, place)


def shown(document, place):
    ((start, end),) = place.ranges
    assert start < end
    return document.text[start:end]


def is_inside_string(document, place):
    """Return whether an argument is inside JSON text: its pointer is the pointer of the string with all arguments."""
    if ".a/" not in place.id:
        return False
    return place.pointer.rpartition("/")[2] != place.id.rpartition("/")[2]


def test_most_elements_of_the_vectors_are_linked():
    """The number of links counts, because a matcher without any link makes no mistake."""
    linked = total = 0
    for wire, vector in PAIRS[::9]:
        try:
            comparison = compare(as_text(vector["body"]), source=wire, kind=vector["kind"])
        except ProtocolError:
            continue
        for output in comparison.outputs:
            if output.text is not None:
                linked += len(output.places)
                total += len(comparison.source.places)
    assert linked > 0.8 * total


def test_renamed_tool_is_one_element_in_its_declaration_and_its_call():
    comparison = compare(as_text(REQUEST), targets=["openai_chat"])
    (chat,) = comparison.outputs
    texts = placed(chat)
    assert texts["t0.name"] == texts["c0.name"] != ['"get.weather"']
    changed = {place.id for place in chat.places if place.is_changed}
    assert changed == {"t0.name", "c0.name"}


def test_arguments_in_json_text_have_their_own_positions():
    (chat,) = compare(as_text(REQUEST), targets=["openai_chat"]).outputs
    texts = placed(chat)
    (city,), (street,) = texts["c0.a/city"], texts["c0.a/place/street"]
    assert json.loads(f'"{city}"') == '"city":"Paris \\"1\\" 😀"'
    assert json.loads(f'"{street}"') == '"street":"a\\nb"'


def test_lowered_schema_is_the_same_parameter_with_a_mark():
    (ollama,) = compare(as_text(REQUEST), targets=["ollama"]).outputs
    changed = {place.id for place in ollama.places if place.is_changed}
    assert {"t0.parameters", "t0.p/city"} <= changed
    assert placed(ollama)["t0.p/place/street"][0].startswith('"street"')


def test_moved_image_is_found_in_its_new_message_and_its_loss_at_both_ends():
    comparison = compare(as_text(REQUEST), targets=["openai_chat"])
    (chat,) = comparison.outputs
    assert "image_url" in placed(chat)["m0"][0]
    loss = next(loss for loss in chat.losses if loss.loss.concept == "image in a result")
    assert "tool_result" in comparison.source.text[slice(*loss.source_at)]
    assert '"tool"' in chat.text[slice(*loss.target_at)]


def test_results_follow_their_calls_when_a_target_reorders_them():
    calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "f", "input": {"n": n}} for n in (1, 2)]
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"result {n}"} for n in (2, 1)]
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": results},
        ],
    }
    comparison = compare(as_text(body))
    for output in comparison.outputs:
        texts = placed(output)
        assert "result 2" in texts["r0"][0] and "result 1" in texts["r1"][0], output.name


def test_equal_texts_of_which_one_is_lost_have_no_link():
    messages = [{"role": "user", "content": "same"}, {"role": "assistant", "content": "same"}]
    body = {"model": "m", "messages": [*messages, *messages]}
    (same,) = compare(as_text(body), source="openai_chat", targets=["ollama"]).outputs
    assert {place.id for place in same.places} >= {"x0", "x1", "x2", "x3"}
    fewer = json.loads(as_text(body))
    fewer["messages"].append({"role": "user", "content": [{"type": "text", "text": "same"}] * 2})
    (joined,) = compare(as_text(fewer), source="openai_chat", targets=["ollama"]).outputs
    texts = {place.id: place for place in joined.places if place.id.startswith("x")}
    assert [name for name, place in texts.items() if place.pointer is not None] == ["x1", "x3"]  # the assistant's
    # one of the user's texts is joined of two, which are found by tracing them
    whole = joined.text.index(r'"same\n\nsame"')
    assert texts["x4"].ranges[0][0] == whole + 1 and texts["x4"].ranges[0][1] <= texts["x5"].ranges[0][0]


@pytest.mark.one_in(5)
@every_case("name", format_names())
def test_elements_of_a_prompt_are_their_values(name):
    comparison = compare(as_text(REQUEST), targets=[name])
    (prompt,) = comparison.outputs
    assert prompt.error is None
    texts = placed(prompt)
    assert {"t0.name", "x0", "c0.name"} <= set(texts)
    for place in prompt.places:
        element = comparison.elements[place.id]
        for written in texts[place.id]:
            if element.kind in ("name", "description", "text"):
                assert written == element.label if element.kind != "description" else TOOL["description"]


def test_model_output_has_elements_in_every_wire():
    text = 'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
    comparison = compare(text, targets=["wires", "qwen3_xml"])
    assert (comparison.source.name, comparison.source.family, comparison.kind) == ("hermes", "text", "response")
    assert placed(comparison.source)["c0.a/city"] == ['"city": "Paris"']
    for output in comparison.outputs:
        assert {"c0.name", "c0.a/city"} <= set(placed(output)), output.name


def test_texts_of_a_model_are_found_between_its_calls():
    """The search is between the neighbours: the same text may occur in a call, and a search of everything is quadratic."""
    call = '<tool_call>\n{"name": "f", "arguments": {"said": "first"}}\n</tool_call>\n'
    text = f"first\n{call}second\n{call}first, again"
    comparison = compare(text, source="hermes", targets=["openai_chat"])
    texts = {place.id: place.ranges[0] for place in comparison.source.places if place.id.startswith("x")}
    assert [text[slice(*at)].strip() for at in texts.values()] == ["first", "second", "first, again"]
    assert [text[: at[0]].count("</tool_call>") for at in texts.values()] == [0, 1, 2]


def test_traces_of_a_long_answer_write_it_a_few_times(monkeypatch):
    """One write of 1,500 calls takes 0.15 s, so 200 writes would take half a minute."""
    written = []
    write = text_formats.write_response
    monkeypatch.setattr(text_formats, "write_response", lambda *given: written.append(1) or write(*given))
    for calls, most in ((1500, 10), (15, 200)):
        del written[:]
        blocks = [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {"n": n}} for n in range(calls)]
        answer = {"type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": "tool_use"}
        output = compare(json.dumps(answer), source="anthropic", kind="response", targets=["hermes"]).outputs[0]
        assert 1 < len(written) <= most
        assert len(output.places) >= min(calls, len(written) // 3)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("response", {"type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn"}),
        ("tools", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ],
)
def test_document_without_elements_is_compared_with_every_format(kind, document):
    outputs = compare(json.dumps(document), source="anthropic", kind=kind, targets=["formats"]).outputs
    assert outputs and not any(output.places for output in outputs if output.family == "text")


def test_tools_and_texts_of_results_count_as_parts():
    tools = tuple(Tool(f"t{n}", "", {"type": "object"}) for n in range(30))
    result = ToolResult("c", None, tuple(Text("x") for _ in range(40)))
    request = Request("m", (Message("tool", (result,)),), tools)
    assert text_formats._count_parts(request) == 1 + 1 + 40 + 30


def test_parent_of_an_element_exists_and_is_the_next_one_around_it():
    inner = {"type": "object", "properties": {"z": {"type": "string"}}}
    properties = {
        "x.a": inner,
        "x.p": inner,
        "rows": {"type": "array", "items": {"type": "array", "items": inner}},
    }
    schema = {"type": "object", "properties": properties}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"x.a": {"z": "1"}, "x.p": {"z": "2"}}}
    request = {
        "model": "m",
        "max_tokens": 1,
        "tools": [{"name": "f", "input_schema": schema}],
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [call]}],
    }
    elements = compare(json.dumps(request), source="anthropic", kind="request", targets=["gemini"]).elements
    assert {item.parent for item in elements.values()} <= {None, *elements}
    assert elements["t0.p/rows/~items/~items/z"].parent == "t0.p/rows"
    assert (elements["t0.p/x.p/z"].parent, elements["c0.a/x.a/z"].parent) == ("t0.p/x.p", "c0.a/x.a")
    assert (elements["t0.p/x.a"].parent, elements["c0.a/x.a"].parent) == ("t0.parameters", "c0.args")


def test_strict_mode_makes_an_error_with_the_position_of_the_loss():
    comparison = compare(as_text(REQUEST), targets=["ollama"], strict=True)
    (ollama,) = comparison.outputs
    assert ollama.text is None and ollama.error.type == "LossError"
    assert "pattern" in comparison.source.text[slice(*ollama.error.at)]
    assert ollama.losses


def test_joined_and_extended_texts_are_linked_to_every_text_they_came_from():
    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": 'Say "hello".'}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "22 C", "is_error": True}
    body = {**REQUEST, "system": system, "messages": [*REQUEST["messages"][:2], {"role": "user", "content": [result]}]}
    comparison = compare(as_text(body))
    texts = {element: [shown(comparison.source, place)] for element, place in by_id(comparison.source).items()}
    names = [name for name, element in comparison.elements.items() if element.kind == "text"]
    for output in comparison.outputs:
        found = by_id(output)
        assert {name for name in names if name in found} == set(names), output.name
        for name in names:
            assert shown(output, found[name]).strip('"') == texts[name][0].strip('"'), output.name


def by_id(document):
    return {place.id: place for place in document.places}


def test_long_text_is_not_traced_more_often_than_its_length_permits(monkeypatch):
    written = []
    translate = sources.translate
    monkeypatch.setattr(
        sources, "translate", lambda *given, **options: written.append(1) or translate(*given, **options)
    )
    system = [{"type": "text", "text": f"{number} " + "word " * 50_000} for number in range(8)]
    compare(as_text({**REQUEST, "system": system}), targets=["openai_chat"])
    assert len(written) == 1 + sources._MAX_TRANSLATED // len(as_text({**REQUEST, "system": system})) < 9


@every_case("wire", names())
def test_error_has_its_type_message_and_status(wire):
    fault = Fault("rate_limit", "slow down", 429)
    _, body, _ = get(wire).encode_error(fault)
    comparison = compare(as_text(body), source=wire, kind="error")
    only_text = {wire: {"message"} for wire in ("bedrock", "cohere", "ollama")}
    expected = {**only_text, "gemini": {"type", "message", "status"}}
    assert set(placed(comparison.source)) == expected.get(wire, {"type", "message"})
    for output in comparison.outputs:
        found = placed(output)
        assert set(found) == expected.get(output.name, {"type", "message"}) & set(placed(comparison.source))
        assert found["message"] == ['"slow down"']
    page = compare("<html>busy</html>", source=wire, kind="error")
    assert page.elements == {} and all(output.text for output in page.outputs)


PARTS = (Reasoning("I look."), Text("Grüße "), ToolCall("call_1", "look.at", {"city": "Köln", "days": 3}))


@every_case("wire", sorted({*names()} - {"bedrock"}))  # whose streams are no text
def test_streams_are_linked_event_by_event(wire):
    encoder = get(wire).stream_encoder()
    events = unfold(Response("r1", "m", PARTS, Stop("tool_calls")))
    text = b"".join(encoder.feed(event) for event in split_deltas(events)).decode()
    comparison = compare(text, source=wire, kind="stream")
    assert comparison.source.language in ("sse", "ndjson")
    for output in (comparison.source, *comparison.outputs):
        if output.name == "bedrock":  # its documents
            assert output.language == "ndjson" and '"toolUse":{"toolUseId":"call_1"' in output.text
            continue
        found = placed(output)
        assert {"x0", "c0", "c0.name"} <= set(found), output.name
        assert "".join(found["x0"]) == "Grüße "
        assert found["c0.name"] == ["look.at"] or by_id(output)["c0.name"].is_changed
        assert found.get("c0.args") or {output.name, wire} & {"gemini", "ollama"}


def split_deltas(events):
    """Send each character of a text in an event of its own."""
    for event in events:
        if isinstance(event, TextDelta):
            yield from (TextDelta.of(event.key, letter) for letter in event.text)
        else:
            yield event


def test_cut_and_endless_streams_have_a_bounded_number_of_places(monkeypatch):
    monkeypatch.setattr(stream_elements, "MAX_ELEMENTS", 50)
    encoder = get("openai_chat").stream_encoder()
    data = b"".join(encoder.feed(event) for event in unfold(Response("r1", "m", PARTS, Stop("tool_calls"))))
    cut = compare(data[:-60].decode(), source="openai_chat", kind="stream", targets=["anthropic"])
    assert all(output.error.type == "TruncatedStream" for output in cut.outputs)
    assert "x0" in placed(cut.source)
    encoder = get("openai_chat").stream_encoder()
    events = split_deltas(unfold(Response("r1", "m", (Text("a" * 60),), Stop("stop"))))
    long = b"".join(encoder.feed(event) for event in events)
    comparison = compare(long.decode(), source="openai_chat", kind="stream", targets=["anthropic"])
    assert len(placed(comparison.source)["x0"]) == 50
    assert comparison.left_out == 10


def test_tools_are_compared_with_mcp():
    comparison = compare(as_text({"tools": [TOOL]}))
    assert comparison.kind == "tools"
    mcp = next(output for output in comparison.outputs if output.name == "mcp")
    assert placed(mcp)["t0.p/city"] == placed(comparison.source)["t0.p/city"] or "city" in placed(mcp)["t0.p/city"][0]


@every_case(
    "text, options, error",
    [
        ("", {}, ConfigError),
        ("no document", {}, ProtocolError),
        ("{", {}, ProtocolError),
        ("{}", {"source": "nonesuch"}, ConfigError),
        ("{}", {"kind": "nonesuch"}, ConfigError),
        ('{"messages": []}', {"targets": ["nonesuch"]}, ConfigError),
        ("[" * 100_000, {}, ProtocolError),
        ('{"role": "assistant", "content": "x"}', {}, ConfigError),
        ('{"messages": 1}', {"source": "anthropic", "kind": "request"}, ProtocolError),
        ('{"a": "\ud800"}', {}, ProtocolError),
    ],
)
def test_unreadable_input_is_a_typed_error(text, options, error):
    with pytest.raises(error):
        compare(text, **options)


def test_large_list_of_tools_has_a_bounded_number_of_elements():
    tools = [{**TOOL, "name": f"tool_{n}"} for n in range(1_000)]
    comparison = compare(as_text({"tools": tools}), targets=["mcp"])
    assert len(comparison.elements) <= MAX_ELEMENTS
    assert comparison.left_out > 0
    assert set(placed(comparison.outputs[0])) <= set(comparison.elements)


def test_large_conversation_is_read_as_far_as_it_is_shown(monkeypatch):
    """A text that may occur again in the unread rest has no link: "same" may be its first or its second occurrence."""
    read = []
    read_part = reading._read_part
    for module in (reading, documents):
        monkeypatch.setattr(module, "MAX_ELEMENTS", 50)
    monkeypatch.setattr(reading, "_read_part", lambda *given: read.append(1) or read_part(*given))
    texts = ["same", *map(str, range(50)), "same", "end", "end"]
    messages = [{"role": "user", "content": text} for text in texts]
    comparison = compare(as_text({"model": "m", "messages": messages}), source="openai_chat", targets=["ollama"])
    assert comparison.left_out == 5
    assert len(read) <= 2 * 51
    linked = {place.id for place in comparison.outputs[0].places if place.pointer is not None}
    assert "x1" in linked and "x0" not in linked


def test_places_are_exact_for_escapes_duplicates_and_nesting():
    text = '\n{"a": [1, {"b\\u0041": "x\\n\\ud83d\\ude00y"}, []], "a/b": {}, "k": 1, "k": {"z": 2}}'
    found = find_places(text, ["", "/a/0", "/a/1/bA", "/a~1b", "/k/z", "/k", "/none"])
    assert {pointer: text[at.start : at.end] for pointer, at in found.items()} == {
        "": text[1:],
        "/a/0": "1",
        "/a/1/bA": '"x\\n\\ud83d\\ude00y"',
        "/a~1b": "{}",
        "/k/z": "2",
        "/k": '{"z": 2}',
    }
    place = found["/a/1/bA"]
    assert text[place.member : place.start] == '"b\\u0041": '
    offsets = StringOffsets(text[place.start : place.end], place.start)
    assert [text[offsets.at(n) : offsets.at(n + 1)] for n in range(4)] == ["x", "\\n", "\\ud83d\\ude00", "y"]


@every_case("text", ["plain", "é", "a😀b𝄞c", "😀😀"])
def test_code_units_are_those_of_utf_16(text):
    units = CodeUnits(text)
    for position in range(len(text) + 1):
        assert units.at(position) == len(text[:position].encode("utf-16-le")) // 2


def test_every_place_exists_in_a_document():
    body = json.loads(as_text(REQUEST))
    pointers = ["/tools/0/name", "/messages/1/content/1/input/city"]
    text = as_text(body)
    for pointer, place in find_places(text, pointers).items():
        assert json.loads(text[place.start : place.end]) == resolve(body, pointer)


@pytest.mark.parametrize("name", ["arguments", "index", "delta"])
def test_name_of_a_call_is_not_found_in_object_keys(name):
    function = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    chunks = [
        {
            "id": "r",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-5",
            "choices": [{"index": 0, **choice}],
        }
        for choice in (
            {"delta": {"role": "assistant", "content": None}, "finish_reason": None},
            {"delta": {"tool_calls": [function]}, "finish_reason": None},
            {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"q":1}'}}]}, "finish_reason": None},
            {"delta": {}, "finish_reason": "tool_calls"},
        )
    ]
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    source = compare(text, source="openai_chat", kind="stream", targets=["anthropic"]).source
    (place,) = [place for place in source.places if place.id.endswith(".name")]
    assert [source.text[start - 9 : end + 1] for start, end in place.ranges] == [f'"name": "{name}"']
