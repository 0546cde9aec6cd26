"""Training examples from traces: runs of agents, exchanges of the gateway, folders of both."""

import json

import pytest

from places import TESTS
from toolwire import Agent, ToolCall, ToolError, tool
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text
from toolwire.ir.request import Message
from toolwire.ir.response import Response, Stop
from toolwire.learn import collect_examples, make_example, write_examples
from toolwire.net import TraceObserver
from toolwire.net.trace.file import TraceWriter
from toolwire.run.traces.format import AnswerHead, ExchangeEnded, ExchangeStarted, TraceHeader
from toolwire.run.traces.recordings import record_pieces
from toolwire.testing import ScriptedModel, says

CLIENTS = TESTS / "fixtures" / "clients"
ROME, OSLO = ToolCall("c1", "look", {"city": "Rome"}), ToolCall("c2", "look", {"city": "Oslo"})
BOOK = ToolCall("c3", "book", {"hotel": "Grand"})


@tool(effect="read")
async def look(city: str) -> dict:
    """Look a city up."""
    return {"city": city, "sky": "sun"}


@tool
async def book(hotel: str) -> str:
    """Book a hotel."""
    if hotel == "Full":
        raise ToolError("no rooms left")
    return f"booked {hotel}"


def record_run(file, script):
    agent = Agent(ScriptedModel(script), [look, book], system="Be brief.", observers=[TraceObserver(file)])
    try:
        agent.run_sync("Plan a trip.")
    except Exception as error:  # a failed run is recorded, too
        assert file.exists(), error


def collect(*sources, **options):
    rejected = []
    found = list(collect_examples(sources, on_rejected=rejected.append, **options))
    return found, [one.reason for one in rejected]


def test_run_becomes_one_conversation(tmp_path):
    file = tmp_path / "run.jsonl"
    record_run(file, [says("Looking.", ROME, OSLO), says(BOOK), says("Done.")])
    (example,), reasons = collect(file)
    assert reasons == []
    assert [message.role for message in example.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert [(call.id, call.name, call.arguments) for call in example.calls] == [
        ("c1", "look", {"city": "Rome"}),
        ("c2", "look", {"city": "Oslo"}),
        ("c3", "book", {"hotel": "Grand"}),
    ]
    assert [result.name for result in example.results] == ["look", "look", "book"]
    assert {tool.name for tool in example.tools} == {"look", "book"}
    assert example.messages[-1].text == "Done."
    assert example.source == "run.jsonl"
    assert example.id


def test_failed_tool_needs_an_option(tmp_path):
    file = tmp_path / "run.jsonl"
    record_run(file, [says(ToolCall("c1", "book", {"hotel": "Full"})), says("Sorry.")])
    assert collect(file) == ([], ["a tool failed"])
    (example,), reasons = collect(file, include_failed=True)
    assert reasons == []
    assert example.results[0].is_error


def test_run_without_an_answer_needs_an_option(tmp_path):
    file = tmp_path / "run.jsonl"
    record_run(file, [says(ROME)])
    assert collect(file) == ([], ["the run failed"])
    (example,), _ = collect(file, include_failed=True)
    assert [call.name for call in example.calls] == ["look"]


def test_truncated_answer_is_never_an_example(tmp_path):
    file = tmp_path / "run.jsonl"
    cut = Response(parts=(Text("Pla"),), stop=Stop("length"))
    record_run(file, [lambda request: cut])
    for include_failed in (False, True):
        examples, reasons = collect(file, include_failed=include_failed)
        assert examples == []
        assert reasons[0] in ("the run failed", "the answer is incomplete")


def write_exchange(file, name, answer, *, status=200, wire="openai_chat", pieces=None, error=None):
    """Write the trace of an exchange with the recorded request of a client."""
    body = json.loads((CLIENTS / f"{name}.json").read_text())["body"] if isinstance(name, str) else name
    writer = TraceWriter.create(file, TraceHeader(2, file.stem, "exchange", "2026-01-01T00:00:00.000Z"))
    writer.write(ExchangeStarted(ms=0, span=1, wire=wire, path="/v1/chat/completions", body=body))
    writer.write(AnswerHead(ms=1, span=1, status=status, body=None if pieces else answer))
    for piece in record_pieces(1, [(0.002, data) for data in pieces or ()]):
        writer.write(piece)
    writer.write(ExchangeEnded(ms=3, span=1, status=status, error=error))
    writer.close()


def chat_answer(content=None, calls=(), reason="stop"):
    message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }


CALLS = [
    {
        "id": "call_mock_0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Paris","unit":"celsius"}'},
    },
    {"id": "call_mock_1", "type": "function", "function": {"name": "get_time", "arguments": '{"tz":"Europe/Paris"}'}},
]
FIRST, SECOND = "ai-sdk-openai-chat-nonstream.01", "ai-sdk-openai-chat-nonstream.02"


def test_exchanges_of_one_conversation_are_one_example(tmp_path):
    """The client's second request repeats the first one with the calls and their results."""
    write_exchange(tmp_path / "1.jsonl", FIRST, chat_answer(calls=CALLS, reason="tool_calls"))
    write_exchange(tmp_path / "2.jsonl", SECOND, chat_answer("22 celsius, 10:00."))
    (example,), reasons = collect(tmp_path)
    assert reasons == ["part of a longer conversation"]
    assert [call.name for call in example.calls] == ["get_weather", "get_time"]
    assert [result.name for result in example.results] == ["get_weather", "get_time"]
    assert example.messages[-1].text == "22 celsius, 10:00."
    assert {tool.name for tool in example.tools} >= {"get_weather", "get_time"}


@pytest.mark.parametrize(
    ("answer", "options", "reason"),
    [
        (chat_answer("half", reason="length"), {}, "the answer is incomplete"),
        (
            chat_answer(
                calls=[{**CALLS[0], "function": {"name": "get_weather", "arguments": '{"ci'}}], reason="tool_calls"
            ),
            {},
            "truncated call",
        ),
        (
            chat_answer(
                calls=[{**CALLS[0], "function": {"name": "get_weather", "arguments": "[1]"}}], reason="tool_calls"
            ),
            {},
            "invalid call",
        ),
        ({"error": {"message": "busy"}}, {"status": 429}, "the request failed"),
        (chat_answer("x"), {"error": "disconnected"}, "the request failed"),
        ({"nothing": True}, {}, "unreadable recording"),
        (chat_answer(""), {}, "the answer is empty"),
        (None, {"pieces": [b'data: {"choices":[{"index":0,"delta":{"content":"ha"}}]}\n\n']}, "unreadable recording"),
    ],
)
def test_unusable_exchange_is_rejected_with_a_reason(tmp_path, answer, options, reason):
    write_exchange(tmp_path / "1.jsonl", FIRST, answer, **options)
    assert collect(tmp_path) == ([], [reason])


def test_stream_of_an_exchange_is_read(tmp_path):
    chunk = {
        "id": "x",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": None}],
    }
    end = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    pieces = [f"data: {json.dumps(chunk)}\n\ndata: {json.dumps(end)}\n\n".encode(), b"data: [DONE]\n\n"]
    write_exchange(tmp_path / "1.jsonl", FIRST, None, pieces=pieces)
    (example,), _ = collect(tmp_path)
    assert example.messages[-1].text == "Hi."


def test_conversation_stored_by_the_provider_is_rejected(tmp_path):
    body = {"model": "m", "input": "And now?", "previous_response_id": "resp_1"}
    output = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "x", "annotations": []}],
    }
    answer = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [output]}
    write_exchange(tmp_path / "1.jsonl", body, answer, wire="openai_responses")
    assert collect(tmp_path) == ([], ["the conversation is stored by the provider"])


def test_interrupted_trace_is_rejected(tmp_path):
    record_run(tmp_path / "run.jsonl", [says(ROME), says("Done.")])
    lines = (tmp_path / "run.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run.jsonl").write_bytes(b"".join(lines[:3]))
    (tmp_path / "bad.jsonl").write_bytes(lines[0] + b"nonsense\n")
    examples, reasons = collect(tmp_path)
    assert examples == []
    assert sorted(reasons) == ["the run failed", "unreadable recording"]


def test_cut_recording_is_rejected(tmp_path):
    record_run(tmp_path / "run.jsonl", [says(ROME), says("Done.")])
    text = (tmp_path / "run.jsonl").read_text().replace("Plan a trip.", "Plan…[cut: 9999 characters]")
    (tmp_path / "run.jsonl").write_text(text)
    assert collect(tmp_path) == ([], ["the recording was cut"])


def test_folder_may_mix_traces_and_training_files(tmp_path):
    record_run(tmp_path / "run.jsonl", [says("Hello.")])
    write_examples(
        tmp_path / "train.jsonl",
        [make_example([Message("user", (Text("a"),)), Message("assistant", (Text("b"),))])],
        "openai",
    )
    (tmp_path / "train.manifest.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("no data")
    examples, reasons = collect(tmp_path)
    assert reasons == []
    assert [example.messages[-1].text for example in examples] == ["Hello.", "b"]


def test_source_without_files_is_a_usage_error(tmp_path):
    with pytest.raises(ConfigError, match=r"has no \.jsonl"):
        list(collect_examples([tmp_path]))
    with pytest.raises(ConfigError, match="does not exist"):
        list(collect_examples([tmp_path / "absent.jsonl"]))


def test_changing_system_message_does_not_repeat_the_conversation(tmp_path):
    record_run(tmp_path / "run.jsonl", [says(ROME), says("Done.")])
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    second = [line for line in lines if line.get("event") == "request"][1]
    first = next(line for line in lines if line.get("event") == "run")
    kept = first["request"]["messages"][: second["kept"]]
    assert kept[0]["role"] == "system"
    changed = [{"role": "system", "parts": [{"part": "text", "text": "It is 9:01."}]}, *kept[1:]]
    second["body"]["messages"] = [*changed, *second["body"].get("messages", [])]
    second["kept"] = 0
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (example,), reasons = collect(tmp_path)
    assert reasons == []
    assert [call.name for call in example.calls] == ["look"]
