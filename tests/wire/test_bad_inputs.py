"""Inputs that somebody will send. Each ends in a typed error that says where, or in a sound request; none is endless."""

import json

import pytest

import toolwire
from toolwire.ir import ProtocolError
from toolwire.wire import get
from waiting import cpu_guard

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
SCHEMA = {"type": "object", "properties": {}}


@pytest.fixture(autouse=True)
def bounded():
    with cpu_guard():
        yield


def assert_rejected(body, pointer=None, source="openai_chat", target="anthropic"):
    with pytest.raises(ProtocolError) as caught:
        toolwire.translate(body, source=source, target=target)
    assert caught.value.status in (400, 413)
    if pointer is not None:
        assert caught.value.pointer == pointer
    return caught.value


def chat(*messages, tools=("f",), **fields):
    declared = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in tools]
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}, *messages], "tools": declared, **fields}


def assistant_calls(*calls):
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def translate_request(body, target="anthropic"):
    return get(target).decode_request(toolwire.translate(body, source="openai_chat", target=target).body)


def calls_in(request):
    return [part for message in request.messages for part in message.parts if isinstance(part, toolwire.ToolCall)]


def results_in(request):
    return [part for message in request.messages for part in message.parts if isinstance(part, toolwire.ToolResult)]


@pytest.mark.bad_input(1)
def test_body_that_is_not_utf8_is_rejected():
    error = assert_rejected(
        b'{"model": "m", "messages": [{"role": "user", "content": "\xff\xfe"}]}', "/messages/0/content"
    )
    assert "UTF-8" in error.message


@pytest.mark.bad_input(2)
@pytest.mark.parametrize("source", WIRES)
def test_byte_order_mark_does_not_count_as_content(source):
    assert_rejected(b"\xef\xbb\xbf", source=source, target="openai_chat" if source != "openai_chat" else "gemini")
    body = b"\xef\xbb\xbf" + json.dumps(chat()).encode()
    assert toolwire.translate(body, source="openai_chat", target="gemini").body["contents"]


@pytest.mark.bad_input(3)
@pytest.mark.parametrize("body", [b"", b"  \n", ""])
def test_empty_body_is_rejected(body):
    assert "empty" in assert_rejected(body).message


@pytest.mark.bad_input(4)
@pytest.mark.parametrize("body", [b"null", "null", None])
def test_null_body_is_rejected(body):
    assert "got null" in assert_rejected(body).message


@pytest.mark.bad_input(5)
@pytest.mark.parametrize("source", WIRES)
def test_array_body_is_rejected(source):
    target = "openai_chat" if source != "openai_chat" else "gemini"
    assert "got an array" in assert_rejected(b"[]", source=source, target=target).message
    assert "got an array" in assert_rejected([], source=source, target=target).message


@pytest.mark.bad_input(6)
def test_excessive_nesting_is_rejected():
    error = assert_rejected(b"[" * 200_000)
    assert "200 levels deep" in error.message
    assert error.pointer.startswith("/0/0")
    deep = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(toolwire.ToolwireError):
        bytes(toolwire.translate(chat(logit_bias=deep, user=None), source="openai_chat", target="openai_chat"))


@pytest.mark.bad_input(7)
def test_ten_megabyte_argument_is_translated():
    text = json.dumps({"a": "x" * 10_000_000})
    (made,) = calls_in(translate_request(chat(assistant_calls(("c", "f", text)), result("c"))))
    assert len(made.arguments["a"]) == 10_000_000


@pytest.mark.bad_input(8)
def test_body_with_a_million_keys_is_rejected():
    keys = ",".join(f'"k{n}":{n}' for n in range(1_000_000))
    assert assert_rejected(f'{{"messages": [], {keys}}}'.encode()).status == 413


@pytest.mark.bad_input(9)
def test_duplicate_name_in_a_call_is_rejected():
    body = json.dumps(chat(assistant_calls(("c", "f", "{}")), result("c"))).replace(
        '"name": "f", "arguments"', '"name": "f", "name": "rm", "arguments"'
    )
    assert "duplicate key" in assert_rejected(body, "/messages/1/tool_calls/0/function/name").message


@pytest.mark.bad_input(10)
def test_escaped_duplicate_key_is_rejected():
    body = json.dumps(chat(assistant_calls(("c", "f", "{}")), result("c"))).replace(
        '"name": "f", "arguments"', '"name": "f", "\\u006eame": "rm", "arguments"'
    )
    assert "duplicate key" in assert_rejected(body, "/messages/1/tool_calls/0/function/name").message


@pytest.mark.bad_input(11)
@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_rejected(word):
    assert_rejected(
        json.dumps(chat(temperature=1)).replace('"temperature": 1', f'"temperature": {word}'), "/temperature"
    )
    (made,) = calls_in(get("openai_chat").decode_request(chat(assistant_calls(("c", "f", f'{{"a": {word}}}')))))
    assert made.state == "invalid"


@pytest.mark.bad_input(12)
@pytest.mark.parametrize("word", ["1e999", "-1E+400", "1" * 400 + ".0"])
def test_number_out_of_range_is_rejected(word):
    assert_rejected(
        json.dumps(chat(temperature=1)).replace('"temperature": 1', f'"temperature": {word}'), "/temperature"
    )


@pytest.mark.bad_input(13)
def test_integer_of_5000_digits_is_rejected():
    assert_rejected(json.dumps(chat(seed=1)).replace('"seed": 1', f'"seed": {"7" * 5000}'), "/seed")


@pytest.mark.bad_input(14)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_a_large_integer_survives(target):
    (made,) = calls_in(
        translate_request(chat(assistant_calls(("c", "f", '{"id": 9007199254740993}')), result("c")), target)
    )
    assert made.arguments == {"id": 9007199254740993}


@pytest.mark.bad_input(15)
def test_lone_surrogate_is_rejected():
    assert_rejected(b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', "/messages/0/content")
    with pytest.raises(toolwire.ToolwireError):
        bytes(toolwire.translate(chat({"role": "user", "content": "\ud800"}), source="openai_chat", target="anthropic"))


@pytest.mark.bad_input(16, 26, 28)
@pytest.mark.parametrize("name", ["a\x00b", "../../x", "a.b", "a b", "a/b", "wetter😀", ""])
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_unusual_tool_names_are_mapped_to_valid_ones(name, target):
    import re

    body = chat(assistant_calls(("c", name, "{}")), result("c"), tools=[name])
    request = translate_request(body, target)
    limits = get(target).limits
    assert re.fullmatch(limits.name, request.tools[0].name)
    assert calls_in(request)[0].name == request.tools[0].name


@pytest.mark.bad_input(17)
@pytest.mark.parametrize("text", ["null", " null ", ""])
def test_null_and_empty_arguments_are_the_empty_object(text):
    message = assistant_calls(("c", "f", text))
    body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    (call,) = get("openai_chat").decode_response(body).calls
    assert (call.arguments, call.state) == ({}, "complete")


@pytest.mark.bad_input(19, 20, 21, 23, 24)
@pytest.mark.parametrize("text", ["[]", '"{\\"a\\": 1}"', '{"a":1}<|call|>', '{"a":1}{"a":1}', "{'a': 1}", "{a: 1}"])
def test_arguments_that_are_not_a_json_object_are_invalid(text):
    body = {
        "id": "c",
        "choices": [{"index": 0, "message": assistant_calls(("c", "f", text)), "finish_reason": "tool_calls"}],
    }
    (made,) = toolwire.calls(body)
    assert (made.state, made.arguments, made.raw) == ("invalid", None, text)


@pytest.mark.bad_input(18)
def test_empty_arguments_become_an_empty_object():
    (made,) = toolwire.calls(
        {"choices": [{"index": 0, "message": assistant_calls(("c", "f", "")), "finish_reason": "tool_calls"}]}
    )
    assert (made.state, made.arguments) == ("complete", {})


@pytest.mark.bad_input(22)
def test_truncated_arguments_are_detected_despite_the_finish_reason():
    (made,) = toolwire.calls(
        {
            "choices": [
                {"index": 0, "message": assistant_calls(("c", "f", '{"a": [1, 2')), "finish_reason": "tool_calls"}
            ]
        }
    )
    assert made.state == "truncated"


@pytest.mark.bad_input(25)
def test_special_object_keys_are_preserved():
    arguments = {"__proto__": {"x": 1}, "constructor": 2, "__class__": 3}
    (made,) = calls_in(translate_request(chat(assistant_calls(("c", "f", json.dumps(arguments))), result("c"))))
    assert made.arguments == arguments


@pytest.mark.bad_input(27)
@pytest.mark.parametrize("length", [65, 129, 1000])
def test_long_tool_names_are_shortened(length):
    for target in ("anthropic", "gemini", "openai_responses"):
        assert (
            len(translate_request(chat(tools=["n" * length]), target).tools[0].name) <= get(target).limits.name_length
        )


@pytest.mark.bad_input(29, 33)
def test_name_of_an_unoffered_tool_is_returned_unchanged():
    offered = chat(tools=["get_weather"])
    for name in ("gеt_weather", "rm_rf"):
        answer = {
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": name, "args": {}}}]}, "finishReason": "STOP"}
            ]
        }
        body = toolwire.translate(answer, source="gemini", target="openai_chat", kind="response", request=offered).body
        assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == name


@pytest.mark.bad_input(30)
def test_invisible_characters_in_a_description_are_preserved():
    words = "safe\u200b\u202e\U000e0041"
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "description": words}}],
    }
    assert translate_request(body).tools[0].description == words


@pytest.mark.bad_input(31)
def test_sanitized_tool_names_stay_distinct():
    names = [tool.name for tool in translate_request(chat(tools=["a.b", "a/b", "a b"])).tools]
    assert len(set(names)) == 3


@pytest.mark.bad_input(34)
def test_call_despite_tool_choice_none_is_returned():
    request = chat(tool_choice="none")
    answer = {
        "candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}, "finishReason": "STOP"}]
    }
    body = toolwire.translate(answer, source="gemini", target="openai_chat", kind="response", request=request).body
    assert body["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.bad_input(35)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_duplicate_ids_in_a_turn_are_made_unique(target):
    request = translate_request(
        chat(assistant_calls(("x", "f", '{"n":1}'), ("x", "f", '{"n":2}')), result("x", "1"), result("x", "2")), target
    )
    made = calls_in(request)
    given = {answer.call_id: answer.text for answer in results_in(request)}
    assert [given[call.id] for call in made] == [str(call.arguments["n"]) for call in made] == ["1", "2"]
    answer = {
        "choices": [
            {"index": 0, "message": assistant_calls(("x", "f", "{}"), ("x", "f", "{}")), "finish_reason": "tool_calls"}
        ]
    }
    assert len({call.id for call in toolwire.calls(answer)}) == 2


@pytest.mark.bad_input(37)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_empty_call_id_is_replaced(target):
    request = translate_request(chat(assistant_calls(("", "f", "{}")), result("")), target)
    assert calls_in(request)[0].id == results_in(request)[0].call_id != ""


@pytest.mark.bad_input(41)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_second_result_of_a_call_is_dropped_with_a_loss(target):
    body = chat(assistant_calls(("x", "f", "{}")), result("x", "first"), result("x", "second"))
    assert [answer.text for answer in results_in(translate_request(body, target))] == ["first"]
    losses = toolwire.translate(body, source="openai_chat", target=target).losses
    assert ("/messages/3", "second result") in [(loss.path, loss.concept) for loss in losses]


@pytest.mark.bad_input(44)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "openai_responses"])
def test_thousand_parallel_calls_keep_their_results(target):
    made = [(f"c{n}", "f", f'{{"n":{n}}}') for n in range(1000)]
    body = chat(assistant_calls(*made), *(result(f"c{n}", str(n)) for n in reversed(range(1000))))
    request = translate_request(body, target)
    given = {answer.call_id: answer.text for answer in results_in(request)}
    assert all(given[call.id] == str(call.arguments["n"]) for call in calls_in(request))
    assert len(given) == 1000


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"messages": "hi"}, "/messages"),
        ({"messages": [3]}, "/messages/0"),
        ({"messages": [{"role": "robot"}]}, "/messages/0/role"),
        ({"messages": [{"role": "user", "content": 3}]}, "/messages/0/content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "/messages/0/content/0/text"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": 3}]}]}, "/messages/0/tool_calls/0/id"),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 3}}]}
                ]
            },
            "/messages/0/tool_calls/0/function/arguments",
        ),
        ({"messages": [], "tools": [{"type": "function"}]}, "/tools/0/function"),
        (
            {"messages": [], "tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "/tools/0/function/parameters",
        ),
        ({"messages": [], "tool_choice": "sometimes"}, "/tool_choice"),
        ({"messages": [], "temperature": "hot"}, "/temperature"),
        ({"messages": [], "stop": [1]}, "/stop/0"),
    ],
)
def test_error_pointer_names_the_invalid_field(body, pointer):
    assert_rejected(body, pointer)


@pytest.mark.parametrize(
    "use",
    [
        lambda: toolwire.calls("\ud800"),
        lambda: toolwire.detect("\ud800"),
        lambda: toolwire.results([1], "openai_chat"),
        lambda: toolwire.wire.get(None),
        lambda: toolwire.translate({}, source=[], target="gemini"),
        lambda: toolwire.translate({}, source="gemini", target="gemini", kind="bogus"),
        lambda: toolwire.translate(5, source="gemini", target="gemini", kind="tools"),
        lambda: toolwire.translate({"contents": []}, source="gemini", target="openai_chat", model=5),
        lambda: toolwire.translate({"type": "x", "error": {1: 2}}, source="anthropic", target="gemini", kind="error"),
        lambda: toolwire.translate_stream(source="gemini", target="openai_chat").feed("text"),
        lambda: toolwire.translate_stream(source="gemini", target="gemini", request=b"nope"),
        lambda: bytes(
            toolwire.translate(
                {"model": "m", "max_tokens": 10**5000, "messages": [{"role": "user", "content": "x"}]},
                source="anthropic",
                target="openai_chat",
            )
        ),
    ],
)
def test_wrong_usage_is_a_typed_error(use):
    with pytest.raises(toolwire.ToolwireError):
        use()


@pytest.mark.parametrize("kind", ["request", "response", "tools", "error"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_leading_byte_order_mark_is_accepted(kind, mark):
    bodies = {
        "request": {"messages": [{"role": "user", "content": "x"}]},
        "response": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}]},
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "error": {"error": {"message": "no", "type": "invalid_request_error"}},
    }
    text = mark + json.dumps(bodies[kind])
    one = toolwire.translate(text, source="openai_chat", target="anthropic", kind=kind).body
    assert one == toolwire.translate(text.encode(), source="openai_chat", target="anthropic", kind=kind).body
    assert "no" in json.dumps(one) if kind == "error" else one


@pytest.mark.parametrize("digits", ["1e400", "9" * 305 + "e5", "9" * 105 + "e205", "9" * 105 + ".5e0205", "-1E+309"])
def test_numbers_beyond_a_double_are_rejected_in_every_notation(digits):
    with pytest.raises(toolwire.ProtocolError, match="out of range"):
        toolwire.translate(f'{{"a": {digits}}}', source="gemini", target="gemini")


@pytest.mark.parametrize("digits", ["1e100", "1e308", "9" * 4000, "0." + "9" * 400, "1e-400"])
def test_numbers_within_a_double_are_accepted(digits):
    assert toolwire.translate(f'{{"a": {digits}}}', source="gemini", target="gemini").body


@pytest.mark.parametrize("key", ['"k%d" :1', '"k%d\\\\":1', '"k%d":1'])
def test_too_many_members_are_rejected_in_every_notation(key):
    text = '{"a":{' + ",".join(key % number for number in range(300_000)) + "}}"
    with pytest.raises(toolwire.ProtocolError, match="members"):
        toolwire.translate(text, source="gemini", target="gemini")
