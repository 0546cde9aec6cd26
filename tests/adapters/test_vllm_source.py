"""The plugin in the server code of vLLM, from a source tree: its registries, and its composition of two parsers."""

from pathlib import Path

import pytest

from serving_stacks import VLLM_SOURCE, CharacterTokenizer, load_vllm, vllm_request

if not VLLM_SOURCE:
    pytest.skip("TOOLWIRE_VLLM_SOURCE does not name a source tree of vLLM", allow_module_level=True)

load_vllm()
from vllm.parser import ParserManager  # noqa: E402 - the modules of `load_vllm`
from vllm.reasoning import ReasoningParserManager  # noqa: E402
from vllm.tool_parsers import ToolParserManager  # noqa: E402

import toolwire.adapters  # noqa: E402
from toolwire.adapters.vllm_parsers import ToolwireParser  # noqa: E402

PLUGIN = str(Path(toolwire.adapters.__file__).with_name("vllm_plugin.py"))
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.fixture(scope="module", autouse=True)
def plugin():
    ToolParserManager.import_tool_parser(PLUGIN)
    ReasoningParserManager.import_reasoning_parser(PLUGIN)


def answers(tool, reasoning, text, tool_choice=None):
    """Return the complete answer of the server, and the streamed one by the character."""
    parser_class = ParserManager.get_parser(tool, reasoning, enable_auto_tools=True)
    request = vllm_request(TOOLS, tool_choice)
    tokenizer = CharacterTokenizer("Qwen/Qwen3-8B")
    make = {"chat_template_kwargs": {}, "model_config": None}
    request = parser_class(tokenizer, request.tools, **make).adjust_request(request)
    whole = parser_class(tokenizer, request.tools, **make).parse(text, request, enable_auto_tools=True)
    parser = parser_class(tokenizer, request.tools, **make)
    streamed = ["", "", {}]
    for at, character in enumerate(text):
        last = at == len(text) - 1
        ids = tokenizer.encode(character) + ([tokenizer.eos_token_id] if last else [])
        message = parser.parse_delta(character, ids, request, tokenizer.prompt(), finished=last)
        if message is not None:
            streamed[0] += message.reasoning or ""
            streamed[1] += message.content or ""
            for piece in message.tool_calls:
                streamed[2].setdefault(piece.index, ["", ""])
                streamed[2][piece.index][0] += piece.function.name or ""
                streamed[2][piece.index][1] += piece.function.arguments or ""
    calls = [(call.name, call.arguments) for call in whole[2] or ()]
    return (whole[0], whole[1], calls), (streamed[0] or None, streamed[1] or None, [*map(tuple, streamed[2].values())])


@pytest.mark.skipif(
    not hasattr(ParserManager, "_get_parser_engine_cls"), reason="this version of vLLM does not combine parsers"
)
def test_same_format_for_both_is_one_parser():
    assert issubclass(ParserManager.get_parser("toolwire_hermes", "toolwire_hermes", True), ToolwireParser)
    assert issubclass(ParserManager.get_parser("toolwire", "toolwire", True), ToolwireParser)
    assert not issubclass(ParserManager.get_parser("toolwire_hermes", "toolwire", True), ToolwireParser)


@pytest.mark.parametrize(
    ("tool", "reasoning"),
    [
        ("toolwire", "toolwire"),
        ("toolwire_hermes", "toolwire_hermes"),
        ("toolwire_hermes", "toolwire"),
        ("toolwire_hermes", "qwen3"),
    ],
)
def test_answers_agree(tool, reasoning):
    expected = ("Hm.", "Yes. ", [("f", '{"a": 1}')])
    assert answers(tool, reasoning, f"<think>Hm.</think>Yes. {CALL}") == (expected, expected)


def test_call_inside_open_reasoning_ends_it():
    expected = ("I need it. ", None, [("f", '{"a": 1}')])
    assert answers("toolwire_hermes", "toolwire_hermes", f"<think>I need it. {CALL}") == (expected, expected)


def test_tool_parser_alone_keeps_the_reasoning_in_the_content():
    expected = (None, "<think>Hm.</think>Yes. ", [("f", '{"a": 1}')])
    assert answers("toolwire_hermes", None, f"<think>Hm.</think>Yes. {CALL}") == (expected, expected)


def test_reasoning_parser_before_a_parser_of_vllm():
    whole, streamed = answers("hermes", "toolwire_hermes", f"<think>Hm.</think>Yes. {CALL}")
    assert whole == streamed == ("Hm.", "Yes. ", [("f", '{"a": 1}')])


@pytest.mark.parametrize(("tool", "reasoning"), [("toolwire", "toolwire"), ("toolwire", "qwen3"), ("toolwire", None)])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_forced_tool_choice(tool, reasoning, choice):
    text = '[{"name": "f", "parameters": {"a": 1}}]' if choice == "required" else '{"a": 1}'
    thought = "<think>Hm.</think>" if reasoning else ""
    expected = ("Hm." if reasoning else None, None, [("f", '{"a": 1}')])
    assert answers(tool, reasoning, thought + text, choice) == (expected, expected)


@pytest.mark.parametrize(("tool", "reasoning"), [("toolwire", "toolwire"), ("toolwire", "qwen3"), ("toolwire", None)])
def test_refused_calls_are_content(tool, reasoning):
    thought = "<think>Hm.</think>" if reasoning else ""
    expected = ("Hm." if reasoning else None, f"Yes. {CALL}", [])
    assert answers(tool, reasoning, f"{thought}Yes. {CALL}", "none") == (expected, expected)


def test_held_text_is_sent_at_the_end():
    for reasoning in ("toolwire_hermes", None):
        assert answers("toolwire_hermes", reasoning, "a <tool") == ((None, "a <tool", []), (None, "a <tool", []))


def test_request_of_the_responses_api():
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    schema = {"type": "object", "properties": {"app": {"type": "string"}}}
    member = {"type": "function", "name": "open", "parameters": schema}
    tools = [{"type": "namespace", "name": "computer", "description": "", "tools": [member]}]
    request = ResponsesRequest.model_validate({"input": "hi", "tools": tools})
    text = "<tool_call>computer__open<arg_key>app</arg_key><arg_value>12</arg_value></tool_call>"
    parser = ParserManager.get_parser("toolwire_glm47", "toolwire_glm47", True)(CharacterTokenizer(), request.tools)
    request = parser.adjust_request(request)
    assert [(call.name, call.arguments) for call in parser.parse(text, request, True)[2]] == [
        ("computer__open", '{"app":"12"}')
    ]
