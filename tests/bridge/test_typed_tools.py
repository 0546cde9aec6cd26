"""Tools that a provider defines and the client runs: functions on other wires, and the client's own items in answers."""

import json
from random import Random

import pytest
from pydantic import ValidationError

import toolwire
from sdk_validation import validate_chunks, validate_request, validate_response
from tables import every_case
from toolwire import Response, ToolCall
from toolwire.audit import check_body
from toolwire.ir import LossError, Media, Text, ToolResult, fold
from toolwire.ir.response import Stop
from toolwire.schema import validator
from toolwire.testing.stream_checks import bytewise, decode_stream, random_chunks
from toolwire.wire import get, names
from whole_and_streamed import as_stream

IMAGE = "data:image/png;base64,iVBORw0KGgo="
CLICK = {"type": "click", "button": "left", "x": 3, "y": 4}
DIFF = "@@ def f():\n-    return 1\n+    return 2"
# The declaration, the arguments that a model writes, and the client's item or block for the call, without its id.
ANTHROPIC = {
    "bash_20250124": ({"name": "bash"}, {"command": "ls -l"}),
    "bash_20241022": ({"name": "bash"}, {"restart": True}),
    "text_editor_20250124": (
        {"name": "str_replace_editor"},
        {"command": "insert", "path": "/a.py", "insert_line": 0, "new_str": "x\n"},
    ),
    "text_editor_20250728": (
        {"name": "str_replace_based_edit_tool", "max_characters": 500},
        {"command": "view", "path": "/a.py", "view_range": [1, -1]},
    ),
    "memory_20250818": ({"name": "memory"}, {"command": "view", "path": "/memories"}),
    "computer_20250124": (
        {"name": "computer", "display_width_px": 800, "display_height_px": 600},
        {"action": "left_click", "coordinate": [10, 20]},
    ),
}
RESPONSES = {
    "local_shell": (
        {},
        {"command": ["ls", "-l"], "working_directory": "/tmp"},
        {
            "type": "local_shell_call",
            "action": {
                "type": "exec",
                "command": ["ls", "-l"],
                "env": {},
                "timeout_ms": None,
                "user": None,
                "working_directory": "/tmp",
            },
        },
    ),
    "shell": (
        {"environment": {"type": "local"}},
        {"commands": ["ls", "pwd"], "timeout_ms": 1000},
        {
            "type": "shell_call",
            "action": {"commands": ["ls", "pwd"], "timeout_ms": 1000, "max_output_length": None},
        },
    ),
    "apply_patch": (
        {},
        {"type": "update_file", "path": "a.py", "diff": DIFF},
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.py", "diff": DIFF}},
    ),
    "computer": (
        {},
        {"actions": [CLICK, {"type": "screenshot"}]},
        {"type": "computer_call", "actions": [CLICK, {"type": "screenshot"}], "pending_safety_checks": []},
    ),
    "computer_use_preview": (
        {"display_width": 800, "display_height": 600, "environment": "browser"},
        CLICK,
        {"type": "computer_call", "action": CLICK, "pending_safety_checks": []},
    ),
}
OTHERS = {source: [wire for wire in names() if wire != source] for source in ("anthropic", "openai_responses")}
CASES = [
    *[("anthropic", kind, target) for kind in ANTHROPIC for target in OTHERS["anthropic"]],
    *[("openai_responses", kind, target) for kind in RESPONSES for target in OTHERS["openai_responses"]],
]


def body_of(source, kind, *turns):
    row = (ANTHROPIC if source == "anthropic" else RESPONSES)[kind]
    body = {"model": "m", "tools": [{"type": kind, **row[0]}]}
    if source == "anthropic":
        return {**body, "max_tokens": 1024, "messages": [{"role": "user", "content": "Go."}, *turns]}
    return {**body, "input": [{"role": "user", "content": "Go."}, *turns]}


def call_of(source, kind, call_id="call_1"):
    row = (ANTHROPIC if source == "anthropic" else RESPONSES)[kind]
    return ToolCall(call_id, row[0].get("name", kind), row[1])


def answer(*calls):
    return Response("resp_1", "m", calls, Stop("tool_calls"))


def encoded(wire, response):
    return get(wire).encode_response(response).body


def client_parts(source, document):
    """Return the calls in a client's answer as written, without the id of an item."""
    if source == "anthropic":
        return [block for block in document["content"] if block["type"] == "tool_use"]
    return [{key: value for key, value in item.items() if key != "id"} for item in document["output"]]


def expected_part(source, kind):
    if source == "anthropic":
        call = call_of(source, kind)
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
    return {**RESPONSES[kind][2], "call_id": "call_1", "status": "completed"}


@every_case(("source", "kind", "target"), CASES)
def test_declaration_is_a_function_with_a_schema(source, kind, target):
    translation = toolwire.translate_request(body_of(source, kind), source=source, target=target, strict=True)
    validate_request(target, dict(translation.body))
    [tool] = get(target).decode_request(translation.body).tools
    assert (tool.kind, tool.name) == ("function", call_of(source, kind).name)
    assert tool.description
    assert not validator(tool.input_schema).problems(call_of(source, kind).arguments)


@every_case(("source", "kind", "target"), CASES)
def test_call_comes_back_as_the_kind_of_the_client(source, kind, target):
    document = encoded(target, answer(call_of(source, kind)))
    body = body_of(source, kind)
    translation = toolwire.translate_response(document, source=target, target=source, request=body)
    validate_response(source, translation.body)
    [part] = client_parts(source, translation.body)
    expected = expected_part(source, kind)
    if target in ("gemini", "ollama"):  # which may omit ids
        expected |= {name: part[name] for name in ("id", "call_id") if name in part}
    assert part == expected
    assert not [loss for loss in translation.losses if loss.severity != "info"]


@every_case("size", [1, 7, 10**6])
@every_case(("source", "kind", "target"), CASES)
def test_streamed_call_comes_back_as_the_kind_of_the_client(source, kind, target, size):
    data = as_stream(get(target), answer(call_of(source, kind)))
    stream = toolwire.translate_stream(source=target, target=source, request=body_of(source, kind))
    written = b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size)) + stream.close()
    validate_chunks(source, written)
    folded = fold(decode_stream(get(source), [written]))
    document = get(source).encode_response(folded).body
    [part] = client_parts(source, document)
    expected = expected_part(source, kind)
    if target in ("gemini", "ollama"):
        expected |= {name: part[name] for name in ("id", "call_id") if name in part}
    assert part == expected


def test_calls_keep_their_order_among_text_and_functions():
    """In a stream, an item of a typed tool has the next free position when its call ends."""
    body = body_of("openai_responses", "shell")
    body["tools"].append({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False})
    response = answer(
        Text("First."),
        call_of("openai_responses", "shell", "a"),
        ToolCall("b", "f", {}),
        ToolCall("c", "shell", {"commands": ["id"]}),
    )
    order = ["message", "shell_call", "function_call", "shell_call"]
    whole = toolwire.translate_response(
        encoded("openai_chat", response), source="openai_chat", target="openai_responses", request=body
    ).body
    assert [item["type"] for item in whole["output"]] == order
    data = as_stream(get("openai_chat"), response)
    for chunks in (bytewise(data), *(random_chunks(data, Random(seed), 9) for seed in range(20))):
        stream = toolwire.translate_stream(source="openai_chat", target="openai_responses", request=body)
        written = b"".join(map(stream.feed, chunks)) + stream.close()
        events = [json.loads(line[6:]) for line in written.decode().split("\n") if line.startswith("data: {")]
        done = [event for event in events if event["type"] == "response.output_item.done"]
        assert sorted(event["output_index"] for event in done) == [0, 1, 2, 3]
        assert events[-1]["response"]["output"] == [
            event["item"] for event in sorted(done, key=lambda e: e["output_index"])
        ]
        assert sorted(item["type"] for item in events[-1]["response"]["output"]) == sorted(order)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


RESULTS = {
    "local_shell": {"type": "local_shell_call_output", "id": "call_1", "output": '{"output":"a"}'},
    "shell": {
        "type": "shell_call_output",
        "call_id": "call_1",
        "max_output_length": 100,
        "output": [
            {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "bad\n", "outcome": {"type": "exit", "exit_code": 2}},
            {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
        ],
    },
    "apply_patch": {
        "type": "apply_patch_call_output",
        "call_id": "call_1",
        "status": "failed",
        "output": "no such file",
    },
    "computer": {
        "type": "computer_call_output",
        "call_id": "call_1",
        "output": {"type": "computer_screenshot", "image_url": IMAGE},
    },
    "computer_use_preview": {
        "type": "computer_call_output",
        "call_id": "call_1",
        "acknowledged_safety_checks": [],
        "output": {"type": "computer_screenshot", "image_url": IMAGE},
    },
}
SHOWN = {
    "local_shell": '{"output":"a"}',
    "shell": "a\n[stderr]\nbad\n[exit code 2]\n[timed out]",
    "apply_patch": "no such file",
}


@every_case("kind", RESPONSES)
@every_case("target", OTHERS["openai_responses"])
def test_history_has_calls_and_results_of_the_function(kind, target):
    item = {"id": "x_1", "call_id": "call_1", "status": "completed", **RESPONSES[kind][2]}
    body = body_of("openai_responses", kind, item, RESULTS[kind])
    translation = toolwire.translate_request(body, source="openai_responses", target=target)
    validate_request(target, dict(translation.body))
    parts = [part for message in get(target).decode_request(translation.body).messages for part in message.parts]
    [call] = [part for part in parts if isinstance(part, ToolCall)]
    [result] = [part for part in parts if isinstance(part, ToolResult)]
    assert (call.name, call.arguments) == (kind, RESPONSES[kind][1])
    assert result.call_id == call.id
    if kind in SHOWN:
        assert SHOWN[kind] in result.text
    else:
        shown = [part for part in (*parts, *result.parts) if isinstance(part, Media)]
        assert [part.data for part in shown] == ["iVBORw0KGgo="]
    moved = {"image in a result"}  # where a result cannot hold an image
    assert {loss.concept for loss in translation.losses if loss.severity != "info"} <= moved


@every_case("kind", RESPONSES)
def test_own_wire_is_unchanged(kind):
    item = {"id": "x_1", "call_id": "call_1", "status": "completed", **RESPONSES[kind][2]}
    body = body_of("openai_responses", kind, item, RESULTS[kind])
    same = toolwire.translate_request(body, source="openai_responses", target="openai_responses", model="gpt-5.6")
    assert same.body == {**body, "model": "gpt-5.6"}
    codec = get("openai_responses")
    assert codec.encode_request(codec.decode_request(body)).body == body


@every_case("kind", ANTHROPIC)
def test_own_wire_of_anthropic_is_unchanged(kind):
    body = body_of("anthropic", kind)
    body["tools"][0] |= {"cache_control": {"type": "ephemeral"}, "strict": True, "defer_loading": False}
    same = toolwire.translate_request(body, source="anthropic", target="anthropic", model="claude-sonnet-5")
    assert same.body["tools"] == body["tools"]
    assert [loss for loss in same.losses if loss.path.startswith("/tools")] == []


def test_options_of_anthropic_are_carried_or_reported():
    body = body_of("anthropic", "bash_20250124")
    body["tools"][0] |= {
        "strict": True,
        "defer_loading": True,
        "input_examples": [{"command": "ls"}],
        "allowed_callers": ["code_execution_20260120"],
    }
    translation = toolwire.translate_request(body, source="anthropic", target="openai_chat")
    function = translation.body["tools"][0]["function"]
    assert function["strict"] is True
    assert '{"command":"ls"}' in function["description"]
    found = {(loss.path, loss.action, loss.severity) for loss in translation.losses}
    assert ("/tools/0/allowed_callers", "dropped", "warning") in found
    assert ("/tools/0/defer_loading", "dropped", "info") in found
    with pytest.raises(LossError, match="allowed_callers"):
        toolwire.translate_request(body, source="anthropic", target="openai_chat", strict=True)


def test_description_has_the_options_that_a_schema_lacks():
    shown = {}
    for kind in ("text_editor_20250728", "computer_20250124"):
        body = toolwire.translate_request(body_of("anthropic", kind), source="anthropic", target="openai_chat").body
        shown[kind] = body["tools"][0]["function"]["description"]
    assert "At most 500 characters" in shown["text_editor_20250728"]
    assert "800 x 600 pixels" in shown["computer_20250124"]
    body = body_of("openai_responses", "shell")
    skill = {"name": "pdf", "description": "Edit PDF files.", "path": "/skills/pdf"}
    body["tools"][0]["environment"]["skills"] = [skill]
    function = toolwire.translate_request(body, source="openai_responses", target="openai_chat").body["tools"][0]
    assert "- pdf (/skills/pdf): Edit PDF files." in function["function"]["description"]


def test_versions_of_the_editor_differ_in_the_inserted_text():
    by_kind = {}
    for kind in ("text_editor_20250124", "text_editor_20250728"):
        body = toolwire.translate_request(body_of("anthropic", kind), source="anthropic", target="openai_chat").body
        by_kind[kind] = body["tools"][0]["function"]["parameters"]["properties"]
    assert "insert_text" in by_kind["text_editor_20250728"]
    assert "insert_text" not in by_kind["text_editor_20250124"]
    assert "undo_edit" in by_kind["text_editor_20250124"]["command"]["enum"]


def test_shell_in_a_container_is_not_a_tool_of_the_client():
    body = body_of("openai_responses", "shell")
    body["tools"][0]["environment"] = {"type": "container_auto"}
    translation = toolwire.translate_request(body, source="openai_responses", target="openai_chat")
    assert "tools" not in translation.body
    assert [(loss.path, loss.severity) for loss in translation.losses] == [("/tools/0", "error")]


def test_function_of_the_same_name_keeps_its_calls():
    body = body_of("openai_responses", "shell")
    body["tools"].append({"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False})
    chat = toolwire.translate_request(body, source="openai_responses", target="openai_chat")
    assert [tool["function"].get("description") for tool in chat.body["tools"]] == [None]
    assert [(loss.path, loss.severity) for loss in chat.losses if loss.concept == "typed tool"] == [
        ("/tools/0", "error")
    ]
    document = encoded("openai_chat", answer(ToolCall("call_1", "shell", {"x": 1})))
    translation = toolwire.translate_response(document, source="openai_chat", target="openai_responses", request=body)
    assert [item["type"] for item in translation.body["output"]] == ["function_call"]


def test_forced_call_names_the_function():
    body = {**body_of("openai_responses", "apply_patch"), "tool_choice": {"type": "apply_patch"}}
    chat = toolwire.translate_request(body, source="openai_responses", target="openai_chat").body
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    own = toolwire.translate_request(body, source="openai_responses", target="openai_responses", model="gpt-5.6").body
    assert own["tool_choice"] == {"type": "apply_patch"}


LENIENT = [
    ("shell", {"commands": "ls"}, {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}),
    ("shell", {"commands": ["ls"], "timeout_ms": "50"}, {"commands": ["ls"], "timeout_ms": 50, "max_output_length": None}),
    ("apply_patch", {"operation": {"type": "delete_file", "path": "a"}}, {"type": "delete_file", "path": "a"}),
    ("apply_patch", {"type": "delete_file", "path": "a", "diff": ""}, {"type": "delete_file", "path": "a"}),
    ("computer", {"type": "move", "x": 1.6, "y": 2}, [{"type": "move", "x": 2, "y": 2}]),
    (
        "computer",
        {"actions": [{"type": "drag", "path": [[1, 2], {"x": 3, "y": 4}]}]},
        [{"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}],
    ),
    ("computer", {"actions": [{"type": "scroll", "x": 1, "y": 2, "scroll_y": 9}]}, [{"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": 9}]),
    ("computer", {"actions": [{"type": "keypress", "keys": ["CTRL", "S"]}]}, [{"type": "keypress", "keys": ["CTRL", "S"]}]),
    ("computer_use_preview", {"type": "type", "text": "hi"}, {"type": "type", "text": "hi"}),
]  # fmt: skip


@every_case(("kind", "arguments", "expected"), LENIENT)
def test_common_deviations_of_models_fit_the_item(kind, arguments, expected):
    document = encoded("openai_chat", answer(ToolCall("call_1", kind, arguments)))
    body = body_of("openai_responses", kind)
    translation = toolwire.translate_response(document, source="openai_chat", target="openai_responses", request=body)
    validate_response("openai_responses", translation.body)
    [item] = translation.body["output"]
    assert expected in item.values()


MISFITS = [
    ("shell", {}),
    ("shell", {"commands": []}),
    ("shell", {"commands": [1]}),
    ("local_shell", {"command": []}),
    ("apply_patch", {"type": "rename_file", "path": "a"}),
    ("apply_patch", {"type": "update_file", "path": "a"}),
    ("apply_patch", {"type": "create_file", "path": "", "diff": "+"}),
    ("computer", {"actions": []}),
    ("computer", {"actions": [CLICK, {"type": "click", "x": 1}]}),
    ("computer", {"actions": [{"type": "drag", "path": [[1]]}]}),
    ("computer", {"actions": "screenshot"}),
    ("computer_use_preview", {"type": "keypress", "keys": []}),
]


@every_case(("kind", "arguments"), MISFITS)
def test_call_that_no_item_can_hold_ends_the_answer_in_a_fault(kind, arguments):
    """A client would run whatever is in the item, and cannot see that something is missing."""
    body, response = body_of("openai_responses", kind), answer(ToolCall("call_1", kind, arguments))
    whole = toolwire.translate_response(
        encoded("openai_chat", response), source="openai_chat", target="openai_responses", request=body
    )
    assert whole.status == 502
    stream = toolwire.translate_stream(source="openai_chat", target="openai_responses", request=body)
    written = stream.feed(as_stream(get("openai_chat"), response)) + stream.close()
    assert stream.error is not None
    assert b"response.failed" in written
    assert b"output_item.added" not in written


def test_truncated_call_is_left_out_of_an_incomplete_answer():
    body = body_of("openai_responses", "shell")
    cut = ToolCall("call_1", "shell", None, '{"commands": ["rm -r /tm', "truncated")
    response = Response("resp_1", "m", (Text("Well."), cut), Stop("length"))
    document = encoded("openai_chat", response)
    translation = toolwire.translate_response(document, source="openai_chat", target="openai_responses", request=body)
    assert translation.body["status"] == "incomplete"
    assert [item["type"] for item in translation.body["output"]] == ["message"]
    assert [loss.concept for loss in translation.losses if loss.severity == "error"] == ["call"]
    stream = toolwire.translate_stream(source="openai_chat", target="openai_responses", request=body)
    written = stream.feed(as_stream(get("openai_chat"), response)) + stream.close()
    assert b"response.incomplete" in written
    assert b"shell_call" not in written.replace(b'"type":"shell"', b"")


def test_unread_arguments_are_losses():
    body = body_of("openai_responses", "shell")
    document = encoded("openai_chat", answer(ToolCall("call_1", "shell", {"commands": ["ls"], "cwd": "/"})))
    translation = toolwire.translate_response(document, source="openai_chat", target="openai_responses", request=body)
    assert [loss.concept for loss in translation.losses if loss.severity == "warning"] == ["argument cwd"]


def test_answer_of_the_own_wire_is_unchanged():
    item = {"id": "sh_1", "call_id": "call_1", "status": "completed", **RESPONSES["shell"][2], "environment": None}
    codec = get("openai_responses")
    document = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [item]}
    assert codec.encode_response(codec.decode_response(document)).body["output"] == [item]


@every_case("kind", ["shell_call", "apply_patch_call", "computer_call", "shell_call_output", "computer_call_output"])
@every_case("fields", [{}, {"call_id": 1}, {"call_id": "c", "action": 1, "operation": [], "actions": {}, "output": 2}])
def test_broken_items_are_dropped_with_a_loss(kind, fields):
    body = body_of("openai_responses", "shell", {"type": kind, **fields}, {"role": "user", "content": "On."})
    translation = toolwire.translate_request(body, source="openai_responses", target="openai_chat")
    assert [loss.concept for loss in translation.losses if loss.severity == "error"] == [kind]


def test_audit_accepts_the_functions():
    body = {"model": "gpt-5.6", "messages": [{"role": "user", "content": "Go."}], "tools": []}
    for source, kinds in (("anthropic", ANTHROPIC), ("openai_responses", RESPONSES)):
        for kind in kinds:
            chat = toolwire.translate_request(body_of(source, kind), source=source, target="openai_chat").body
            body["tools"] = chat["tools"]
            assert [finding for finding in check_body(body, "openai_chat") if finding.severity == "error"] == []


def test_sdk_types_reject_an_incomplete_item():
    """The judge of the tests above: an item that lacks its content is an error."""
    item = {"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed"}
    document = encoded("openai_responses", answer())
    validate_response("openai_responses", document)
    with pytest.raises(ValidationError):
        validate_response("openai_responses", {**document, "output": [item]})


TOOLSET = {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}}
MEMBER = {
    "type": "tool_use",
    "id": "call_1",
    "name": "left_click",
    "input": {"coordinate": [1, 2]},
    "toolset_name": "computer",
    "caller": {"type": "direct"},
}


def toolset_body(*turns):
    messages = [{"role": "user", "content": "Go."}, *turns]
    return {"model": "m", "max_tokens": 99, "tools": [TOOLSET], "messages": messages}


@every_case("target", OTHERS["anthropic"])
def test_toolset_is_one_function_whose_calls_are_its_members(target):
    body = toolset_body()
    request = toolwire.translate_request(body, source="anthropic", target=target, strict=True).body
    [tool] = get(target).decode_request(request).tools
    actions = tool.input_schema["properties"]["action"]["enum"]
    assert (tool.name, "left_click" in actions, "zoom" in actions) == ("computer", True, False)
    response = answer(Text("Well."), ToolCall("call_1", "computer", {"action": "left_click", "coordinate": [1, 2]}))
    whole = toolwire.translate_response(encoded(target, response), source=target, target="anthropic", request=body).body
    validate_response("anthropic", whole)
    data = as_stream(get(target), response)
    for chunks in (bytewise(data), [data], *(random_chunks(data, Random(seed), 5) for seed in range(5))):
        stream = toolwire.translate_stream(source=target, target="anthropic", request=body)
        written = b"".join(map(stream.feed, chunks)) + stream.close()
        validate_chunks("anthropic", written)
        streamed = get("anthropic").encode_response(fold(decode_stream(get("anthropic"), [written]))).body
        for document in (whole, streamed):
            block = document["content"][1]
            assert {**block, "id": "call_1"} == MEMBER
            assert document["stop_reason"] == "tool_use"


@every_case("target", OTHERS["anthropic"])
def test_calls_of_a_toolset_in_the_history_are_calls_of_the_function(target):
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "done"}
    turns = [{"role": "assistant", "content": [MEMBER]}, {"role": "user", "content": [result]}]
    translation = toolwire.translate_request(toolset_body(*turns), source="anthropic", target=target)
    parts = [part for message in get(target).decode_request(translation.body).messages for part in message.parts]
    [call] = [part for part in parts if isinstance(part, ToolCall)]
    assert (call.name, call.arguments) == ("computer", {"action": "left_click", "coordinate": [1, 2]})
    assert [loss for loss in translation.losses if loss.severity != "info"] == []
    own = toolwire.translate_request(
        toolset_body(*turns), source="anthropic", target="anthropic", model="claude-sonnet-5"
    )
    assert own.body["messages"] == toolset_body(*turns)["messages"]
    assert own.body["tools"] == [TOOLSET]


@every_case("arguments", [{}, {"action": "zoom", "region": [0, 0, 1, 1]}, {"action": ["key"]}])
def test_unknown_member_of_a_toolset_ends_the_answer_in_a_fault(arguments):
    document = encoded("openai_chat", answer(ToolCall("call_1", "computer", arguments)))
    whole = toolwire.translate_response(document, source="openai_chat", target="anthropic", request=toolset_body())
    assert whole.status == 502


def test_truncated_member_of_a_toolset_is_left_out():
    cut = ToolCall("call_1", "computer", None, '{"action": "ty', "truncated")
    response = Response("r", "m", (Text("Well."), cut), Stop("length"))
    document = encoded("openai_chat", response)
    whole = toolwire.translate_response(document, source="openai_chat", target="anthropic", request=toolset_body())
    assert ([block["type"] for block in whole.body["content"]], whole.body["stop_reason"]) == (["text"], "max_tokens")
    stream = toolwire.translate_stream(source="openai_chat", target="anthropic", request=toolset_body())
    written = stream.feed(as_stream(get("openai_chat"), response)) + stream.close()
    assert b"tool_use" not in written
    assert b'"stop_reason":"max_tokens"' in written
    losses = [loss for loss in stream.losses if loss.severity == "error"]
    assert [loss.concept for loss in losses] == ["call"]
