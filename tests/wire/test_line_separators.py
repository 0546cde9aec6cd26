"""Characters at which clients split lines never reach them raw: judged by the clients' own line splitters."""

import json

import httpx
import pytest
from google.genai._api_client import HttpResponse

from recordings import WIRES
from tables import every_case
from toolwire import Response, Text, ToolCall, translate_stream, unfold
from toolwire.ir.events import ResponseStart, StreamFault
from toolwire.ir.parts import Reasoning
from toolwire.ir.response import Fault, Stop
from toolwire.mcp.protocol.rpc import Result, write
from toolwire.net.model.pass_through import ForwardedStream
from toolwire.testing.stream_checks import bytewise
from toolwire.wire import get

LINE_WIRES = [wire for wire in WIRES if wire != "bedrock"]  # its messages are binary, so no client splits them
SEPARATORS = "\u2028\u2029\x85\v\f\x1c\x1d\x1e"
TEXT = "".join(f"a{character}b" for character in SEPARATORS)
ANSWER = Response(
    f"r{TEXT}",
    f"m{TEXT}",
    (Reasoning(TEXT), Text(TEXT), ToolCall("c1", "find", {"query": TEXT, f"k{TEXT}": [TEXT]})),
    Stop("tool_calls"),
)


def stream_of(wire, response=ANSWER):
    encoder = get(wire).stream_encoder()
    return b"".join([encoder.feed(event) for event in unfold(response)])


def raw_stream_of(wire):
    """A stream as a server writes it that escapes only what JSON requires."""
    data = stream_of(wire)
    for character in "\u2028\u2029\x85":
        data = data.replace(b"\\u%04x" % ord(character), character.encode())
    assert "\u2028".encode() in data
    return data


def payloads(data):
    """Return the documents of a stream, split into lines as httpx does, on which google-genai and ollama rely."""
    lines = httpx.Response(200, stream=httpx.ByteStream(data)).iter_lines()
    return [
        json.loads(line.removeprefix("data: "))
        for line in lines
        if line and not line.startswith(("event:", ":")) and line != "data: [DONE]"
    ]


def leaves(value):
    """Return all strings in a JSON value."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.finding("GA2")
@pytest.mark.parametrize("wire", LINE_WIRES)
def test_streams_survive_a_client_that_splits_lines_at_any_separator(wire):
    assert TEXT in leaves(payloads(stream_of(wire)))


@pytest.mark.finding("GA2")
def test_google_genai_reads_the_text_of_a_stream():
    response = HttpResponse({}, httpx.Response(200, stream=httpx.ByteStream(stream_of("gemini"))))
    parts = [
        part
        for chunk in response.segments()
        for candidate in chunk.get("candidates", ())
        for part in candidate.get("content", {}).get("parts", ())
    ]
    assert "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) == TEXT
    assert [part["functionCall"]["args"]["query"] for part in parts if "functionCall" in part] == [TEXT]


@pytest.mark.finding("GA2")
@every_case("target", LINE_WIRES)
@every_case("source", LINE_WIRES)
def test_translated_and_forwarded_streams_have_no_raw_separator(source, target):
    data = raw_stream_of(source)
    for chunks in ([data], list(bytewise(data)), [data[:500], data[500:]]):
        if source == target:
            stream = ForwardedStream(get(source), lambda: None)
        else:
            stream = translate_stream(source=source, target=target)
        out = b"".join(map(stream.feed, chunks)) + stream.close()
        assert not set("\u2028\u2029\x85") & set(out.decode()), (source, target)
        payloads(out)


@pytest.mark.finding("GA2")
@pytest.mark.parametrize("wire", LINE_WIRES)
def test_error_events_have_no_raw_separator(wire):
    encoder = get(wire).stream_encoder()
    out = encoder.feed(ResponseStart()) + encoder.feed(StreamFault(Fault("server", TEXT)))
    assert payloads(out)


@pytest.mark.finding("GA2")
def test_mcp_messages_have_no_raw_separator():
    data = write(Result(1, {"content": [{"type": "text", "text": TEXT}]}))
    assert len(data.decode().splitlines()) == 1
