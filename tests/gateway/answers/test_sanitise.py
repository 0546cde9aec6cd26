"""What a recording keeps, and what it does not."""

import json
from random import Random

import pytest

from tables import every_case
from toolwire import Response, Text, ToolCall
from toolwire.ir.events import CallDelta, TextDelta
from toolwire.ir.folding import fold, unfold
from toolwire.ir.response import Stop
from toolwire.run.traces.redact import Redactor
from toolwire.run.traces.sanitise import Sanitiser
from toolwire.testing import random_chunks
from toolwire.wire import get

CLEAN = Sanitiser(Redactor(["correct horse battery"]))
WIRES = ["anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses"]
SECRET = "sk-canary-0123456789abcdef"


def test_secret_header_values_are_removed_and_names_kept():
    given = {
        "authorization": "Bearer abc",
        "cookie": "a=b",
        "openai-organization": "org-1",
        "content-type": "application/json",
        "x-toolwire-losses": "2",
        "user-agent": f"mine {SECRET}",
    }
    assert CLEAN.sanitise_headers(given) == {
        "authorization": "[removed]",
        "cookie": "[removed]",
        "openai-organization": "[removed]",
        "content-type": "application/json",
        "x-toolwire-losses": "2",
        "user-agent": "mine [removed]",
    }


@every_case(
    "name",
    [
        *("password", "db_password", "dbPassword", "DB_PASSWORD", "passwd", "pwd", "password_hash", "auth"),
        *("github_token", "api_token", "userToken", "x-auth-token", "accesstoken", "tokens"),
        *("aws_secret_access_key", "access_key", "private-key", "clientSecret", "credentials", "Set-Cookie"),
    ],
)
@every_case("value", ["hunter22", ["hunter22"], {"value": "hunter22", "more": ["hunter22"]}])
def test_secrets_are_recognised_by_name(name, value):
    assert "hunter22" not in str(CLEAN.sanitise_document({"result": [{name: value}]}))
    assert "hunter22" not in CLEAN.sanitise_document(json.dumps({name: value}))
    assert "hunter22" not in str(CLEAN.sanitise_document({"env": [{"name": name, "value": value}]}))
    if value == "hunter22" and name not in ("auth", "tokens"):
        assert "hunter22" not in CLEAN.sanitise_text(f"Result: {json.dumps({name: value})}")


@pytest.mark.parametrize(
    "text",
    [
        'Result: {"user_password": "hunter22"}',
        "{'api_key': 'hunter22'}",
        "RuntimeError: password=hunter22 was refused",
        "export GITHUB_TOKEN=hunter22",
        "user: ann\ndb_password: hunter22\n",
        'arguments: {\\"client_secret\\": \\"hunter22\\"}',
    ],
)
def test_named_secrets_are_removed_from_texts(text):
    assert "hunter22" not in CLEAN.sanitise_text(text)


@pytest.mark.parametrize(
    "document",
    [
        {"max_tokens": 5, "usage": {"input_tokens": 3, "tokens": 8}, "token_count": "4", "nextPageToken": "abc"},
        {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]},
        {"properties": {"password": {"type": "string", "description": "text"}}, "required": ["password", "user"]},
        {"dependentRequired": {"password": ["user"]}, "password_policy": "long", "keyboard": "de"},
        "The password: see below, and the secret is that there is none. a == b; token == other",
    ],
)
def test_other_values_are_kept(document):
    assert CLEAN.sanitise_document(document) == document


def test_nested_document_and_lone_surrogate_are_sanitised():
    nested = "[" * 700 + "]" * 700
    assert str(CLEAN.sanitise_document(nested)).strip("[]") == '"[removed]"'
    assert str(CLEAN.sanitise_document(json.loads(nested))).strip("[]") == "'[removed]'"
    assert CLEAN.sanitise_document({"na\udcffme": "file-\udcff"}) == {"na?me": "file-?"}


def test_secret_that_is_a_number_is_removed():
    clean = Sanitiser(Redactor(["1234567890"]))
    document = {"a": 1234567890, "b": -1234567890, "c": [1234567890.5, 123, 9876543210], "d": '{"e":1234567890}'}
    assert clean.sanitise_document([float("inf"), 10**5000]) == [float("inf"), 10**5000]
    cleaned = clean.sanitise_document(document)
    assert cleaned == {
        "a": "[removed]",
        "b": "[removed]",
        "c": ["[removed]", 123, 9876543210],
        "d": '{"e":"[removed]"}',
    }


def test_user_ids_and_secrets_are_removed_and_schemas_kept():
    body = {
        "model": "m",
        "user": "ann@example.com",
        "metadata": {"user_id": "u-1"},
        "safety_identifier": "s-1",
        "tools": [{"name": "login", "parameters": {"properties": {"password": {"type": "string"}, "user": {}}}}],
        "messages": [
            {"role": "user", "content": f"my key is {SECRET}"},
            {"tool_calls": [{"function": {"arguments": '{"user": "ann", "password": "hunter2", "pin": 1}'}}]},
        ],
        "max_tokens": 5,
    }
    assert CLEAN.sanitise_body(body) == {
        "model": "m",
        "user": "[removed]",
        "metadata": {"user_id": "[removed]"},
        "safety_identifier": "[removed]",
        "tools": body["tools"],
        "messages": [
            {"role": "user", "content": "my key is [removed]"},
            {"tool_calls": [{"function": {"arguments": '{"user":"ann","password":"[removed]","pin":1}'}}]},
        ],
        "max_tokens": 5,
    }


def test_response_that_echoes_the_request_is_sanitised_too():
    event = {"type": "response.created", "response": {"user": "ann", "metadata": {"a": "b"}, "output": []}}
    assert CLEAN.sanitise_body(event)["response"] == {"user": "[removed]", "metadata": {"a": "[removed]"}, "output": []}


def test_tokens_of_log_probabilities_are_kept():
    assert CLEAN.sanitise_body({"token": "Hi", "logprob": -1.0}) == {"token": "Hi", "logprob": -1.0}
    assert CLEAN.sanitise_body({"token": "Hi"}) == {"token": "[removed]"}


def test_media_are_truncated_on_request():
    image = "iVBORw0KGgo" + "A" * 1000
    url = f"data:image/png;base64,{image}"
    assert CLEAN.sanitise_body({"url": url}) == {"url": url}
    short = Sanitiser(Redactor(), shorten_media=True).sanitise_body({"url": url, "data": image, "text": "word " * 200})
    assert short == {"url": f"data:image/png;base64,{image[:64]}", "data": image[:64], "text": "word " * 200}


def stream_of(response, wire, size):
    """The bytes of a stream with deltas of so many characters."""
    encoder = get(wire).stream_encoder()
    out = b""
    for event in unfold(response):
        if isinstance(event, (TextDelta, CallDelta)):
            for start in range(0, len(event.text), size):
                out += encoder.feed(type(event).of(event.key, event.text[start : start + size]))
        else:
            out += encoder.feed(event)
    return out


def read(wire, data):
    decoder = get(wire).stream_decoder()
    return fold([*decoder.feed(data), *decoder.close()])


@pytest.mark.parametrize("wire", WIRES)
def test_secret_split_across_chunks_is_removed(wire):
    said = Response(
        parts=(Text(f"the key: {SECRET}. Bye"), ToolCall("call12345", "login", {"password": "hunter2", "name": "ann"})),
        stop=Stop("tool_calls"),
    )
    data = stream_of(said, wire, 5)
    pieces = [(number / 10, piece) for number, piece in enumerate(random_chunks(data, Random(7), 40))]
    cleaned = CLEAN.sanitise_pieces(pieces, wire)
    joined = b"".join(piece for _, piece in cleaned)
    assert b"hunter2" not in joined
    again = read(wire, joined)
    assert again.text == "the key: [removed]. Bye"
    assert again.calls[0].arguments == {"password": "[removed]", "name": "ann"}
    assert [seconds for seconds, _ in cleaned] == sorted(seconds for seconds, _ in cleaned)


@pytest.mark.parametrize("wire", WIRES)
def test_stream_without_secrets_is_unchanged(wire):
    data = stream_of(Response(parts=(Text("nothing to hide " * 5),), stop=Stop("stop")), wire, 7)
    pieces = [(0.1, piece) for piece in random_chunks(data, Random(3), 30)]
    assert CLEAN.sanitise_pieces(pieces, wire) == pieces


def test_truncated_stream_with_a_secret_is_removed_completely():
    data = stream_of(Response(parts=(Text(f"the key: {SECRET}"),), stop=Stop("stop")), "openai_chat", 5)
    cut = data[: data.rindex(b"data:") - 30]
    assert CLEAN.sanitise_pieces([(0.1, cut)], "openai_chat") == [(0.1, b"[removed]")]


def test_changed_event_keeps_the_chunk_boundaries_of_others():
    one, two, three = b'data: {"a":1}\n\n', b'data: {"user":"ann"}\n\n', b'data: {"b":2}\n\n'
    pieces = [(1.0, one[:5]), (2.0, one[5:] + two[:8]), (3.0, two[8:] + three[:4]), (4.0, three[4:])]
    assert CLEAN.sanitise_pieces(pieces, None) == [
        (1.0, one[:5]),
        (2.0, one[5:] + b'data: {"user":"[removed]"}\n'),
        (3.0, b"\n" + three[:4]),
        (4.0, three[4:]),
    ]


def test_invalid_json_is_redacted_as_text():
    assert (
        CLEAN.sanitise_non_json(b'{"password": "hunter2", "x": "correct horse battery')
        == '{"password": "[removed]", "x": "[removed]'
    )
    assert json.loads(json.dumps(CLEAN.sanitise_non_json(b"\xff\xfe"))) == "��"
