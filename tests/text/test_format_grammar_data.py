"""Grammars of text formats: derived for every format, for every tool choice, with literal and special-token markers."""

import json
import re

import pytest

from grammar_cases import CALLS, NOW, STORE, TOOLS, WEATHER
from tables import every_case
from toolwire import text
from toolwire.ir.errors import ConfigError, SchemaError
from toolwire.ir.tools import Tool, ToolChoice
from toolwire.text.engine.grammar_schema import exclusion_pattern

REQUIRED = ToolChoice("required")


@every_case("name", text.names())
def test_every_format_has_a_grammar(name: str) -> None:
    grammar = text.get(name).grammar(TOOLS, REQUIRED)
    assert grammar.lark.startswith("%llguidance {}\nstart: ")
    assert grammar.triggers and all(grammar.triggers)
    for tool in TOOLS:
        assert tool.name in grammar.lark


@every_case("name", text.names())
def test_a_rendered_call_begins_with_or_contains_the_trigger(name: str) -> None:
    form = text.get(name)
    triggers = form.grammar(TOOLS).triggers
    for call in CALLS:
        rendered = form.render_call(call, TOOLS).text
        assert any(trigger in rendered for trigger in triggers)


def test_json_arguments_are_embedded_with_the_separators_of_chat_templates() -> None:
    lark = text.get("hermes").grammar([WEATHER], REQUIRED).lark
    schema = json.loads(re.search(r"%json (.*)", lark)[1])
    assert schema["x-guidance"] == {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        "json_allowed_escapes": 'nrbtf"\\',
    }
    assert list(schema["properties"]) == list(WEATHER.input_schema["properties"])
    assert schema["additionalProperties"] is False


def test_one_tool_is_the_only_one_in_the_grammar() -> None:
    grammar = text.get("qwen3_xml").grammar(TOOLS, ToolChoice("tool", ("now",)))
    assert "now" in grammar.lark
    assert "get_weather" not in grammar.lark


def test_allowed_tools_limit_the_grammar() -> None:
    grammar = text.get("pythonic").grammar(TOOLS, ToolChoice("allowed", ("now", "store")))
    assert grammar.triggers == ("[now(", "[store(")


@pytest.mark.parametrize("choice", [ToolChoice("tool", ("other",)), ToolChoice("allowed"), ToolChoice("tool")])
def test_a_choice_of_a_tool_that_is_not_offered_is_refused(choice: ToolChoice) -> None:
    with pytest.raises(ConfigError, match="not offered"):
        text.get("hermes").grammar(TOOLS, choice)


def test_a_grammar_without_tools_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one tool"):
        text.get("hermes").grammar([], REQUIRED)


def test_a_name_that_the_format_cannot_express_is_refused() -> None:
    odd = Tool("see <this>", input_schema={"type": "object", "properties": {}})
    with pytest.raises(ConfigError, match="cannot express"):
        text.get("qwen3_xml").grammar([odd], REQUIRED)
    assert "see <this>" in text.get("hermes").grammar([odd], REQUIRED).lark


def test_special_tokens_are_written_as_ids_also_inside_literals() -> None:
    special = {"<tool_call>": 7, "</tool_call>": 8}
    lark = text.get("hermes").grammar([NOW], REQUIRED, may_reason=False, special_tokens=special).lark
    assert re.search(r'<\[7\]> "\\n\{\\"name\\": \\"now\\"', lark)
    assert '"\\n" <[8]>' in lark
    assert "<tool_call>" not in lark


def test_markers_name_the_literals_that_may_be_special_tokens() -> None:
    assert {"<|tool_call_begin|>", "<|tool_call_end|>"} <= {
        part for marker in text.get("kimi_k2").grammar([NOW]).markers for part in re.findall(r"<[^>]*>", marker)
    }


def test_keywords_that_raw_text_does_not_enforce_are_residual() -> None:
    dated = Tool("plan", input_schema={"type": "object", "properties": {"day": {"type": "string", "format": "date"}}})
    in_tags = text.get("qwen3_xml").grammar([dated, STORE], REQUIRED).residual
    assert ("/plan/properties/day", "format") in {(one.pointer, one.keyword) for one in in_tags}


def test_the_exclusion_pattern_excludes_exactly_the_texts() -> None:
    tags = ("</parameter>", "<parameter=", "</function>")
    matches = re.compile(exclusion_pattern(tags)).fullmatch
    for fine in ("", "a", "a < b", "<<</param", "</parameter", "<parameters>", "</para<function>"):
        assert matches(fine), fine
        assert matches(fine + "\n" + fine), fine
    for tag in tags:
        assert not matches(tag)
        assert not matches(f"a <{tag} b")
        assert not matches(f"</param{tag}")


def test_a_style_without_a_template_has_no_grammar() -> None:
    from toolwire.text.engine.style import StyleBase

    class Plain(StyleBase, frozen=True):
        pass

    with pytest.raises(ConfigError, match="no call template"):
        Plain().template()


@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "kimi_k3", "pythonic", "gemma4", "minimax_m3", "cline_xml"])
def test_an_optional_parameter_without_a_possible_value_is_left_out(name: str) -> None:
    odd = {"type": "integer", "enum": ["1", "2"]}
    fine = {"type": "string"}
    tool = Tool("act", input_schema={"type": "object", "properties": {"a": fine, "b": odd}, "required": ["a"]})
    assert "act" in text.get(name).grammar([tool], REQUIRED).lark
    if name != "hermes":
        required = Tool("act", input_schema={**tool.input_schema, "required": ["b"]})
        with pytest.raises(SchemaError, match="accepts no value"):
            text.get(name).grammar([required], REQUIRED)
