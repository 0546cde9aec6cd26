"""Bodies that somebody will send, over a real socket, to every front: an error in the front's own words, and nothing upstream."""

from __future__ import annotations

import json

import pytest

from hostile import (
    CALL_ANSWER,
    SECRET,
    TEXT_ANSWER,
    ask,
    body_of,
    decode_answer,
    expect_error,
    gateway_to,
    path_of,
    post,
    run,
)
from serving import WIRES
from toolwire import Message, Request, Response, Text, Tool, ToolCall, ToolResult
from toolwire.ir.response import Stop
from toolwire.wire import get
from waiting import cpu_guard

EMPTY = {"type": "object", "properties": {}}
UPSTREAMS = ("anthropic", "gemini", "openai_chat", "openai_responses")
# where the wires are the same, bytes pass, and the upstream is the judge
TRANSLATED = [(front, wire) for front in UPSTREAMS for wire in UPSTREAMS if wire != front and front != "gemini"]

every_front = pytest.mark.parametrize("front", WIRES)
every_upstream = pytest.mark.parametrize("wire", UPSTREAMS)


@pytest.fixture(autouse=True)
def bounded():
    with cpu_guard():
        yield


async def assert_rejected(front, body, *statuses):
    """Nothing of it reaches the upstream, and the gateway lives on."""
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        fault = expect_error(await post(gateway, path_of(front), body), front, *statuses)
        assert not provider.requests
        assert decode_answer(await ask(gateway, front), front).text == TEXT_ANSWER.text
    return fault


@pytest.mark.parametrize("size", [10, 40_000])
@run
async def test_invalid_utf_8_is_rejected_by_the_token_count(size):
    body = b'{"model":"anthropic/m","messages":[{"role":"user","content":"\xff' + b"x" * size + b'"}]}'
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        fault = expect_error(await post(gateway, "/v1/messages/count_tokens", body), "anthropic", 400)
    assert "UTF-8" in fault.message


def with_field(front, field):
    """A sound body with one more member, written by hand."""
    return body_of(front)[:-1] + b"," + field + b"}"


def with_call(front, arguments='{"a":1}', name="f", call_id="c1"):
    request = Request(
        messages=(
            Message("user", (Text("hi"),)),
            Message("assistant", (ToolCall(call_id, name, json.loads(arguments)),)),
            Message("user", (ToolResult(call_id, name, (Text("ok"),)),)),
        ),
        tools=(Tool(name, "", EMPTY),),
    )
    return body_of(front, request)


@pytest.mark.gateway_bad_input(1)
@every_front
@run
async def test_body_that_is_not_utf8_is_rejected(front):
    body = body_of(front).replace(b"Paris", b"\xff\xfe")
    assert "UTF-8" in (await assert_rejected(front, body, 400)).message


@pytest.mark.gateway_bad_input(2)
@every_front
@run
async def test_byte_order_mark_is_removed(front):
    await assert_rejected(front, b"\xef\xbb\xbf", 400)
    async with gateway_to(*[TEXT_ANSWER] * len(WIRES)) as (gateway, provider):
        for wire in WIRES:
            model = f"{wire}/m"
            marked = b"\xef\xbb\xbf" + body_of(front, model=model)
            assert decode_answer(await post(gateway, path_of(front, model), marked), front).text == TEXT_ANSWER.text
        # what we pass on is for servers that may not know the mark
        assert all(heard.body.startswith(b"{") for heard in provider.requests)


@pytest.mark.gateway_bad_input(3, 4, 5)
@every_front
@run
async def test_body_that_is_not_an_object_is_rejected(front):
    for body in (b"", b"  \n", b"null", b"[]", b'"text"', b"7"):
        await assert_rejected(front, body, 400)


@pytest.mark.gateway_bad_input(6)
@every_front
@run
async def test_excessive_nesting_is_rejected(front):
    await assert_rejected(front, b"[" * 200_000, 400, 413)
    await assert_rejected(front, with_field(front, b'"x":' + b"[" * 200_000), 400, 413)
    await assert_rejected(front, with_field(front, b'"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400, 413)


@pytest.mark.gateway_bad_input(7)
@pytest.mark.parametrize("front", ["anthropic", "openai_chat"])
@run
async def test_ten_megabyte_argument_is_forwarded(front):
    text = json.dumps({"a": "x" * 10_000_000})
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        answer = await post(gateway, path_of(front), with_call(front, text))
        assert decode_answer(answer, front).text == TEXT_ANSWER.text
    (made,) = [
        part for one in provider.requests[0].request.messages for part in one.parts if isinstance(part, ToolCall)
    ]
    assert len(made.arguments["a"]) == 10_000_000


@pytest.mark.one_in(5)
@pytest.mark.gateway_bad_input(8)
@pytest.mark.parametrize("front", WIRES)
@run
async def test_body_with_a_million_keys_is_rejected(front):
    keys = b",".join(b'"k%d":%d' % (n, n) for n in range(1_000_000))
    body = with_field(front, keys)
    if front == "openai_chat":  # its own upstream would get the body while it arrives, and refuse it itself
        body = body.replace(b'"openai_chat/m"', b'"anthropic/m"', 1)
    await assert_rejected(front, body, 400, 413)


@pytest.mark.gateway_bad_input(9, 10)
@every_front
@pytest.mark.parametrize("key", ["name", "\\u006eame"])
@run
async def test_duplicate_key_is_rejected(front, key):
    body = with_call(front).replace(b'"name":"f"', f'"name":"f","{key}":"rm"'.encode())
    assert body != with_call(front)
    assert "duplicate" in (await assert_rejected(front, body, 400)).message


@pytest.mark.gateway_bad_input(11, 12, 13)
@every_front
@pytest.mark.parametrize("word", ["NaN", "-Infinity", "1e999", "7" * 5000])
@run
async def test_invalid_number_is_rejected(front, word):
    await assert_rejected(front, with_field(front, f'"x":{word}'.encode()), 400)


@pytest.mark.gateway_bad_input(14)
@every_front
@run
async def test_large_integer_survives_the_round_trip(front):
    number = 9007199254740993
    answer = Response(parts=(ToolCall("c2", "f", {"id": number}),), stop=Stop("tool_calls"))
    async with gateway_to(*[answer] * len(WIRES)) as (gateway, provider):
        for wire in WIRES:
            body = with_call(front, f'{{"id":{number}}}').replace(b"openai_chat/m", f"{wire}/m".encode())
            came = decode_answer(await post(gateway, path_of(front, f"{wire}/m"), body), front)
            assert came.calls[0].arguments == {"id": number}
    assert all(str(number).encode() in heard.body for heard in provider.requests)


@pytest.mark.gateway_bad_input(15)
@every_front
@run
async def test_lone_surrogate_is_rejected(front):
    await assert_rejected(front, body_of(front).replace(b"Paris", b"\\ud800"), 400)


def calling(*names):
    parts = tuple(ToolCall(f"c{number}", name, {"n": number}) for number, name in enumerate(names))
    return Response(parts=parts, stop=Stop("tool_calls"))


def every_call(request: Request):
    """A script's line that calls each tool that is offered, by the name that came."""
    return calling(*(tool.name for tool in request.tools))


@pytest.mark.gateway_bad_input(16, 26, 27, 28, 31)
@every_upstream
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_unusual_tool_names_are_restored_for_the_client(wire, stream):
    names = ["a\x00b", "../../x", "a.b", "a/b", "a b", "wetter😀", "n" * 65, "n" * 129, "n" * 1000]
    asked = Request(messages=(Message("user", (Text("hi"),)),), tools=tuple(Tool(name, "", EMPTY) for name in names))
    front = "openai_chat" if wire != "openai_chat" else "ollama"
    async with gateway_to(every_call) as (gateway, provider):
        came = decode_answer(await ask(gateway, front, asked, wire=wire, stream=stream), front, stream=stream)
    assert [(call.name, call.arguments["n"]) for call in came.calls] == [(n, i) for i, n in enumerate(names)]
    sent = [tool.name for tool in provider.requests[0].request.tools]
    assert len(set(sent)) == len(names)
    assert all(len(name) <= get(wire).limits.name_length for name in sent)


@pytest.mark.gateway_bad_input(25)
@every_upstream
@run
async def test_special_object_keys_are_preserved(wire):
    arguments = {"__proto__": {"x": 1}, "constructor": 2, "__class__": 3}
    answer = Response(parts=(ToolCall("c", "get_weather", arguments),), stop=Stop("tool_calls"))
    async with gateway_to(answer) as (gateway, _):
        assert (
            decode_answer(await ask(gateway, "openai_chat", wire=wire), "openai_chat").calls[0].arguments == arguments
        )


@pytest.mark.gateway_bad_input(29, 33, 34)
@every_front
@pytest.mark.parametrize("name", ["gеt_weather", "rm_rf", "get_weather"])
@run
async def test_unsolicited_call_is_passed_through_unchanged(front, name):
    from msgspec.structs import replace

    from toolwire import ToolChoice

    asked = replace(_asked(), choice=ToolChoice("none"))
    async with gateway_to(calling(name)) as (gateway, _):
        came = decode_answer(await ask(gateway, front, asked, wire="gemini"), front)
    assert [call.name for call in came.calls] == [name]


def _asked():
    return Request(messages=(Message("user", (Text("hi"),)),), tools=(Tool("get_weather", "", EMPTY),))


@pytest.mark.gateway_bad_input(30)
@every_front
@run
async def test_invisible_characters_in_a_description_are_preserved(front):
    words = "safe\u200b\u202e\U000e0041"
    asked = Request(messages=(Message("user", (Text("hi"),)),), tools=(Tool("f", words, EMPTY),))
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        decode_answer(await ask(gateway, front, asked, wire="anthropic"), front)
    assert provider.requests[0].request.tools[0].description == words


def conversation(*pairs, results):
    calls = tuple(ToolCall(call_id, "f", {"n": number}) for number, call_id in enumerate(pairs))
    given = tuple(ToolResult(call_id, "f", (Text(text),)) for call_id, text in results)
    return Request(
        messages=(Message("user", (Text("hi"),)), Message("assistant", calls), Message("user", given)),
        tools=(Tool("f", "", EMPTY),),
    )


def calls_with_results(request):
    """Each call's number, and what is said of it."""
    parts = [part for one in request.messages for part in one.parts]
    results = {part.call_id: part.text for part in parts if isinstance(part, ToolResult)}
    return [(part.arguments["n"], results.get(part.id)) for part in parts if isinstance(part, ToolCall)]


@pytest.mark.one_in(7)
@pytest.mark.gateway_bad_input(35, 37, 38, 39, 40, 41, 42)
@pytest.mark.parametrize(("front", "wire"), TRANSLATED)
@pytest.mark.parametrize(
    ("ids", "results", "expected"),
    [
        (["x", "x"], [("x", "0"), ("x", "1")], ["0", "1"]),
        ([""], [("", "0")], ["0"]),
        (["a\nb|c"], [("a\nb|c", "0")], ["0"]),
        (["a"], [("a", "0"), ("nobody", "1")], ["0"]),
        (["a", "b"], [("b", "1")], [None, "1"]),
        (["a"], [("a", "0"), ("a", "second")], ["0"]),
        (["a", "b"], [("b", "1"), ("a", "0")], ["0", "1"]),
    ],
    ids=["twice", "empty", "newline", "unknown", "missing", "two results", "reverse"],
)
@run
async def test_mismatched_ids_and_results_are_repaired_or_rejected(front, wire, ids, results, expected):
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        answer = await ask(gateway, front, conversation(*ids, results=results), wire=wire)
        if answer.status != 200:
            expect_error(answer, front, 400)
            return
    sent = calls_with_results(provider.requests[0].request)
    assert [number for number, _ in sent] == list(range(len(ids)))
    for (_, text), wanted in zip(sent, expected, strict=True):
        assert text == wanted or (wanted is None and text)  # a stand-in where the wire asks for one


@pytest.mark.gateway_bad_input(36)
@every_upstream
@run
async def test_same_call_id_in_two_turns_keeps_its_results_apart(wire):
    once = conversation("a", results=[("a", "first")]).messages
    twice = Request(
        messages=(*once, *conversation("a", results=[("a", "second")]).messages), tools=(Tool("f", "", EMPTY),)
    )
    front = "anthropic" if wire != "anthropic" else "openai_chat"
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        decode_answer(await ask(gateway, front, twice, wire=wire), front)
    assert [text for _, text in calls_with_results(provider.requests[0].request)] == ["first", "second"]


@pytest.mark.gateway_bad_input(43)
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat", "openai_responses"])
@run
async def test_gemini_calls_without_ids_are_matched_with_their_results(wire):
    call = {"functionCall": {"name": "f", "args": {"n": 0}}}
    other = {"functionCall": {"name": "f", "args": {"n": 1}}}
    results = [{"functionResponse": {"name": "f", "response": {"output": text}}} for text in ("0", "1")]
    contents = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [call, other]},
        {"role": "user", "parts": results},
    ]
    body = json.dumps({"contents": contents, "tools": [{"functionDeclarations": [{"name": "f"}]}]}).encode()
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        decode_answer(await post(gateway, path_of("gemini", f"{wire}/m"), body), "gemini")
    parts = [part for one in provider.requests[0].request.messages for part in one.parts]
    made = [part for part in parts if isinstance(part, ToolCall)]
    given = {part.call_id: part.text for part in parts if isinstance(part, ToolResult)}
    assert len(given) == 2
    for call in made:
        assert str(call.arguments["n"]) in given[call.id]


@pytest.mark.gateway_bad_input(44)
@every_upstream
@run
async def test_thousand_parallel_calls_keep_their_ids_and_results(wire):
    ids = [f"c{number}" for number in range(1000)]
    asked = conversation(*ids, results=[(call_id, call_id[1:]) for call_id in reversed(ids)])
    front = "anthropic" if wire != "anthropic" else "openai_chat"
    async with gateway_to(calling(*["f"] * 1000)) as (gateway, provider):
        came = decode_answer(await ask(gateway, front, asked, wire=wire), front)
    assert all(str(number) == text for number, text in calls_with_results(provider.requests[0].request))
    assert len({call.id for call in came.calls}) == 1000


@every_front
@run
async def test_error_contains_no_secrets_or_source_paths(front):
    async with gateway_to(CALL_ANSWER) as (gateway, _):
        answer = await post(gateway, path_of(front), b"{")
    assert expect_error(answer, front, 400)
    said = answer.body.decode() + str(answer.headers)
    assert SECRET not in said and "site-packages" not in said and "src/toolwire" not in said
