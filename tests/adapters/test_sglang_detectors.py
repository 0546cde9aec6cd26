"""The detectors for SGLang. With TOOLWIRE_SGLANG_SOURCE they run on SGLang's own classes, else on tests/support/fake_sglang.py."""

import json
import random
import subprocess
import sys
import tomllib

import msgspec
import pytest

from places import ROOT
from serving_stacks import load_sglang, parameters_of, sglang_tools
from tables import every_case
from toolwire.testing import load_text_vectors
from toolwire.text import get, names

load_sglang()
from sglang.srt.function_call.base_format_detector import BaseFormatDetector  # noqa: E402 - the modules of `load_sglang`
from sglang.srt.function_call.function_call_parser import FunctionCallParser  # noqa: E402
from sglang.srt.parser.reasoning_parser import BaseReasoningFormatDetector, ReasoningParser  # noqa: E402

from toolwire.adapters import sglang_plugin  # noqa: E402
from toolwire.adapters.sglang_detectors import ToolwireDetector, ToolwireReasoningDetector  # noqa: E402

VECTORS = ROOT / "tests" / "vectors"
RECORDED = json.loads((VECTORS / "serving_stacks.json").read_text())["sglang"]["classes"]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
OWN = {BaseFormatDetector: ToolwireDetector, BaseReasoningFormatDetector: ToolwireReasoningDetector}
METHODS = [(base, method) for base in OWN for method in RECORDED[base.__name__]]

REGISTERED = sglang_plugin.register_detectors()
FORMATS = [name for name in names() if f"toolwire_{name}" in REGISTERED]


def as_body(tool):
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def parse(name, text, bodies=TOOLS, *, opened=False):
    """Return reasoning, content and calls of a complete answer, as SGLang's server reads it."""
    reasoning = ""
    if get(name).reasoning:
        reasoning, text = ReasoningParser(f"toolwire_{name}", True, opened).parse_non_stream(text)
    parser = FunctionCallParser(sglang_tools(bodies), f"toolwire_{name}")
    content, calls = parser.parse_non_stream(text) if parser.has_tool_call(text) else (text, [])
    return reasoning, content, [(call.name, call.parameters) for call in calls]


def stream(name, pieces, bodies=TOOLS, *, opened=False):
    """Return the same for a streamed answer, which SGLang's server reads with both parsers, and flushes at the end."""
    thoughts = ReasoningParser(f"toolwire_{name}", True, opened) if get(name).reasoning else None
    parser = FunctionCallParser(sglang_tools(bodies), f"toolwire_{name}")
    reasoning, content, calls = "", "", []
    for number, piece in enumerate(pieces):
        more, last = "", number == len(pieces) - 1
        if thoughts is not None:
            more, piece = thoughts.parse_stream_chunk(piece)
            if last:
                held, rest = thoughts.parse_stream_end()
                more, piece = more + held, piece + rest
        reasoning += more
        text, items = parser.parse_stream_chunk(piece)
        if last:
            held, end = parser.parse_stream_end()
            text, items = text + held, [*items, *end]
        content += text
        for item in items:
            if item.name:
                assert item.tool_index == len(calls)
                calls.append([item.name, ""])
            calls[item.tool_index][1] += item.parameters
    return reasoning, content, [tuple(call) for call in calls]


def chunkings(text):
    numbers = random.Random(text)
    cuts = sorted(numbers.sample(range(1, len(text)), min(7, len(text) - 1)))
    return [text], list(text), [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", FORMATS)
def test_streamed_answer_is_the_complete_answer(name):
    for vector in load_text_vectors(VECTORS / "text" / f"{name}.json"):
        if len(vector.text) < 2:
            continue
        bodies = [as_body(tool) for tool in vector.tools] or TOOLS
        whole = parse(name, vector.text, bodies, opened=vector.thinking)
        for pieces in chunkings(vector.text):
            assert stream(name, pieces, bodies, opened=vector.thinking) == whole, (vector.name, pieces)


def blocks_of_reasoning(vector, form):
    return vector.thinking + sum(vector.text.count(opening) for opening, _ in form.reasoning if opening)


@every_case("name", FORMATS)
def test_both_parsers_agree_with_the_vectors(name):
    """SGLang passes on neither whether an answer is finished nor a second block of reasoning."""
    for vector in load_text_vectors(VECTORS / "text" / f"{name}.json"):
        if not vector.finished or blocks_of_reasoning(vector, get(name)) > 1:
            continue
        bodies = [as_body(tool) for tool in vector.tools] or TOOLS
        reasoning, content, calls = parse(name, vector.text, bodies, opened=vector.thinking)
        assert [call for call, _ in calls] == [call.name for call in vector.calls], vector.name
        for (_, arguments), call in zip(calls, vector.calls, strict=True):
            if call.state == "complete":
                assert msgspec.json.decode(arguments) == call.arguments, vector.name
        assert (reasoning + content).split() == (vector.reasoning + vector.content).split(), vector.name


def test_template_that_opens_the_reasoning():
    for text in (f"Hm.</think>Yes {CALL}", f"<think>Hm.</think>Yes {CALL}"):
        expected = ("Hm.", "Yes ", [("f", '{"a": 1}')])
        assert parse("hermes", text, opened=True) == expected
        for pieces in chunkings(text):
            assert stream("hermes", pieces, opened=True) == expected


def test_call_inside_open_reasoning_ends_it():
    for text in (f"<think>I need it. {CALL}", f"I need it. {CALL}"):
        expected = ("I need it. ", "", [("f", '{"a": 1}')])
        assert parse("hermes", text, opened=True) == expected
        for pieces in chunkings(text):
            assert stream("hermes", pieces, opened=True) == expected


def test_call_that_reasoning_continues_after_is_a_draft():
    text = f"<think>I could {CALL}, but no.</think>Hello"
    for pieces in chunkings(text):
        assert stream("hermes", pieces) == parse("hermes", text) == (f"I could {CALL}, but no.", "Hello", [])


def test_reasoning_that_is_not_streamed():
    parser = ReasoningParser("toolwire_hermes", False, False)
    assert [parser.parse_stream_chunk(piece) for piece in ("<think>a", "b</think>", "c")][-1] == ("ab", "c")
    parser = ReasoningParser("toolwire_hermes", False, False)
    parser.parse_stream_chunk("<think>a")
    assert parser.parse_stream_end() == ("a", "")


def test_answer_may_have_to_contain_text():
    detector = ReasoningParser.DetectorMap["toolwire_hermes"](force_nonempty_content=True)
    assert detector.detect_and_parse("<think>a").normal_text == "a"
    assert detector.parse_streaming_increment("<think>a").reasoning_text == ""
    assert detector.finish().normal_text == "a"


def test_detector_records_the_streamed_calls():
    detector = FunctionCallParser.ToolCallParserEnum["toolwire_hermes"]()
    detector.parse_streaming_increment(CALL, sglang_tools(TOOLS))
    assert detector.prev_tool_call_arr == [{"name": "f", "arguments": detector.streamed_args_for_tool[0]}]
    detector.finish(sglang_tools(TOOLS))
    assert detector.prev_tool_call_arr == [{"name": "f", "arguments": '{"a": 1}'}]
    assert detector.streamed_args_for_tool == ['{"a": 1}']


def test_text_that_was_held_is_sent_at_the_end():
    assert stream("hermes", ["a <tool"]) == parse("hermes", "a <tool") == ("", "a <tool", [])


def test_forced_tool_choice_is_left_to_sglang():
    assert not ToolwireDetector().supports_structural_tag()


@every_case(("base", "method"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_base_class_has_the_recorded_parameters(base, method):
    assert parameters_of(getattr(base, method)) == RECORDED[base.__name__][method]


@every_case(("base", "method"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_detector_accepts_what_sglang_passes(base, method):
    if method != "__init__":
        assert parameters_of(getattr(OWN[base], method)) == RECORDED[base.__name__][method]


def test_formats_of_channels_are_not_registered():
    assert "toolwire_harmony" not in REGISTERED
    assert len(FORMATS) == len(REGISTERED) > 40


def test_installed_package_names_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["sglang.srt.plugins"]["toolwire"]
    assert entry == f"{sglang_plugin.__name__}:{sglang_plugin.load_plugin.__name__}"


def test_plugin_costs_nothing_unless_an_argument_names_it(monkeypatch):
    called = []
    monkeypatch.setattr(sglang_plugin, "register_detectors", lambda: called.append(True))
    monkeypatch.setattr(sys, "argv", ["sglang", "--tool-call-parser", "hermes"])
    sglang_plugin.load_plugin()
    assert not called
    monkeypatch.setattr(sys, "argv", ["sglang", "--tool-call-parser", "toolwire_hermes"])
    sglang_plugin.load_plugin()
    assert called


def test_missing_sglang_is_reported_with_the_fix():
    code = "from toolwire.adapters import sglang_detectors"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra" in failed.stderr
    assert "pip install -U sglang" in failed.stderr
