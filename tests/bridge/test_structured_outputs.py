"""Structured outputs: schemas fit every target, and answers fit the schema of the client."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from output_schemas import SCHEMAS

from sdk_validation import validate_request
from tables import every_case
from toolwire import translate, translate_stream
from toolwire.audit import check_body
from toolwire.bridge.restoration.output import OutputLifter
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.events import ResponseEnd, ResponseStart, StreamFault, TextDelta, TextEnd, TextStart
from toolwire.ir.folding import fold, unfold
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Refusal, Text, ToolCall
from toolwire.ir.pointer import resolve
from toolwire.ir.request import Message, OutputFormat, Request
from toolwire.ir.response import Alternative, Fault, Response, Stop
from toolwire.ir.tools import Tool
from toolwire.schema.dialects import DIALECTS, output_dialect
from toolwire.schema.lowering.conformance import parameter_counts, violations
from toolwire.schema.lowering.lowered import lower
from toolwire.schema.parsing.membership import json_equal
from toolwire.testing.instances import instances
from toolwire.testing.preservation import check_preservation
from toolwire.wire import capabilities_for, get

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
PAIRS = [(source, target) for source in WIRES for target in WIRES if source != target]
USER = (Message("user", (Text("x"),)),)
MODELS = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-pro", "ollama": "llama", "openai_chat": "gpt-5"}


def body_of(wire: str, output: OutputFormat, **fields: object) -> dict:
    request = Request(MODELS.get(wire, "gpt-5"), USER, output=output, **fields)
    return get(wire).encode_request(request).body


def sent_format(wire: str, body: dict) -> dict:
    """The fields of the output format in a body, as `schema`, `name` and `strict`."""
    if wire == "openai_chat":
        return body["response_format"]["json_schema"]
    if wire == "openai_responses":
        return body["text"]["format"]
    if wire == "anthropic":
        return body["output_config"]["format"]
    if wire == "gemini":
        assert body["generationConfig"]["responseMimeType"] == "application/json"
        return {"schema": body["generationConfig"]["responseJsonSchema"]}
    if wire == "gemini_interactions":
        assert body["response_format"]["mime_type"] == "application/json"
        return {"schema": body["response_format"]["schema"]}
    if wire == "cohere":
        return {"schema": body["response_format"]["json_schema"]}
    return {"schema": body["format"]}


def without_nulls(value: object) -> object:
    """The value up to an explicit null under an optional property: absent and null are the same to a model."""
    if type(value) is dict:
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if type(value) is list else value


def answer_events(text: str, size: int) -> list:
    deltas = [TextDelta.of(0, text[start : start + size]) for start in range(0, len(text), size)]
    return [ResponseStart("r"), TextStart(0), *deltas, TextEnd(0), ResponseEnd((Stop("stop"),))]


def lift(lowered, text: str, size: int) -> tuple[str, bool]:
    """The lifted text, fed in pieces of `size`, and whether there was a problem."""
    lifter = OutputLifter(0, lowered)
    events = [each for event in answer_events(text, size)[2:-2] for each in lifter.feed(event)]
    events += lifter.end(TextEnd(0))
    return "".join(event.text for event in events if type(event) is TextDelta), lifter.problem is not None


@pytest.mark.finding("G4")
@pytest.mark.one_in(4)
@every_case("name", SCHEMAS)
@every_case(("source", "target"), PAIRS)
def test_sent_schemas_conform_to_the_target(source: str, target: str, name: str) -> None:
    for strict in (True, None, False):
        body = body_of(source, OutputFormat("json_schema", SCHEMAS[name], "place", strict=strict))
        translation = translate(body, source=source, target=target)
        sent = sent_format(target, translation.body)
        dialect = output_dialect(get(target).dialect, strict=sent.get("strict"))
        assert violations(sent["schema"], dialect) == []
        for loss in translation.losses:
            resolve(body, loss.path)  # every pointer exists


TARGET_MODELS = {
    "anthropic": ("claude-opus-4-8", "claude-sonnet-4-5", "claude-sonnet-4-0"),
    "gemini": ("gemini-3-pro", "gemini-2.5-flash"),
    "gemini_interactions": ("gemini-3-pro", "gemini-2.5-flash"),
    "cohere": ("command-a-03-2025",),
    "ollama": ("llama3.3",),
    "openai_chat": ("gpt-5", "gpt-4o"),
    "openai_responses": ("gpt-5", "gpt-4o"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_no_provider_rejects_the_form_of_the_answer(source: str, target: str) -> None:
    """`check_body` has the documented constraints of the providers, written independently of the dialects.

    It has none of Interactions, whose requests are checked against the types of the SDK.
    """
    outputs = [
        OutputFormat("json_schema", schema, "a b", "c", strict)
        for schema in SCHEMAS.values()
        for strict in (True, None)
    ]
    for output in (OutputFormat("json"), *outputs):
        for tools in ((), (Tool("f", input_schema=SCHEMAS["plain"], strict=True),)):
            body = body_of(source, output, tools=tools)
            for model in TARGET_MODELS[target]:
                sent = translate(body, source=source, target=target, model=model).body
                if target == "gemini_interactions":
                    validate_request(target, sent)
                else:
                    assert check_body(sent, target, model) == []


@every_case(("source", "target"), PAIRS)
def test_losses_point_to_the_keyword(source: str, target: str) -> None:
    """No provider enforces `uniqueItems`."""
    body = body_of(source, OutputFormat("json_schema", SCHEMAS["bounds"], strict=True))
    losses = translate(body, source=source, target=target).losses
    [loss] = [loss for loss in losses if loss.path.endswith("/properties/tags/uniqueItems")]
    assert resolve(body, loss.path) is True
    assert loss.severity == "warning" and "checked afterwards" not in loss.detail


@pytest.mark.one_in(3)
@every_case("name", SCHEMAS)
@every_case("target", WIRES)
def test_answers_lift_to_values_of_the_schema(target: str, name: str) -> None:
    schema = SCHEMAS[name]
    request = Request("m", USER, output=OutputFormat("json_schema", schema, strict=True))
    prepared = prepare(request, target)
    lowered = lower(schema, output_dialect(get(target).dialect, strict=True))
    assert prepared.request.output.schema == lowered.schema
    values = list(instances(schema, seed=name, count=12))
    assert values
    for value in values:
        for text in (json.dumps(lowered.encode(value)), json.dumps(lowered.encode(value), indent=2)):
            whole = prepared.exchange.restore(Response(parts=(Text(text),), stop=Stop("stop")))
            assert json_equal(without_nulls(json.loads(whole.text)), without_nulls(value))
            for size in (1, 2, 3, 7, 1000):
                feed = prepared.exchange.make_restorer().feed
                streamed = fold([each for event in answer_events(text, size) for each in feed(event)])
                assert streamed.parts == whole.parts


@every_case("name", [name for name in SCHEMAS if SCHEMAS[name].get("type") == "object"])
@every_case("target", WIRES)
def test_losses_report_what_is_not_enforced(target: str, name: str) -> None:
    dialect = output_dialect(get(target).dialect, strict=True)
    lowered = lower(SCHEMAS[name], dialect)
    reported = any(loss.severity != "info" for loss in lowered.losses)
    result = check_preservation(
        SCHEMAS[name], lowered.schema, dialect, lift=lowered.lift, encode=lowered.encode, reported=reported, seed=name
    )
    assert result is not None and result.is_honest


@pytest.mark.one_in(3)
@every_case(("source", "target"), PAIRS)
@every_case("name", ["optional properties", "free-form map", "array at the root", "illegal names"])
def test_translated_answers_agree_whole_and_streamed(source: str, target: str, name: str) -> None:
    """`source` is the client's wire."""
    schema = SCHEMAS[name]
    body = body_of(source, OutputFormat("json_schema", schema, strict=True))
    sent = translate(body, source=source, target=target).body
    lowered = lower(schema, output_dialect(get(target).dialect, strict=sent_format(target, sent).get("strict")))
    upstream = get(target)
    for value in instances(schema, seed=name, count=3):
        answer = Response("r", "m", (Text(json.dumps(lowered.encode(value))),), Stop("stop"))
        whole = translate(
            upstream.encode_response(answer).body, source=target, target=source, kind="response", request=body
        )
        expected = get(source).decode_response(whole.body).text
        assert json_equal(without_nulls(json.loads(expected)), without_nulls(value))
        encoder = upstream.stream_encoder()
        data = b"".join(encoder.feed(event) for event in answer_events(answer.text, 3))
        for size in (1, 5, 4096):
            stream = translate_stream(source=target, target=source, request=body)
            out = b"".join([stream.feed(data[at : at + size]) for at in range(0, len(data), size)] + [stream.close()])
            decoder = get(source).stream_decoder()
            assert fold([*decoder.feed(out), *decoder.close()]).text == expected


OBJECT = lower(SCHEMAS["optional properties"], output_dialect("openai", strict=True))
WRAPPED = lower(SCHEMAS["array at the root"], output_dialect("openai", strict=True))
CONVERTED = lower(SCHEMAS["map at the root"], output_dialect("openai", strict=True))
ODD_TEXTS = [
    "I cannot answer that.",
    " \n The weather is {fine}.",
    "```json\n{}\n```",
    "[1, 2",
    '"text"',
    "null",
    '{"city": "Paris", "days": 3} and more',
    '{"city": "Par\\u00',
    '{"city": "Paris", "days": 3, "note',
    '{"city": "Paris", "days": nul',
    '{"city": "Paris", "days": 1e999, "note": "x"}',
    '{"city": "Paris", "city": "Rome"}',
    '{"city": "Paris" "days": 3}',
    '{"days": tr"ue, "note": "x"}',
    '{"value": [{"n": 1}, {"n"',
    '{"value": [{"n": 1}], "more": 2}',
    '{"other": 1}',
    '{"value": 12',
    '{"value"',
    "{",
]


@every_case("text", ODD_TEXTS)
@every_case("lowered", [OBJECT, WRAPPED, CONVERTED], ids=["object", "wrapped", "converted"])
def test_other_text_is_the_same_at_every_chunking(lowered, text: str) -> None:
    results = {lift(lowered, text, size) for size in (1, 2, 3, 5, 1000)}
    assert len(results) == 1


@every_case("lowered", [OBJECT, WRAPPED, CONVERTED], ids=["object", "wrapped", "converted"])
@every_case("text", ODD_TEXTS[:4])
def test_text_that_is_no_json_passes_at_once(lowered, text: str) -> None:
    lifter = OutputLifter(0, lowered)
    passed = "".join(event.text for event in lifter.feed(TextDelta.of(0, text[:5])))
    assert passed == text[:5]
    assert lift(lowered, text, 2) == (text, True)


def test_a_truncated_answer_is_neither_withheld_nor_completed() -> None:
    assert lift(OBJECT, '{"city": null, "days": 3, "note": "hel', 1) == ('{"days":3,"note":"hel', True)
    assert lift(OBJECT, '{"city": null, "days": 3, "no', 1) == ('{"days":3, "no', True)
    assert lift(WRAPPED, '{"value": [{"n": 1}, {"n', 1) == ('[{"n": 1}, {"n', True)
    assert lift(CONVERTED, '[{"key": "a", "va', 1) == ('[{"key": "a", "va', True)


def test_values_pass_through_as_they_arrive() -> None:
    lifter = OutputLifter(0, OBJECT)
    assert [event.text for event in lifter.feed(TextDelta.of(0, '{"note": "It is a long'))] == ['{"note":"It is a long']
    wrapped = OutputLifter(0, WRAPPED)
    assert [event.text for event in wrapped.feed(TextDelta.of(0, '{"value": [{"n": 1}, {'))] == ['[{"n": 1}, {']


@pytest.mark.parametrize(
    ("text", "problem"), [("", False), ("  ", False), ('{"city":null,"days":1,"note":null}', False), ("No.", True)]
)
def test_only_text_of_another_form_is_a_problem(text: str, problem: bool) -> None:
    assert lift(OBJECT, text, 3)[1] is problem


def prepared_for(target: str, schema: object = SCHEMAS["optional properties"], **fields):
    output = OutputFormat("json_schema", schema, strict=True)
    return prepare(Request("m", USER, output=output, **fields), target)


def test_an_answer_of_another_form_is_reported_at_its_part() -> None:
    losses = Losses()
    answer = Response(
        parts=(ToolCall("c", "f", {}), Text("No.")),
        stop=Stop("stop"),
        alternatives=(Alternative((Text('{"city": null, "days": 1, "note": null}'),), Stop("stop")),),
    )
    restored = prepared_for("openai_chat").exchange.restore(answer, losses)
    assert restored.parts[1] == Text("No.")
    assert restored.alternatives[0].parts == (Text('{"days":1}'),)
    [loss] = losses
    assert (loss.path, loss.action) == ("/parts/1", "weakened")


def test_refusals_are_not_converted() -> None:
    losses = Losses()
    answer = Response(parts=(Refusal("{no}"),), stop=Stop("refusal"))
    assert prepared_for("openai_chat").exchange.restore(answer, losses).parts == (Refusal("{no}"),)
    assert not len(losses)


def test_withheld_text_is_sent_before_a_fault() -> None:
    feed = prepared_for("openai_chat", SCHEMAS["map at the root"]).exchange.make_restorer().feed
    assert feed(TextStart(0)) == (TextStart(0),)
    assert feed(TextDelta.of(0, '{"more": [{"key')) == ()
    fault = StreamFault(Fault("server", "broken"))
    assert feed(fault) == (TextDelta.of(0, '{"more": [{"key'), fault)


def test_answers_without_a_change_of_shape_are_not_touched() -> None:
    prepared = prepared_for("openai_chat", SCHEMAS["plain"])
    answer = Response(parts=(Text('{ "city": "x",\n "days": 1 }'),), stop=Stop("stop"))
    assert prepared.exchange.restore(answer).parts == answer.parts


def test_earlier_answers_stay_as_they_are() -> None:
    """They are text of the client, and need not match the schema of this request."""
    history = (*USER, Message("assistant", (Text('{"city": "Paris"}'),)), *USER)
    request = Request("m", history, output=OutputFormat("json_schema", SCHEMAS["free-form map"], strict=True))
    for target in WIRES:
        assert prepare(request, target).request.messages[1].parts == history[1].parts


@pytest.mark.parametrize(("given", "sent"), [(True, True), (None, None), (False, False)])
def test_strictness_of_openai_is_kept_between_its_wires(given: bool | None, sent: bool | None) -> None:
    body = body_of("openai_chat", OutputFormat("json_schema", SCHEMAS["bounds"], "a", strict=given))
    out = translate(body, source="openai_chat", target="openai_responses").body["text"]["format"]
    assert out.get("strict") is sent
    if not given:
        assert out["schema"] == SCHEMAS["bounds"]  # nothing is enforced, so nothing has to be lowered


@pytest.mark.parametrize("source", ["anthropic", "gemini", "ollama"])
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_formats_that_are_always_enforced_are_strict_on_openai(source: str, target: str) -> None:
    body = body_of(source, OutputFormat("json_schema", SCHEMAS["optional properties"]))
    out = sent_format(target, translate(body, source=source, target=target).body)
    assert out["strict"] is True and out["name"] == "answer"
    assert set(out["schema"]["required"]) == {"city", "days", "note"}


def deep(levels: int) -> dict:
    schema: dict = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}
    return schema


@every_case("target", WIRES)
@every_case("schema", [{"$ref": "#/$defs/Missing"}, False, True, {}, {"type": "nonsense"}, deep(60)])
def test_no_schema_raises(target: str, schema: object) -> None:
    prepared = prepare(Request("m", USER, output=OutputFormat("json_schema", schema, strict=True)), target)
    output = prepared.request.output
    if output is not None and output.kind == "json_schema":
        assert violations(output.schema, output_dialect(get(target).dialect, strict=output.strict)) == []
    get(target).encode_request(prepared.request)


@pytest.mark.finding("S16")
@pytest.mark.parametrize("target", WIRES)
def test_a_format_without_a_schema_is_json_mode(target: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Some JSON"}]}
    body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x"}}
    translation = translate(body, source="openai_chat", target=target, model="n")
    assert "json_schema" not in json.dumps(translation.body) and "null" not in json.dumps(translation.body)
    assert "weakened" in {loss.action for loss in translation.losses}


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("source", ["gemini", "ollama"])
def test_json_mode_of_openai_gets_the_mention_that_it_requires(source: str, target: str) -> None:
    body = body_of(source, OutputFormat("json"))
    out = translate(body, source=source, target=target, model="gpt-5").body
    messages = out["messages"] if target == "openai_chat" else out["input"]
    assert "json" in json.dumps(messages).lower()
    assert any(loss.path for loss in translate(body, source=source, target=target, model="gpt-5").losses)


def test_a_mention_in_a_message_is_enough() -> None:
    request = Request("m", (Message("user", (Text("Answer in Json"),)),), output=OutputFormat("json"))
    for target in WIRES[1:]:
        prepared = prepare(request, target)
        assert prepared.request.messages == request.messages
        assert not len(prepared.losses)


def test_a_mention_in_the_instructions_of_responses_is_not_enough() -> None:
    body = {
        "messages": [{"role": "system", "content": "Answer in JSON"}, {"role": "user", "content": "hi"}],
        "response_format": {"type": "json_object"},
    }
    out = translate(body, source="openai_chat", target="openai_responses").body
    assert "json" in json.dumps(out["input"]).lower()


def test_json_mode_is_stated_where_there_is_none() -> None:
    prepared = prepare(Request("m", USER, output=OutputFormat("json")), "anthropic")
    assert prepared.request.output is None
    assert prepared.request.messages[0].role == "system" and "JSON" in prepared.request.messages[0].parts[0].text
    [loss] = prepared.losses
    assert (loss.path, loss.action, loss.severity) == ("/output", "weakened", "warning")


@every_case("system", [(), (Message("system", (Text("Be brief."),)),)])
@every_case("target", WIRES)
def test_a_target_without_structured_outputs_gets_instructions(target: str, system: tuple) -> None:
    wire = get(target)
    wire = replace(wire, capabilities=replace(wire.capabilities, output_schemas=False))
    output = OutputFormat("json_schema", SCHEMAS["bounds"], "place", "A place.", True)
    prepared = prepare(Request("m", (*system, *USER), output=output), wire)
    text = json.dumps(wire.encode_request(prepared.request).body)
    assert "A place." in text and "uniqueItems" in text
    assert prepared.request.output in (None, OutputFormat("json"))
    assert prepared.exchange.output is None
    path = "/output" if prepared.request.output is None else "/output/schema"
    assert (path, "weakened") in {(loss.path, loss.action) for loss in prepared.losses}
    for index in range(len(prepared.request.messages)):
        prepared.origin(f"/messages/{index}/parts/0")


def test_a_form_that_excludes_tools_is_stated_in_the_instructions() -> None:
    """Gemini before version 3 rejects JSON output in a request with functions."""
    wire = get("gemini")
    wire = replace(wire, capabilities=replace(wire.capabilities, output_with_tools=False))
    output = OutputFormat("json_schema", SCHEMAS["plain"])
    tools = (Tool("f", input_schema={"type": "object", "properties": {"a": {"type": "string"}}}),)
    body = wire.encode_request(prepare(Request("m", USER, tools, output=output), wire).request).body
    assert "generationConfig" not in body and "days" in body["systemInstruction"]["parts"][0]["text"]
    body = wire.encode_request(prepare(Request("m", USER, output=output), wire).request).body
    assert body["generationConfig"]["responseJsonSchema"] == SCHEMAS["plain"]


@every_case(
    ("target", "vendor", "model", "enforced"),
    [
        ("anthropic", None, "claude-sonnet-4-5", True),
        ("anthropic", None, "claude-opus-4-1", True),
        ("anthropic", None, "claude-opus-5-5", True),
        ("anthropic", None, "claude-opus-4-20250514", False),
        ("anthropic", None, "claude-sonnet-4-0", False),
        ("anthropic", None, "claude-3-7-sonnet-latest", False),
        ("anthropic", None, "my-model", True),
        ("openai_chat", "deepseek", "deepseek-chat", False),
        ("openai_chat", "groq", "deepseek-r1", True),
        ("gemini", None, "gemini-2.5-flash", True),
    ],
)
def test_models_without_structured_outputs_get_instructions(
    target: str, vendor: str | None, model: str, enforced: bool
) -> None:
    capabilities = capabilities_for(target, model, vendor=vendor)
    request = Request(model, USER, output=OutputFormat("json_schema", SCHEMAS["plain"], strict=True))
    prepared = prepare(request, target, capabilities=capabilities)
    assert (prepared.request.output == request.output) is enforced
    assert (len(prepared.request.messages) == 1) is enforced


@pytest.mark.parametrize(("model", "enforced"), [("gemini-2.5-flash", False), ("gemini-3-pro", True), ("other", True)])
def test_gemini_accepts_a_form_of_the_answer_with_tools_since_version_3(model: str, enforced: bool) -> None:
    tools = (Tool("f", input_schema=SCHEMAS["plain"]),)
    for output in (OutputFormat("json"), OutputFormat("json_schema", SCHEMAS["plain"], strict=True)):
        prepared = prepare(Request(model, USER, tools, output=output), "gemini")
        assert prepared.request.output == (output if enforced else None)


def test_strict_tools_of_models_that_have_none_are_relaxed() -> None:
    tool = Tool("f", input_schema=SCHEMAS["plain"], strict=True)
    prepared = prepare(Request("claude-3-7-sonnet-latest", USER, (tool,)), "anthropic")
    assert prepared.request.tools[0].strict is None
    assert [loss.path for loss in prepared.losses] == ["/tools/0/strict"]
    assert prepare(Request("claude-sonnet-4-5", USER, (tool,)), "anthropic").request.tools[0].strict is True


@pytest.mark.parametrize(
    ("name", "legal"), [("my schema", False), ("x" * 90, False), ("größe", False), ("ok_1-2", True)]
)
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_names_are_legal_on_openai(target: str, name: str, legal: bool) -> None:
    output = OutputFormat("json_schema", SCHEMAS["plain"], name)
    prepared = prepare(Request("m", USER, output=output), target)
    sent = prepared.request.output.name
    assert sent.isascii() and 1 <= len(sent) <= 64 and " " not in sent
    assert (sent == name) is legal
    assert [loss.path for loss in prepared.losses] == ([] if legal else ["/output/name"])


@pytest.mark.parametrize("target", WIRES)
def test_the_description_reaches_the_model(target: str) -> None:
    schema = {**SCHEMAS["plain"], "description": "Of one city."}
    prepared = prepare(Request("m", USER, output=OutputFormat("json_schema", schema, "a", "A forecast.")), target)
    sent = json.dumps(get(target).encode_request(prepared.request).body)
    assert "A forecast." in sent and "Of one city." in sent
    moved = [loss.path for loss in prepared.losses if loss.action == "moved"]
    assert moved == ([] if target.startswith("openai") else ["/output/description"])


def test_optional_properties_of_answer_and_tools_share_one_budget() -> None:
    """Anthropic counts optional parameters over all strict schemas of a request."""
    many = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(14)},
        "additionalProperties": False,
    }
    tool = Tool("f", input_schema=many, strict=True)
    alone = prepare(Request("m", USER, (tool,)), "anthropic").request
    assert alone.tools[0].strict is True
    both = prepare(Request("m", USER, (tool,), output=OutputFormat("json_schema", many)), "anthropic")
    assert both.request.tools[0].strict is None
    limit = DIALECTS["anthropic_strict"].optional_parameters
    assert parameter_counts(both.request.output.schema)[0] <= limit
    assert "/tools/0/strict" in {loss.path for loss in both.losses}


@pytest.mark.parametrize("target", ["anthropic", "openai_responses"])
def test_a_strict_tool_without_parameters_is_closed(target: str) -> None:
    body = get(target).encode_request(prepare(Request("m", USER, (Tool("f", strict=True),)), target).request).body
    schema = body["tools"][0]["input_schema" if target == "anthropic" else "parameters"]
    assert schema["additionalProperties"] is False


def test_unfolded_answers_are_restored_in_one_machine() -> None:
    prepared = prepared_for("anthropic", SCHEMAS["free-form map"])
    answer = Response(parts=(Text('{"scores": [{"key": "a", "value": 1}]}'),), stop=Stop("stop"))
    feed = prepared.exchange.make_restorer().feed
    streamed = fold([each for event in unfold(answer) for each in feed(event)])
    assert streamed.parts == prepared.exchange.restore(answer).parts == (Text('{"scores":{"a":1}}'),)
