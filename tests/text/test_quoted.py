"""Talk about calls is no call: what stands in quoted code stays in the text. Tokens of a model's own are never talk."""

import pytest

import toolwire.text
from tables import every_case
from toolwire import Tool, ToolCall
from toolwire.testing import TextVector
from toolwire.testing.conformance import read_pieces
from toolwire.text.engine.markers import Fences
from toolwire.text.engine.offered_tools import OfferedTools

TOOL = Tool("get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = ToolCall("call_00000", "get_weather", {"city": "Paris"})


def written(name):
    return toolwire.text.get(name).render_calls((CALL,), (TOOL,)).text


def has_tags(name):
    """Whether its calls begin with characters that anybody could write, and not as bare JSON or Python."""
    form = toolwire.text.get(name)
    openers = form.calls.openers(OfferedTools((TOOL,)))
    return (
        bool(openers)
        and written(name).lstrip().startswith("<")
        and not written(name).lstrip().startswith(("<|", "<｜"))
    )


TAGGED = [name for name in toolwire.text.names() if has_tags(name)]


def test_tag_based_formats_include_the_known_ones():
    assert {"hermes", "qwen3_xml", "function_xml"} <= set(TAGGED)


@every_case("mark", ["```", "```xml", "~~~", "````"])
@every_case("name", TAGGED)
def test_call_in_a_code_block_after_text_is_ignored(name, mark):
    closing = mark.removesuffix("xml")
    text = f"To call it, write this:\n\n{mark}\n{written(name)}\n{closing}\n\nShall I?"
    parsed = toolwire.text.get(name).parse(text, (TOOL,))
    assert parsed.calls == ()
    assert parsed.text == text
    assert {one.code for one in parsed.diagnostics} == {"quoted"}


@every_case("name", TAGGED)
def test_call_in_inline_code_is_ignored(name):
    call = written(name).replace("\n", "")
    parsed = toolwire.text.get(name).parse(f"The form is `{call}` as ever.", (TOOL,))
    assert parsed.calls == ()


@every_case("name", TAGGED)
@every_case("before", ["", "```\n", "```xml\n", "One. `code` ", "See:\n```\nx = 1\n```\n", "It's 5 o`clock.\n"])
def test_unquoted_call_is_recognised(name, before):
    parsed = toolwire.text.get(name).parse(before + written(name), (TOOL,))
    assert [(call.name, call.arguments) for call in parsed.calls] == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "function_xml"])
def test_result_does_not_depend_on_how_the_text_is_split(name):
    text = f"Like so:\n```\n{written(name)}\n```\nor `{written(name)}`.\n{written(name)}"
    form, vector = toolwire.text.get(name), TextVector("", "", text, tools=(TOOL,))
    whole = read_pieces(form, vector, [text])
    assert len(form.parse(text, (TOOL,)).calls) == 1
    for at in range(len(text)):
        assert read_pieces(form, vector, [text[:at], text[at:]]) == whole
    assert read_pieces(form, vector, list(text)) == whole


def test_call_by_special_tokens_is_recognised_inside_a_code_block():
    text = f"Like so:\n```\n{written('deepseek_v3')}"
    assert len(toolwire.text.get("deepseek_v3").parse(text, (TOOL,)).calls) == 1


@every_case(
    ("text", "quotes"),
    [
        ("", False),
        ("a\n```\n", True),
        ("a\n```", True),
        ("a\n```\n```\n", False),
        ("a\n```\n``\n", True),
        ("a\n````\n```\n", True),
        ("a\n```\n~~~\n", True),
        ("```\n", False),
        ("```\nx\n```\n```\n", True),
        ("a\n  ```py\n", True),
        ("a ```b``` c\n", False),
        ("a `", True),
        ("a `b` ", False),
        ("a `\n", False),
        ("`", False),
    ],
)
def test_quoted_code_is_detected(text, quotes):
    whole, by_letters = Fences(), Fences()
    whole.feed(text)
    for letter in text:
        by_letters.feed(letter)
    assert whole.in_code == by_letters.in_code == quotes
