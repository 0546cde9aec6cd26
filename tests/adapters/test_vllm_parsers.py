"""The parsers for vLLM. With TOOLWIRE_VLLM_SOURCE they run on vLLM's own classes, else on tests/support/fake_vllm.py."""

import json
import random
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from places import TESTS
from serving_stacks import CharacterTokenizer, load_vllm, vllm_request
from tables import every_case
from toolwire.adapters.model_format import answer_begins_inside
from toolwire.testing import load_text_vectors
from toolwire.text import get, names

load_vllm()
from toolwire.adapters.vllm_parsers import parser_classes  # noqa: E402 - needs the modules of vLLM

VECTORS = TESTS / "vectors" / "text"
TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
END = [CharacterTokenizer.eos_token_id]


def as_body(tool):
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def make(name="hermes", tools=TOOLS, tool_choice=None, end="", limit=None):
    """Return a parser of whole turns and its request."""
    request = vllm_request(tools, tool_choice)
    request.max_completion_tokens = limit
    engine = parser_classes(name)[1]._parser_engine_cls
    tokenizer = CharacterTokenizer(chat_template_end=end)
    return engine(tokenizer, request.tools, chat_template_kwargs={}, model_config=None), request


def parse(text, **options):
    parser, request = make(**options)
    ids = parser.model_tokenizer.encode(text) + ([] if options.get("limit") else END)
    reasoning, content, calls = parser.parse(text, request, True, ids)
    return reasoning, content, [(call.name, call.arguments) for call in calls or ()]


def stream(pieces, **options):
    """Run the loop of vLLM's server; return the answer and the deltas."""
    parser, request = make(**options)
    prompt = parser.model_tokenizer.prompt()
    deltas = []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        new = parser.model_tokenizer.encode(piece) + (END if last and not options.get("limit") else [])
        message = parser.parse_delta(piece, new, request, prompt, finished=last)
        if message is not None:
            deltas.append(message.model_dump(exclude_unset=True))
    return collect(deltas), deltas


def collect(deltas):
    reasoning = "".join(delta.get("reasoning") or "" for delta in deltas) or None
    content = "".join(delta.get("content") or "" for delta in deltas) or None
    calls, ids = [], []
    for delta in deltas:
        for piece in delta.get("tool_calls") or ():
            if "id" in piece:
                assert piece["index"] == len(calls)
                ids.append(piece["id"])
                calls.append([piece["function"]["name"], ""])
            else:
                assert "name" not in piece["function"]
            calls[piece["index"]][1] += piece["function"].get("arguments") or ""
    assert len(set(ids)) == len(ids)
    return reasoning, content, [tuple(call) for call in calls]


def chunkings(text):
    numbers = random.Random(text)
    cuts = sorted(numbers.sample(range(1, len(text)), min(7, len(text) - 1)))
    return [text], list(text), [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.one_in(7)
@every_case("name", names())
def test_streamed_answer_is_the_complete_answer(name):
    for vector in load_text_vectors(VECTORS / f"{name}.json"):
        if len(vector.text) < 2 or bool(answer_begins_inside(get(name), vector.text)) > vector.thinking:
            continue  # without the prompt, a complete answer that closes reasoning began inside it
        tools = [as_body(tool) for tool in vector.tools] or TOOLS
        options = {"name": name, "tools": tools, "limit": None if vector.finished else len(vector.text)}
        if vector.thinking and get(name).reasoning:
            options["end"] = get(name).reasoning[0][0]
        whole = parse(vector.text, **options)
        assert whole[2] == [(call.name, args) for call, (_, args) in zip(vector.calls, whole[2], strict=True)]
        for pieces in chunkings(vector.text):
            assert stream(pieces, **options)[0] == whole, (vector.name, pieces)


def test_deltas_have_only_the_fields_that_are_new():
    _, deltas = stream(["Hi", CALL[:30], CALL[30:50], CALL[50:]])
    assert deltas[0] == {"content": "Hi"}
    call_id = deltas[1]["tool_calls"][0].pop("id")
    assert call_id.startswith("chatcmpl-tool-")
    assert deltas[1:] == [
        {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]},
    ]


def test_prompt_that_opens_the_reasoning():
    text = f"Hm.</think>Yes {CALL}"
    expected = ("Hm.", "Yes ", [("f", '{"a": 1}')])
    assert stream([text], end="<think>\n")[0] == expected
    assert parse(text, end="<think>\n") == expected


def test_answer_that_continues_reasoning():
    parser, request = make(end="<think>So far")
    request.continue_final_message = True
    message = parser.parse_delta(" and on</think>b", END, request, parser.model_tokenizer.prompt(), finished=True)
    assert (message.reasoning, message.content) == (" and on", "b")


def test_truncated_reasoning_of_a_prompt_that_opens_it():
    assert stream(["Hm"], end="<think>\n")[0] == parse("Hm", end="<think>\n") == ("Hm", None, [])
    assert stream(["Hm"], end="<think></think>")[0] == parse("Hm", end="<think></think>") == (None, "Hm", [])


def test_call_inside_open_reasoning_ends_it():
    text = f"<think>I need it. {CALL}"
    assert stream(list(text))[0] == parse(text) == ("I need it. ", None, [("f", '{"a": 1}')])


def test_call_that_is_cut_by_the_length_is_not_complete():
    text = "<tool_call><function=f><parameter=a>1</parameter></function>"
    assert parse(text, name="qwen3_xml")[2] == stream([text], name="qwen3_xml")[0][2] == [("f", '{"a":1}')]
    cut = parse(text, name="qwen3_xml", limit=len(text))[2]
    assert stream([text], name="qwen3_xml", limit=len(text))[0][2] == cut
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut[0][1])


@pytest.mark.parametrize("tools", [TOOLS, []])
def test_without_calls_their_text_is_content(tools):
    choice = "none" if tools else None
    text = f"<think>a</think>b {CALL}"
    expected = ("a", f"b {CALL}", [])
    assert parse(text, tools=tools, tool_choice=choice) == expected
    assert stream(list(text), tools=tools, tool_choice=choice)[0] == expected


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("required", '<think>a</think>[{"name": "f", "parameters": {"a": 1}}]'),
        ({"type": "function", "function": {"name": "f"}}, '<think>a</think>{"a": 1}'),
    ],
)
def test_forced_tool_choice_is_constrained_json(choice, text):
    parser, request = make(tool_choice=choice)
    assert parser.adjust_request(request).structured_outputs is not None
    assert request.skip_special_tokens is False
    expected = ("a", None, [("f", '{"a": 1}')])
    assert parse(text, tool_choice=choice) == expected
    for pieces in chunkings(text):
        assert stream(pieces, tool_choice=choice)[0] == expected


def test_forced_tool_choice_of_channels_is_not_constrained():
    parser, request = make("harmony", tool_choice="required")
    assert parser.adjust_request(request).structured_outputs is None
    text = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
    assert parse(text, name="harmony", tool_choice="required")[2] == [("f", '{"a": 1}')]


def test_schema_of_a_tool_in_a_namespace_is_used():
    parser, request = make("glm47")
    member = SimpleNamespace(name="f", description=None, parameters={"properties": {"a": {"type": "integer"}}})
    request.tools = [SimpleNamespace(type="web_search"), SimpleNamespace(type="namespace", name="n", tools=[member])]
    text = "<tool_call>n__f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
    assert [(call.name, call.arguments) for call in parser.parse(text, request, True, END)[2]] == [("n__f", '{"a":1}')]


def test_last_delta_has_one_piece_per_call():
    text = '<tool_call>{"name": "f"}</tool_call>'
    _, deltas = stream([text])
    assert [piece["index"] for piece in deltas[-1]["tool_calls"]] == [0]
    _, deltas = stream(["<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"], name="glm47")
    assert [piece["function"]["arguments"] for piece in deltas[-1]["tool_calls"]] == ['{"a":1}']


def test_hidden_reasoning_is_not_sent():
    parser, request = make()
    request.include_reasoning = False
    assert parser.parse_delta("<think>a", [500], request, [], finished=False) is None
    assert parser.parse_delta("</think>b", END, request, [], finished=True).content == "b"


def test_reasoning_tokens_are_counted():
    parser, request = make()
    parser.parse("<think>four</think>b", request, True, END)
    assert parser.count_reasoning_tokens([]) == 4


def test_mistral_ids_fit_its_template():
    parser, request = make("mistral_v3_json")
    calls = parser.parse('[TOOL_CALLS] [{"name": "f", "arguments": {}}]', request, True, END)[2]
    assert len(calls[0].id) == 9
    assert calls[0].id.isalnum()


def test_tool_parser_records_the_streamed_calls():
    request = vllm_request(TOOLS)
    parser = parser_classes("hermes")[1](CharacterTokenizer(), request.tools)
    parser.extract_tool_calls_streaming("", "", CALL[:45], [], [], [], request)
    assert parser.prev_tool_call_arr == [{"name": "f", "arguments": ""}]
    assert parser.streamed_args_for_tool == [""]
    parser.extract_tool_calls_streaming("", "", CALL[45:], [], [], [], request)
    assert parser.finish_streaming() is None
    assert parser.prev_tool_call_arr == [{"name": "f", "arguments": '{"a": 1}'}]
    assert parser.streamed_args_for_tool == ['{"a": 1}']


def test_tool_parser_returns_the_held_text_at_the_end():
    request = vllm_request(TOOLS)
    parser = parser_classes("hermes")[1](CharacterTokenizer(), request.tools)
    assert parser.extract_tool_calls_streaming("", "", "<tool", [], [], [], request) is None
    assert parser.finish_streaming().content == "<tool"
    assert parser.extract_tool_calls("<tool", request).content == "<tool"


def test_reasoning_parser_separates_reasoning_from_the_rest():
    text = f"<think>a</think>b {CALL}"
    parser = parser_classes("hermes")[0](CharacterTokenizer())
    assert parser.extract_reasoning(text, vllm_request(TOOLS)) == ("a", f"b {CALL}")
    assert (parser.reasoning_start_str, parser.reasoning_end_str) == ("<think>", "</think>")
    ended = []
    for piece in ("<think>a</th", "ink>", "b"):
        parser.extract_reasoning_streaming(
            "",
            "",
            piece,
            [],
            [],
            [],
        )
        ended.append(parser.has_engine_confirmed_reasoning_end())
    assert ended == [False, False, True]


def test_end_of_reasoning_in_token_ids():
    tokenizer = CharacterTokenizer()
    parser = parser_classes("hermes")[0](tokenizer)
    text = tokenizer.encode("<think>a</think>b")
    ends = [at for at in range(1, len(text) + 1) if parser.is_reasoning_end_streaming(text[:at], text[at - 1 : at])]
    assert ends[0] == len("<think>a</think>")
    assert tokenizer.decode(parser.extract_content_ids(text)) == "b"
    assert parser.is_reasoning_end(text)
    assert not parser.is_reasoning_end(tokenizer.prompt())
    assert not parser.is_reasoning_end([*text, tokenizer.all_special_ids[1], *tokenizer.encode("assistant:")])


def test_format_is_detected_by_the_model_or_its_template():
    request = vllm_request(TOOLS)
    text = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    parser = parser_classes("")[1](CharacterTokenizer("Qwen/Qwen3-Coder-30B-A3B-Instruct"), request.tools)
    assert parser.extract_tool_calls(text, request).tools_called
    tokenizer = CharacterTokenizer("unknown")
    tokenizer.chat_template = "<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>"
    assert parser_classes("")[1](tokenizer, request.tools).extract_tool_calls(text, request).tools_called
    with pytest.raises(Exception, match="toolwire formats"):
        parser_classes("")[1](CharacterTokenizer("unknown"), request.tools)


def test_plugin_file_registers_all_formats():
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    import toolwire.adapters

    path = Path(toolwire.adapters.__file__).with_name("vllm_plugin.py")
    runpy.run_path(str(path), run_name="vllm_plugin")
    for manager, kind in ((ToolParserManager, "tool_parsers"), (ReasoningParserManager, "reasoning_parsers")):
        registered = getattr(manager, kind, None) or manager.registered
        assert {"toolwire", *(f"toolwire_{name}" for name in names())} <= set(registered)


def test_command_prints_the_path_of_the_plugin():
    command = [sys.executable, "-m", "toolwire.adapters.vllm_plugin"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(printed).name == "vllm_plugin.py"
    assert Path(printed).is_file()


def test_missing_vllm_is_reported_with_the_fix():
    code = "from toolwire.adapters import vllm_parsers"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra" in failed.stderr
    assert "pip install -U vllm" in failed.stderr
