"""The fields that make inference servers generate valid calls."""

import json

import pytest

import toolwire
from tables import every_case
from toolwire.bridge import guided_request
from toolwire.ir import ConfigError, Message
from toolwire.schema import validator

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    },
    "required": ["city"],
}
TOOLS = (
    toolwire.Tool("get_weather", "The weather", WEATHER),
    toolwire.Tool("clock", "The time"),
    toolwire.Tool("run", "Run code", kind="freeform"),
)
AUTO, REQUIRED = toolwire.ToolChoice("auto"), toolwire.ToolChoice("required")
SCHEMA_AT = {
    "vllm": ("structured_outputs", "json"),
    "vllm_guided": ("guided_json",),
    "sglang": ("response_format", "json_schema", "schema"),
    "llama_cpp": ("response_format", "json_schema", "schema"),
    "ollama": ("format",),
    "json_schema": ("response_format", "json_schema", "schema"),
}
TAGGED = ("hermes", "functionary_v31", "internlm2", "longcat", "inkling")


def schema_of(guided, server):
    found = guided.fields
    for name in SCHEMA_AT[server]:
        found = found[name]
    return found


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize("server", SCHEMA_AT)
def test_schema_admits_calls_of_the_tools_only(server):
    guided = guided_request(TOOLS, server)
    check = validator(schema_of(guided, server))
    for valid in (call("get_weather", city="Rome", days=[1]), call("clock"), call("run", input="1")):
        assert not check.problems(valid)
    for invalid in (
        call("get_weather"),
        call("get_weather", city="Rome", more=1),
        call("clock", zone="UTC"),
        call("other"),
        {"name": "clock"},
        [call("clock")],
    ):
        assert check.problems(invalid)
    assert guided.format == "generic_json"
    assert [(one.pointer, one.keyword) for one in guided.residual] == [("/get_weather/properties/days", "uniqueItems")]


@pytest.mark.parametrize("server", SCHEMA_AT)
def test_name_comes_before_the_arguments(server):
    shapes = schema_of(guided_request(TOOLS, server), server)["anyOf"]
    assert all(list(shape["properties"]) == ["name", "arguments"] for shape in shapes)


@pytest.mark.parametrize("server", SCHEMA_AT)
def test_one_tool_and_parallel_calls(server):
    one = guided_request(TOOLS, server, choice=toolwire.ToolChoice("tool", ("clock",)))
    assert schema_of(one, server)["properties"]["name"] == {"const": "clock"}
    check = validator(schema_of(guided_request(TOOLS, server, parallel=True), server))
    assert not check.problems([call("clock"), call("get_weather", city="Rome")])
    assert check.problems([])
    assert check.problems(call("clock"))


def test_choice_and_parallel_are_those_of_a_request():
    user = Message("user", (toolwire.Text("hi"),))
    request = toolwire.Request("m", (user,), TOOLS, toolwire.ToolChoice("tool", ("clock",)), True)
    guided = guided_request(request, "ollama")
    assert guided.fields["format"]["items"]["properties"]["name"] == {"const": "clock"}


def test_only_llama_cpp_is_verified_live():
    guided = {server: guided_request(TOOLS, server) for server in SCHEMA_AT}
    assert [server for server, one in guided.items() if one.is_verified] == ["llama_cpp"]
    assert all(any("not verified live" in note for note in one.notes) != one.is_verified for one in guided.values())


def test_lengths_are_limited_where_the_engine_supports_it():
    assert "maxLength" in json.dumps(guided_request(TOOLS, "vllm").fields)
    assert "maxLength" not in json.dumps(guided_request(TOOLS, "ollama").fields)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("server", ["vllm", "sglang"])
@pytest.mark.parametrize("form", TAGGED)
def test_structural_tags_are_read_by_xgrammar_and_by_the_parser_of_the_format(form, server):
    xgrammar = pytest.importorskip("xgrammar")
    guided = guided_request(TOOLS, server, choice=AUTO, format=form)
    tags = guided.fields["response_format"]
    assert (tags["type"], guided.format) == ("structural_tag", form)
    assert xgrammar.Grammar.from_structural_tag(json.dumps(tags)) is not None
    reader = toolwire.text.get(form)
    for tag, arguments in zip(tags["format"]["tags"], ({"city": "Rome"}, {}, {"input": "1"}), strict=True):
        assert any(tag["begin"].startswith(trigger) for trigger in tags["format"]["triggers"])
        assert not validator(tag["content"]["json_schema"]).problems(arguments)
        parsed = reader.parse(tag["begin"] + json.dumps(arguments) + tag["end"])
        assert [one.arguments for one in parsed.calls] == [arguments]


@pytest.mark.parametrize(("choice", "at_least_one"), [(AUTO, False), (REQUIRED, True)])
@pytest.mark.parametrize(("parallel", "stops"), [(None, False), (True, False), (False, True)])
def test_structural_tags_have_the_choice(choice, at_least_one, parallel, stops):
    tags = guided_request(TOOLS, "sglang", choice=choice, format="hermes", parallel=parallel).fields["response_format"]
    assert (tags["format"]["at_least_one"], tags["format"]["stop_after_first"]) == (at_least_one, stops)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ((TOOLS, "tgi2"), "unknown server"),
        (((), "ollama"), "no tool can be called"),
        ((TOOLS, "ollama", toolwire.ToolChoice("none")), "no tool can be called"),
        ((TOOLS, "ollama", toolwire.ToolChoice("tool", ("x",))), "'x', which is not offered"),
        ((TOOLS, "vllm", AUTO), "forces a call"),
        ((TOOLS, "ollama", REQUIRED, "hermes"), "has no grammars"),
    ],
)
def test_impossible_constraints_are_refused(arguments, fragment):
    tools, server, choice, form = (*arguments, None, None)[:4]
    with pytest.raises(ConfigError, match=fragment) as raised:
        guided_request(tools, server, choice=choice, format=form)
    assert raised.value.hint


LARK_AT = {
    "vllm": ("structured_outputs", "grammar"),
    "vllm_guided": ("guided_grammar",),
    "sglang": ("ebnf",),
    "llama_cpp": ("grammar",),
}


@every_case("choice", [AUTO, REQUIRED])
@every_case("form", ["qwen3_xml", "glm45", "llama3_json", "deepseek_v31"])
@every_case("server", LARK_AT)
def test_other_formats_are_constrained_by_a_grammar_of_llguidance(server, form, choice):
    llguidance = pytest.importorskip("llguidance")
    guided = guided_request(TOOLS, server, choice=choice, format=form, parallel=True)
    found = guided.fields
    for name in LARK_AT[server]:
        found = found[name]
    assert llguidance.LLMatcher.validate_grammar(llguidance.grammar_from("grammar", found), None) == ""
    assert guided.format == form
    assert ("/get_weather/properties/days", "uniqueItems") in [(one.pointer, one.keyword) for one in guided.residual]
    assert any("llguidance" in note.lower() or "guidance" in note for note in guided.notes)


def test_special_tokens_are_written_as_ids():
    guided = guided_request(TOOLS, "llama_cpp", format="hermes", special_tokens={"<tool_call>": 151657})
    assert "<[151657]>" in guided.fields["grammar"]
    assert '"<tool_call>' not in guided.fields["grammar"]
