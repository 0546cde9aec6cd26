"""`toolwire tools cost`: tokens per declaration, calls in recordings of all forms, the saving by retrieval, the chart."""

import json

import pytest

from toolwire import Agent, ToolCall, tool
from toolwire.cli.main import main
from toolwire.cli.tools.cost import RecordedCalls
from toolwire.ir.errors import ConfigError
from toolwire.net import TraceObserver
from toolwire.run.traces.format import (
    AnswerHead,
    AnswerPiece,
    ExchangeStarted,
    TraceHeader,
    encode_event,
    encode_header,
)
from toolwire.testing import ScriptedModel, says

TOOLS = [
    {"name": "get_weather", "description": "Return the weather.", "parameters": {"type": "object", "properties": {}}},
    {
        "name": "send_mail",
        "description": "Send an e-mail message to one or several people. " * 5,
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
    {"name": "add", "description": "Add numbers.", "parameters": {"type": "object", "properties": {}}},
]
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}}
FIRST = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]}
ANSWER = {
    "id": "a",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        }
    ],
}
SECOND = {
    "model": "m",
    "messages": [
        *FIRST["messages"],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ],
}
STREAM = (
    'data: {"id":"s","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant",'
    '"tool_calls":[{"index":0,"id":"c9","type":"function","function":{"name":"add","arguments":"{}"}}]},'
    '"finish_reason":null}]}\n\n'
    'data: {"id":"s","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},'
    '"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
def sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), "utf-8")
    lines = [{"request": FIRST, "response": ANSWER}, {"request": SECOND}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return tmp_path


def test_cost_lists_the_longest_declaration_first_with_shares_and_their_sum(sources, capsys):
    assert main(["tools", "cost", "tools.json", "-k", "1"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()[2:5]]
    assert [row[0] for row in rows] == ["send_mail", "get_weather", "add"]
    assert rows[2][5] == "100.0"
    tokens = [int(row[2]) for row in rows]
    assert tokens == sorted(tokens, reverse=True)
    assert f"3 tools, about {sum(tokens)} tokens in every request" in out
    assert f"about {round(sum(tokens) / 3)} tokens, at most {tokens[0]}; saves about 66." in out


def test_a_call_that_later_requests_repeat_is_counted_once(sources, capsys):
    assert main(["tools", "cost", "tools.json", "--recordings", "log.jsonl", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["name"]: one["calls"] for one in document["tools"]} == {"get_weather": 1, "send_mail": 0, "add": 0}
    assert document["recordings"] == {"requests": 2, "calls": 1, "unknown_tools": []}


def test_tools_that_were_never_called_are_summed(sources, capsys):
    assert main(["tools", "cost", "tools.json", "--recordings", "log.jsonl"]) == 0
    assert "1 call in 2 requests; 2 tools never called: " in capsys.readouterr().out


def test_calls_of_har_files_and_streams_are_counted(sources):
    entries = [
        {"request": {"postData": {"text": json.dumps(FIRST)}}, "response": {"content": {"text": json.dumps(ANSWER)}}},
        {"request": {"postData": {"text": json.dumps(FIRST)}}, "response": {"content": {"text": STREAM}}},
    ]
    (sources / "proxy.har").write_text(json.dumps({"log": {"entries": entries}}), "utf-8")
    recorded = RecordedCalls()
    recorded.add_file("proxy.har")
    assert recorded.counts == {"get_weather": 1, "add": 1}
    assert recorded.requests == 2


def test_calls_of_the_trace_of_a_run_are_counted(sources):
    @tool(effect="read")
    def get_weather(city: str) -> str:
        """Return the weather."""
        return city

    calls = ToolCall("c1", "get_weather", {"city": "Rome"}), ToolCall("c2", "get_weather", {"city": "Oslo"})
    model = ScriptedModel([says(*calls), says("Sun in both.")])
    Agent(model, [get_weather], observers=[TraceObserver("run.jsonl")]).run_sync("Weather?")
    recorded = RecordedCalls()
    recorded.add_file("run.jsonl")
    assert recorded.counts == {"get_weather": 2}
    assert recorded.requests == 2


def test_calls_of_a_recorded_exchange_of_the_gateway_are_counted(sources):
    events = [
        TraceHeader(2, "a", "exchange", "2026-11-16T10:00:00.000Z"),
        ExchangeStarted(ms=0.0, span=1, wire="openai_chat", path="/v1/chat/completions", body=SECOND),
        AnswerHead(ms=1.0, span=1, status=200),
        AnswerPiece(ms=2.0, span=1, text=STREAM[:80]),
        AnswerPiece(ms=3.0, span=1, text=STREAM[80:]),
    ]
    data = encode_header(events[0]) + b"".join(map(encode_event, events[1:]))
    (sources / "exchange.jsonl").write_bytes(data)
    recorded = RecordedCalls()
    recorded.add_file("exchange.jsonl")
    assert recorded.counts == {"get_weather": 1, "add": 1}
    assert recorded.requests == 1


def test_called_tools_that_are_not_declared_are_listed(sources, capsys):
    (sources / "less.json").write_text(json.dumps(TOOLS[1:]), "utf-8")
    assert main(["tools", "cost", "less.json", "--recordings", "log.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recordings"]["unknown_tools"] == ["get_weather"]


def test_a_recording_without_requests_is_refused(sources, capsys):
    (sources / "other.jsonl").write_text('{"a": 1}\n{"b": 2}\n', "utf-8")
    with pytest.raises(ConfigError, match="no requests or answers"):
        RecordedCalls().add_file("other.jsonl")
    assert main(["tools", "cost", "tools.json", "--recordings", "other.jsonl"]) == 2
    assert "give a trace" in capsys.readouterr().err


def test_plot_is_written_as_svg_or_html_and_escapes_names(sources, capsys):
    hostile = [{**TOOLS[0], "name": "a<script>\u001b[31m"}]
    (sources / "hostile.json").write_text(json.dumps(hostile), "utf-8")
    for name in ("cost.svg", "cost.html"):
        assert main(["tools", "cost", "hostile.json", "--plot", name]) == 0
        text = (sources / name).read_text("utf-8")
        assert "<script>" not in text
        assert "\x1b" not in text
        assert "a&lt;script&gt;" in text
    assert main(["tools", "cost", "tools.json", "--plot", "cost.png"]) == 2
    assert "ends with .svg or .html" in capsys.readouterr().err


def test_rows_beyond_top_are_counted(sources, capsys):
    assert main(["tools", "cost", "tools.json", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "2 more tools; show them with --top 3" in out
    assert "get_weather" not in out


def test_sum_of_each_server_is_printed_if_there_are_several(sources, capsys):
    (sources / "more.json").write_text(json.dumps(TOOLS[:1]), "utf-8")
    assert main(["tools", "cost", "tools.json", "more.json", "--recordings", "log.jsonl"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    start = lines.index(["server", "tools", "tokens", "share", "calls"])
    assert [line[:2] for line in lines[start + 2 : start + 4]] == [["tools", "3"], ["more", "1"]]
