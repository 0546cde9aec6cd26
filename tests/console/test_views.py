"""The views of the console as functions: streams, model text, tools, and the page as one file."""

import base64
import hashlib
import json
import re
from itertools import pairwise

import pytest

from hostile_strings import HOSTILE
from places import TESTS
from tables import every_case
from toolwire.audit.findings import TARGETS
from toolwire.audit.tools import audit_targets, audit_tools
from toolwire.bridge.comparison import compare
from toolwire.bridge.comparison.streams import find_boundaries
from toolwire.cli.main import main
from toolwire.gateway.console import streams
from toolwire.gateway.console.messages import StreamRequest, TextRequest, ToolsRequest, TranslateRequest
from toolwire.gateway.console.samples import samples
from toolwire.gateway.console.single_file import TARGETS as PAGE_TARGETS
from toolwire.gateway.console.single_file import bundle, write_page
from toolwire.gateway.console.streams import stream_view
from toolwire.gateway.console.tool_lists import tools_view
from toolwire.gateway.console.translation import may_contain_calls, read_tools, text_view, translate_view
from toolwire.ir.folding import unfold
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.response import Response, Stop
from toolwire.text import get as get_format
from toolwire.text import names as format_names
from toolwire.text.engine.offered_tools import OfferedTools
from toolwire.wire import get, names

SAMPLES = {sample.id: sample.input for sample in samples()}
ANSWER = Response(
    "r1", "m", (Text("Grüße 😀"), ToolCall("call_1", "look", {"city": "Köln 😀", "days": 3})), Stop("tool_calls")
)
TEXTUAL = [name for name in names() if name != "bedrock"]  # whose streams are text, so that they can be pasted
STREAMS = {
    name: b"".join(encoder.feed(event) for event in unfold(ANSWER)).decode()
    for name in TEXTUAL
    if (encoder := get(name).stream_encoder())
}


def cut(text, at):
    """Return a part of a text by UTF-16 code units, as JavaScript does."""
    units = text.encode("utf-16-le")
    return units[2 * at[0] : 2 * at[1]].decode("utf-16-le")


@every_case("wire", TEXTUAL)
@every_case("chunks", [{}, {"every": 3}, {"every": 7}, {"every": 10_000}, {"cuts": [5, 5, 40, 9_999]}])
def test_chunks_do_not_change_a_stream(wire, chunks):
    whole = stream_view(StreamRequest(STREAMS[wire], wire))
    stepped = stream_view(StreamRequest(STREAMS[wire], wire, **chunks))
    data = STREAMS[wire].encode()
    assert stepped.end == whole.end and whole.end.state == "complete"
    for target in whole.targets:
        joined = ["".join(step.targets[target] for step in answer.steps) for answer in (whole, stepped)]
        assert joined[0] == joined[1]
    assert [step.at[0] for step in stepped.steps[1:]] == [step.at[1] for step in stepped.steps[:-1]]
    assert stepped.steps[-1].at == (len(data), len(data))
    calls = [call for step in stepped.steps for call in step.calls]
    assert json.loads(calls[-1].arguments) == {"city": "Köln 😀", "days": 3}
    assert calls[-1].state == "complete"
    assert whole.boundaries[0][0] == 0 and whole.boundaries[-1][1] == len(data)


@every_case("wire", TEXTUAL)
def test_stream_that_is_cut_has_its_position_and_open_calls(wire):
    data = STREAMS[wire].encode()
    at = data.index(b"look") + 30
    answer = stream_view(StreamRequest(STREAMS[wire], wire, end=at))
    assert (answer.end.state, answer.end.at, answer.bytes) == ("truncated", at, at)
    assert answer.end.step == len(answer.steps) - 1
    assert all(target.error for target in answer.targets.values())
    if wire in ("anthropic", "openai_chat", "openai_responses"):  # the others send a call in one piece
        assert answer.end.open in (["call look"], [])


def test_arguments_grow_step_by_step():
    answer = stream_view(StreamRequest(SAMPLES["stream"]))
    seen = [call.arguments for step in answer.steps for call in step.calls]
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert answer.source == "anthropic"
    cut_stream = stream_view(StreamRequest(SAMPLES["cut-stream"]))
    assert cut_stream.end.state == "truncated" and cut_stream.end.open == ["call get_weather"]
    assert cut_stream.steps[-1].calls[0].state == "truncated"


def test_invalid_event_has_its_position():
    text = STREAMS["openai_chat"]
    first = text.index("\n\n") + 2
    broken = text[:first] + "data: {broken\n\n" + text[first:]
    answer = stream_view(StreamRequest(broken, "openai_chat", every=50))
    assert (answer.end.state, answer.end.at) == ("invalid", first)
    assert answer.steps[answer.end.step].at[1] > first


def test_ranges_of_tiny_events_are_joined_after_the_last_step(monkeypatch):
    monkeypatch.setattr(streams, "MAX_STEPS", 10)
    answer = stream_view(StreamRequest("data: {}\n\n" * 50, "openai_chat"))
    assert answer.boundaries == [*((10 * n, 10 * n + 10) for n in range(9)), (90, 500)]


def test_number_of_steps_is_bounded(monkeypatch):
    monkeypatch.setattr(streams, "MAX_STEPS", 10)
    answer = stream_view(StreamRequest(STREAMS["anthropic"], every=1))
    assert len(answer.steps) == 11
    assert answer.left_out == len(STREAMS["anthropic"].encode()) - 10
    assert answer.end.state == "complete"


def test_bytes_after_the_last_step_are_fed_in_large_pieces(monkeypatch):
    """Each feed costs as much as several hundred bytes, so single bytes of a large stream would take minutes."""
    sizes = []
    feed = streams._SteppedStream.feed
    monkeypatch.setattr(streams, "MAX_STEPS", 10)
    monkeypatch.setattr(
        streams._SteppedStream, "feed", lambda self, data, start: sizes.append(len(data)) or feed(self, data, start)
    )
    answer = stream_view(StreamRequest(STREAMS["anthropic"], every=1))
    assert sizes == [1] * 10 + [answer.bytes - 10]


def test_lines_of_an_event_are_one_range_whatever_their_ends():
    for end in (b"\n", b"\r\n", b"\r"):
        first, second = (end.join((b"event: " + name, b"data: 1", b"", b"")) for name in (b"a", b"bb"))
        assert find_boundaries(first + second) == [(0, len(first)), (len(first), len(first + second))]


def test_array_of_chunks_has_boundaries():
    chunks = json.dumps(
        [{"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, {"candidates": [{"finishReason": "STOP"}]}]
    )
    answer = stream_view(StreamRequest(chunks, "gemini"))
    assert len(answer.boundaries) >= 2
    assert answer.end.state == "complete"


def test_spans_of_model_text_are_exact_after_astral_characters():
    text = f"😀😀 {SAMPLES['text']}"
    answer = text_view(TextRequest(text))
    assert answer.format == "hermes" and answer.detected
    assert "hermes" in {candidate.name for candidate in answer.candidates}
    by_kind = {span.kind: cut(text, span.at) for span in answer.spans}
    assert by_kind["name"] == "get_weather"
    assert by_kind["call"].startswith("<tool_call>")
    assert [part.kind for part in answer.parts if part.kind != "text"][:2] == ["reasoning", "call"]
    assert answer.diagnostics and all(note.detail for note in answer.diagnostics)
    assert text_view(TextRequest("plain words")).format is None


def test_formats_that_are_not_tried_find_no_calls():
    """A text of every fortieth vector, which is in one format, is tried in all of them."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((TESTS / "vectors/text").glob("*.json"))]
    texts = dict.fromkeys(vector["text"] for file in files for vector in file["vectors"] if "text" in vector)
    skipped = 0
    for text in [text for text in texts if len(text) < 500][::40]:
        for form in map(get_format, format_names()):
            if not may_contain_calls(form, text, OfferedTools(())):
                skipped += 1
                assert not any(form.parse(text, reasoning=inside).calls for inside in (False, True)), (form.name, text)
    assert skipped > 100


def test_another_format_reads_the_text_in_another_way():
    answer = text_view(TextRequest(SAMPLES["text"], "qwen3_xml"))
    assert (answer.format, answer.detected) == ("qwen3_xml", False)


def test_declared_tools_determine_the_type_of_an_argument():
    text = '<tool_call>\n{"name": "f", "arguments": {"n": "42"}}\n</tool_call>'
    tools = json.dumps({"tools": [{"name": "f", "inputSchema": {"properties": {"n": {"type": "integer"}}}}]})
    assert json.loads(text_view(TextRequest(text)).parts[0].arguments) == {"n": "42"}
    assert text_view(TextRequest(text, tools=tools)).parts[0].arguments


def test_findings_and_differences_are_at_their_places():
    text = SAMPLES["tool-list"]
    answer = tools_view(ToolsRequest(text))
    assert [provider.name for provider in answer.providers] == list(TARGETS)
    gemini = next(provider for provider in answer.providers if provider.name == "gemini")
    assert any(finding.severity == "error" for finding in answer.findings)
    for provider in answer.providers:
        assert provider.tokens == sum(tool.tokens[provider.wire] for tool in answer.tools)
        for finding in map(answer.findings.__getitem__, provider.findings):
            if finding.tool is not None:
                assert cut(text, finding.at)
        for lowered in provider.tools:
            for difference in lowered.differences:
                if difference.before_at is not None:
                    assert value_after_key(cut(text, difference.before_at)) == json.loads(difference.before)
                if difference.after_at is not None:
                    assert value_after_key(cut(lowered.text, difference.after_at)) == json.loads(difference.after)
    removed = {d.pointer for tool in gemini.tools for d in tool.differences if d.change == "removed"}
    assert "/properties/headers/additionalProperties" in removed
    assert [cut(text, tool.at).startswith("{") for tool in answer.tools] == [True, True]


def value_after_key(text):
    try:
        return next(iter(json.loads("{" + text + "}").values()))
    except ValueError:
        return json.loads(text)


def test_tools_of_a_request_and_details_on_demand():
    tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(150)]
    answer = tools_view(ToolsRequest(json.dumps({"tools": tools}), providers=["openai", "gemini"]))
    assert [len(provider.tools) for provider in answer.providers] == [0, 0]
    assert any(answer.findings[number].rule == "TW010" for number in answer.providers[0].findings)
    some = tools_view(ToolsRequest(json.dumps({"tools": tools}), providers=["openai"], details=[3, 999, -999, 3]))
    assert [lowered.tool for lowered in some.providers[0].tools] == [3]
    request = tools_view(ToolsRequest(SAMPLES["request"], providers=["openai"]))
    assert request.tools[0].name == "get.weather"
    assert {finding.rule for finding in request.findings} >= {"TW002"}


def test_strict_tools_with_losses_are_errors():
    answer = tools_view(ToolsRequest(SAMPLES["tool-list"], providers=["gemini"], strict=True))
    assert {lowered.error.type for lowered in answer.providers[0].tools if lowered.error} == {"LossError"}


def test_audit_of_all_targets_equals_an_audit_of_each():
    tools = read_tools(SAMPLES["tool-list"]) + read_tools(SAMPLES["request"])
    assert audit_targets(tools, TARGETS) == {target: audit_tools(tools, targets=(target,)) for target in TARGETS}


def test_positions_of_a_translation_are_code_units():
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "😀😀"}, {"role": "user", "content": "after"}]}
    text = json.dumps(body, ensure_ascii=False)
    answer = translate_view(TranslateRequest(text))
    for document in (answer.source, *answer.outputs):
        place = next(place for place in document.elements if place.id == "x1")
        assert json.loads(cut(document.text, place.spans[0])) == "after"
    assert translate_view(TranslateRequest(text, with_source=False)).source.text is None
    assert translate_view(TranslateRequest(text, pretty=True)).source.text.count("\n") > 5


def read_page(page):
    """Return the policy, the script, the style and the data of a page."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    data = re.search(r'<script type="application/json" id="toolwire-data">(.*?)</script>', page, re.DOTALL)[1]
    return policy, script, style, data


def test_page_allows_its_own_script_only_and_holds_hostile_data():
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": text} for text in HOSTILE]}
    text = json.dumps(body)
    policy, script, style, data = read_page(write_page(compare(text, targets=PAGE_TARGETS)))
    for source, written in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(written.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert "<" not in data
    document = json.loads(data)
    assert document["source"]["text"] == text
    assert {"Gemini", "hermes"} & set(document["titles"].values()) or document["titles"]["gemini"] == "Gemini"
    assert [output["name"] for output in document["outputs"]][:2] == ["anthropic", "bedrock"]
    assert not re.search(r"""(?:src|href)=["']?(?!data:)""", style)


def test_convert_writes_a_page(tmp_path, capsys):
    page = tmp_path / "page.html"
    request = tmp_path / "request.json"
    request.write_text(SAMPLES["request"].replace("Weather", "sk-abcdefghijklmnop1234"), encoding="utf-8")
    assert main(["convert", str(request), "--html", str(page)]) == 0
    assert "keys were removed" in capsys.readouterr().err
    assert "sk-abc" not in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o600
    assert main(["convert", str(request), "--html", str(page), "--to", "openai_chat", "--strict"]) == 1
    assert [output["name"] for output in json.loads(read_page(page.read_text(encoding="utf-8"))[3])["outputs"]] == [
        "openai_chat"
    ]
    assert main(["convert", str(request), "--html", str(tmp_path / "none" / "x.html")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "request.json"]


def test_page_of_functions_has_no_other_kind(tmp_path, capsys):
    source, page = tmp_path / "tools.py", tmp_path / "page.html"
    source.write_text('def look(city: str) -> str:\n    """Look."""\n    return city\n', encoding="utf-8")
    assert main(["convert", str(source), "--html", str(page), "--kind", "response"]) == 2
    assert "contains tools, not a response" in capsys.readouterr().err
    assert not page.exists()


def test_page_of_a_stream_has_only_wires_and_reports_failures(tmp_path, capsys):
    """No text format has a stream, which is no failure. A document that no target can show is written nowhere."""
    stream, page = tmp_path / "answer.sse", tmp_path / "page.html"
    stream.write_text(SAMPLES["answer-stream"], encoding="utf-8")
    assert main(["convert", str(stream), "--html", str(page), "--strict"]) == 0
    shown = json.loads(read_page(page.read_text(encoding="utf-8"))[3])["outputs"]
    assert sorted(output["name"] for output in shown) == sorted(set(names()) - {"anthropic"})
    page.unlink()
    capsys.readouterr()
    assert main(["convert", str(stream), "--html", str(page), "--to", "hermes"]) == 2
    assert "hermes: a text format has no stream" in capsys.readouterr().err
    assert not page.exists()


@every_case(
    "source",
    ["export default 1;", 'import x from "./a.js";', 'import {a} from "./b.js";', "  export const a = 1;", "// <!--"],
)
def test_unknown_form_of_a_module_is_refused(source):
    with pytest.raises(ValueError):
        bundle({"a.js": source})


def test_modules_become_functions_of_one_script():
    script = bundle(
        {
            "lib/a.js": "const x = 1;\nexport {x as one, x};\nexport function two() { return 2; }\n",
            "b.js": 'import {one, two as zwei} from "./lib/a.js";\nimport * as all from "./lib/a.js";\nexport const c = one + zwei() + all.x;\n',
        }
    )
    assert "const {one, two: zwei} = $module0;" in script and "const all = $module0;" in script
    assert "return {one: x, x: x, two};" in script
