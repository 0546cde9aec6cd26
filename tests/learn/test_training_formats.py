"""Training formats: the shapes that their trainers read, round trips, losses, and typed errors."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import every_case
from toolwire.ir.errors import ConfigError, EncodeError, ProtocolError, ToolwireError
from toolwire.ir.parts import Media, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import formats, make_example
from toolwire.learn.formats.toolace import read_python_calls

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "A city."}, "days": {"type": "integer"}},
    "required": ["city"],
}
WEATHER = Tool("get_weather", "Weather of a city.", SCHEMA)
TIME = Tool("get_time", "Time of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
ROME = ToolCall("call_1", "get_weather", {"city": "Rome", "days": 2})
OSLO = ToolCall("call_2", "get_time", {"city": "Oslo"})
PARALLEL = make_example(
    [
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Weather in Rome, time in Oslo?"),)),
        Message("assistant", (ROME, OSLO)),
        Message("user", (ROME.result("22 °C"), OSLO.result("9:00"))),
        Message("assistant", (Text("22 °C and 9:00."),)),
    ],
    [WEATHER, TIME],
)
WRITABLE = formats.names(writable=True)
SINGLE_TURN = {"xlam"}
WITHOUT_IDS = {"llamafactory", "swift", "xlam"}


def write(example, name):
    row, losses = formats.get(name).encode(example)
    return json.loads(json.dumps(row)), list(losses)


def bare_calls(example):
    return [(call.name, call.arguments) for call in example.calls]


def concepts(losses):
    return {loss.concept: loss.action for loss in losses}


# Vectors: the shapes read from the trainers (facts in docs/training-data.md)


def test_openai_row():
    row, losses = write(make_example(PARALLEL.messages, PARALLEL.tools, parallel=True, weights=(0, 1)), "openai")
    assert row == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Rome, time in Oslo?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city":"Rome","days":2}'},
                    },
                    {
                        "id": "call_2",
                        "type": "function",
                        "function": {"name": "get_time", "arguments": '{"city":"Oslo"}'},
                    },
                ],
                "weight": 0,
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "22 °C"},
            {"role": "tool", "tool_call_id": "call_2", "content": "9:00"},
            {"role": "assistant", "content": "22 °C and 9:00.", "weight": 1},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": SCHEMA},
            },
            {
                "type": "function",
                "function": {"name": "get_time", "description": "Time of a city.", "parameters": TIME.input_schema},
            },
        ],
        "parallel_tool_calls": True,
    }
    assert losses == []


def test_trl_row_has_tools_as_text_and_arguments_as_objects():
    row, losses = write(PARALLEL, "trl")
    assert json.loads(row["tools"])[0]["function"]["parameters"] == SCHEMA
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"city": "Rome", "days": 2}
    assert row["messages"][3] == {"role": "tool", "tool_call_id": "call_1", "content": "22 °C", "name": "get_weather"}
    assert losses == []


def test_trl_prompt_row_ends_with_the_completion():
    row, losses = write(PARALLEL, "trl_prompt")
    assert row["completion"] == [{"role": "assistant", "content": "22 °C and 9:00."}]
    assert len(row["prompt"]) == 5
    assert concepts(losses) == {"weight": "weakened"}
    read = formats.get("trl_prompt").decode(row)
    assert read.weights == (0, 1)
    assert write(read, "trl_prompt") == (row, [])


def test_llamafactory_row_has_one_turn_for_parallel_calls():
    row, losses = write(PARALLEL, "llamafactory")
    assert [turn["from"] for turn in row["conversations"]] == ["human", "function_call", "observation", "gpt"]
    assert json.loads(row["conversations"][1]["value"]) == [
        {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}},
        {"name": "get_time", "arguments": {"city": "Oslo"}},
    ]
    assert row["conversations"][2]["value"] == "22 °C\n</tool_response>\n<tool_response>\n9:00"
    assert row["system"] == "Be brief."
    assert json.loads(row["tools"])[1] == {
        "name": "get_time",
        "description": "Time of a city.",
        "parameters": TIME.input_schema,
    }
    assert concepts(losses) == {"call id": "dropped"}


def test_llamafactory_single_call_is_one_object():
    example = make_example(
        [Message("user", (Text("Rome?"),)), Message("assistant", (Reasoning("Hm."), ROME))], [WEATHER]
    )
    row, _ = write(example, "llamafactory")
    thoughts, _, call = row["conversations"][1]["value"].partition("</think>\n\n")
    assert thoughts == "<think>\nHm.\n"
    assert json.loads(call) == {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}
    assert formats.get("llamafactory").decode(row).messages == example.messages


@pytest.mark.parametrize("name", ["trl", "axolotl", "llamafactory_openai"])
def test_content_is_never_null_for_chat_templates(name):
    """Templates of trl 1.16.0 such as gptoss.jinja and lfm2_2_5.jinja search the content of every message."""
    row, _ = write(PARALLEL, name)
    assert all(type(message["content"]) is str for message in row["messages"])


def test_llamafactory_openai_row_has_objects_as_arguments():
    row, _ = write(PARALLEL, "llamafactory_openai")
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"city": "Rome", "days": 2}


def test_axolotl_row_marks_the_messages_to_train():
    row, losses = write(make_example(PARALLEL.messages, PARALLEL.tools, weights=(1, 0)), "axolotl")
    assert [message.get("training") for message in row["messages"]] == [None, None, True, None, None, False]
    assert type(row["messages"][2]["tool_calls"][0]["function"]["arguments"]) is str
    assert losses == []


def test_swift_row_has_a_message_for_each_call():
    row, losses = write(make_example(PARALLEL.messages, PARALLEL.tools, weights=(1, 0)), "swift")
    assert [(message["role"], message.get("loss")) for message in row["messages"]] == [
        ("system", None),
        ("user", None),
        ("tool_call", True),
        ("tool_call", True),
        ("tool_response", None),
        ("tool_response", None),
        ("assistant", False),
    ]
    assert json.loads(row["messages"][2]["content"]) == {
        "name": "get_weather",
        "arguments": {"city": "Rome", "days": 2},
    }
    assert concepts(losses) == {"call id": "dropped"}


def test_xlam_row_is_one_turn():
    row, losses = write(PARALLEL, "xlam")
    assert row["query"] == "Weather in Rome, time in Oslo?"
    assert json.loads(row["answers"])[1] == {"name": "get_time", "arguments": {"city": "Oslo"}}
    assert json.loads(row["tools"])[0] == {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"city": {"type": "str", "description": "A city."}, "days": {"type": "int, optional"}},
    }
    assert concepts(losses) == {
        "call id": "dropped",
        "system message": "dropped",
        "result": "dropped",
        "final answer": "dropped",
    }
    assert formats.get("xlam").decode(row).tools[0] == WEATHER


def test_xlam_row_of_the_published_dataset():
    """The shape of xlam-function-calling-60k: types by their Python names, a default for an optional parameter."""
    example = formats.get("xlam").decode(
        {
            "id": 7,
            "query": "Giveaways for games?",
            "answers": '[{"name": "giveaways", "arguments": {"type": "game"}}]',
            "tools": json.dumps(
                [
                    {
                        "name": "giveaways",
                        "description": "Live giveaways.",
                        "parameters": {
                            "type": {"description": "A type.", "type": "str", "default": "game"},
                            "ids": {"description": "Ids.", "type": "List[int]"},
                            "near": {"description": "Near.", "type": "Tuple[float, float], optional"},
                        },
                    }
                ]
            ),
        }
    )
    assert example.id == "7"
    assert bare_calls(example) == [("giveaways", {"type": "game"})]
    assert example.tools[0].input_schema == {
        "type": "object",
        "properties": {
            "type": {"description": "A type.", "type": "string", "default": "game"},
            "ids": {"description": "Ids.", "type": "array"},
            "near": {"description": "Near.", "type": "array"},
        },
        "required": ["ids"],
    }


TOOLACE = {
    "system": (
        "You compose functions.\nHere is a list of functions in JSON format that you can invoke:\n"
        '[{"name": "Market Trends API", "description": "Trends [beta].", "parameters": {"type": "dict", "properties": '
        '{"kind": {"type": "string"}, "n": {"type": "int"}}, "required": ["kind"]}, "required": null}]. \n'
        "Should you decide to return the function call(s), put them in brackets."
    ),
    "conversations": [
        {"from": "user", "value": "Trends?"},
        {
            "from": "assistant",
            "value": "[Market Trends API(kind=\"a, b(c)\", n=3), Market Trends API(kind='x', n=-1.5)]",
        },
        {
            "from": "tool",
            "value": '[{"name": "Market Trends API", "results": {"up": true}}, {"name": "Market Trends API", "results": 4}]',
        },
        {"from": "assistant", "value": "Up."},
    ],
}


def test_toolace_row():
    example = formats.detect(TOOLACE).decode(TOOLACE)
    assert bare_calls(example) == [
        ("Market Trends API", {"kind": "a, b(c)", "n": 3}),
        ("Market Trends API", {"kind": "x", "n": -1.5}),
    ]
    assert [result.structured for result in example.results] == [{"up": True}, 4]
    assert example.tools == (
        Tool(
            "Market Trends API",
            "Trends [beta].",
            {
                "type": "object",
                "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}},
                "required": ["kind"],
            },
        ),
    )
    assert example.messages[0].text.startswith("You compose functions.")
    assert '"name"' not in example.messages[0].text


@pytest.mark.parametrize(
    "text", ["[f(1)]", "[f(x=y)]", "[f(x=1]", "[f(**{})]", "[f(x=1) and more]", "[f(x=open('a'))]"]
)
def test_text_that_is_not_a_call_is_an_error(text):
    with pytest.raises(ProtocolError):
        read_python_calls(text)


def test_deep_nesting_in_a_python_call_is_an_error():
    with pytest.raises(ProtocolError):
        read_python_calls("[f(x=" + "[" * 5000 + "]" * 5000 + ")]")


def test_toolace_answer_in_brackets_is_text():
    row = {
        **TOOLACE,
        "conversations": [TOOLACE["conversations"][0], {"from": "assistant", "value": "[see (a) and b!]"}],
    }
    assert formats.get("toolace").decode(row).messages[-1].text == "[see (a) and b!]"


def test_toolace_is_only_read(tmp_path):
    from toolwire.learn import write_examples

    assert "toolace" not in WRITABLE
    with pytest.raises(ConfigError, match="only read"):
        write_examples(tmp_path / "a.jsonl", [PARALLEL], "toolace")


# Round trips


@pytest.mark.parametrize("name", WRITABLE)
def test_export_is_detected_and_read_back(name):
    row, _ = write(PARALLEL, name)
    found = formats.detect(row)
    read = found.decode(row)
    assert bare_calls(read) == bare_calls(PARALLEL)
    assert [tool.name for tool in read.tools] == ["get_weather", "get_time"]
    if name not in SINGLE_TURN:
        assert read.messages == PARALLEL.messages
        assert read.tools == PARALLEL.tools


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(min_size=1, max_size=12)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="<"), min_size=1, max_size=20)


@st.composite
def conversations(draw):
    """Random conversations that every format except the single-turn ones can express."""
    messages = [Message("system", (Text(draw(TEXTS)),))] if draw(st.booleans()) else []
    count = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message("user", (Text(draw(TEXTS)),)))
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                count += 1
                calls.append(
                    ToolCall(f"call_{count}", draw(NAMES), draw(st.dictionaries(st.text(), VALUES, max_size=3)))
                )
            messages.append(Message("assistant", tuple(calls)))
            messages.append(Message("user", tuple(call.result(draw(TEXTS)) for call in calls)))
        messages.append(Message("assistant", (Text(draw(TEXTS)),)))
    tools = [Tool(name, "", SCHEMA) for name in draw(st.lists(NAMES, max_size=3, unique=True))]
    return make_example(messages, tools)


@settings(max_examples=60, deadline=None)
@given(example=conversations(), name=st.sampled_from([name for name in WRITABLE if name not in SINGLE_TURN]))
def test_random_conversations_survive(example, name):
    row, _ = write(example, name)
    read = formats.get(name).decode(row)
    assert read.calls == example.calls
    assert read.results == example.results
    assert read.messages == example.messages
    assert read.tools == example.tools


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(st.tuples(NAMES, st.dictionaries(st.text(), VALUES, max_size=4)), min_size=1, max_size=4))
def test_random_calls_survive_every_format(calls):
    parts = tuple(ToolCall(f"call_{number}", *call) for number, call in enumerate(calls, 1))
    example = make_example([Message("user", (Text("Go."),)), Message("assistant", parts)])
    for name in WRITABLE:
        row, _ = write(example, name)
        assert formats.get(name).decode(row).calls == example.calls


# Losses


def conversation(*messages, **options):
    return make_example([Message("user", (Text("Go."),)), *messages], [WEATHER], **options)


LOSSES = {
    "weight": (
        conversation(Message("assistant", (Text("a"),)), weights=(0,)),
        {"openai", "axolotl", "swift", "toolwire"},
    ),
    "parallel": (conversation(Message("assistant", (ROME,)), parallel=False), {"openai", "toolwire"}),
    "reasoning": (
        conversation(Message("assistant", (Reasoning("Think."), ROME))),
        {"trl", "trl_prompt", "axolotl", "llamafactory", "swift", "toolwire"},
    ),
    "text beside calls": (
        conversation(Message("assistant", (Text("One moment."), ROME))),
        {"openai", "trl", "trl_prompt", "axolotl", "swift", "toolwire"},
    ),
    "is_error": (
        conversation(
            Message("assistant", (ROME,)),
            Message("user", (ROME.result("x", is_error=True),)),
            Message("assistant", (Text("y"),)),
        ),
        {"toolwire"},
    ),
    "image": (
        make_example(
            [Message("user", (Text("See."), Media("image", url="https://a.test/x.png"))), Message("assistant", (ROME,))]
        ),
        {"openai", "toolwire"},
    ),
    "null argument": (
        conversation(Message("assistant", (ToolCall("call_1", "get_weather", {"city": None}),))),
        {"openai", "axolotl", "llamafactory", "swift", "xlam", "toolwire"},
    ),
    "refusal": (conversation(Message("assistant", (Refusal("No."),))), {"openai", "toolwire"}),
    "call id": (conversation(Message("assistant", (ROME,))), set(WRITABLE) - WITHOUT_IDS),
}


@every_case("name", WRITABLE)
@every_case("concept", LOSSES)
def test_everything_that_a_format_cannot_contain_is_a_loss(concept, name):
    example, lossless = LOSSES[concept]
    try:
        _, losses = write(example, name)
    except EncodeError:
        assert name == "xlam"  # not one question with its calls
        return
    found = [loss for loss in losses if loss.concept == concept]
    assert bool(found) == (name not in lossless), losses
    assert all(loss.path.startswith("/") for loss in found)


@pytest.mark.parametrize("name", sorted(set(WRITABLE) - {"toolwire"}))
def test_truncated_call_is_never_written(name):
    example = conversation(Message("assistant", (ToolCall("a", "get_weather", None, '{"ci', "truncated"),)))
    with pytest.raises(EncodeError, match="truncated"):
        write(example, name)


@pytest.mark.parametrize("name", sorted(set(WRITABLE) - {"toolwire", "xlam"}))
def test_conversation_without_an_answer_is_refused(name):
    with pytest.raises(EncodeError, match="ends with a user message"):
        write(make_example([Message("user", (Text("Hello?"),))]), name)


@pytest.mark.parametrize("name", ["llamafactory", "llamafactory_openai"])
def test_order_that_the_trainer_would_skip_is_refused(name):
    with pytest.raises(EncodeError, match="alternate"):
        write(make_example([Message("assistant", (Text("Hi."),))]), name)
    results = [
        Message("assistant", (ROME,)),
        Message("user", (ROME.result("1"), Text("Thanks."))),
        Message("assistant", (Text("!"),)),
    ]
    with pytest.raises(EncodeError, match="next to results"):
        write(conversation(*results), name)
    with pytest.raises(EncodeError, match="after the start"):
        write(conversation(Message("system", (Text("x"),)), Message("assistant", (Text("!"),))), name)


@pytest.mark.parametrize("name", ["llamafactory", "llamafactory_openai"])
def test_two_user_messages_are_joined(name):
    example = conversation(Message("user", (Text("Now."),)), Message("assistant", (ROME,)))
    row, losses = write(example, name)
    assert concepts(losses)["message boundary"] == "rewritten"
    assert formats.get(name).decode(row).messages[0].text == "Go.\n\nNow."


@pytest.mark.parametrize("name", ["llamafactory", "llamafactory_openai", "swift"])
def test_results_are_put_in_the_order_of_their_calls(name):
    example = conversation(
        Message("assistant", (ROME, OSLO)),
        Message("user", (OSLO.result("9"), ROME.result("22"))),
        Message("assistant", (Text("."),)),
    )
    row, losses = write(example, name)
    assert concepts(losses)["order of results"] == "moved"
    assert [result.text for result in formats.get(name).decode(row).results] == ["22", "9"]


@pytest.mark.parametrize("name", ["llamafactory", "llamafactory_openai", "swift"])
def test_missing_result_is_refused_without_ids(name):
    example = conversation(
        Message("assistant", (ROME, OSLO)), Message("user", (OSLO.result("9"),)), Message("assistant", (Text("."),))
    )
    with pytest.raises(EncodeError, match="1 results for 2 calls"):
        write(example, name)


def test_swift_refuses_two_assistant_messages_in_a_row():
    with pytest.raises(EncodeError, match="read as one"):
        write(conversation(Message("assistant", (Text("a"),)), Message("assistant", (ROME,))), "swift")


def test_xlam_refuses_a_second_question():
    with pytest.raises(EncodeError, match="one question"):
        write(
            conversation(
                Message("assistant", (ROME,)), Message("user", (Text("And?"),)), Message("assistant", (OSLO,))
            ),
            "xlam",
        )


# Errors


def mutations(value, path=()):
    """Yield copies of a JSON value with one part removed or replaced by another type."""
    if isinstance(value, dict):
        for key in value:
            yield {name: one for name, one in value.items() if name != key}
            for wrong in (None, 7, [], {}, "x", [[1]]):
                yield {**value, key: wrong}
            for inner in mutations(value[key]):
                yield {**value, key: inner}
    elif isinstance(value, list):
        for number, one in enumerate(value):
            for inner in (None, 7, "x", {}, *mutations(one)):
                yield [*value[:number], inner, *value[number + 1 :]]
    elif isinstance(value, str):
        yield value[: len(value) // 2]


@every_case("name", formats.names())
def test_changed_row_is_read_or_refused_with_a_typed_error(name):
    row = TOOLACE if name == "toolace" else write(PARALLEL, name)[0]
    chosen, refused = formats.get(name), 0
    for changed in mutations(row):
        before = copy.deepcopy(changed)
        try:
            example = chosen.decode(changed)
            if chosen.encode is not None:
                chosen.encode(example)
        except ToolwireError as error:
            refused += 1
            assert error.message
        assert changed == before
    assert refused > 10


def test_unknown_row_names_its_keys():
    with pytest.raises(ProtocolError, match="'instruction', 'output'"):
        formats.detect({"instruction": "a", "output": "b"})


@pytest.mark.parametrize(
    ("name", "row", "pointer"),
    [
        ("llamafactory", {"conversations": [{"from": "robot", "value": "x"}]}, "/conversations/0/from"),
        ("llamafactory", {"conversations": [{"from": "function_call", "value": "x"}]}, "/conversations/0/value"),
        ("llamafactory", {"conversations": [{"from": "human", "value": "x"}], "tools": "["}, "/tools"),
        ("swift", {"messages": [{"role": "tool_call", "content": "x"}]}, "/messages/0/content"),
        ("swift", {"messages": [{"role": "robot", "content": "x"}]}, "/messages/0/role"),
        ("xlam", {"query": "a", "answers": "x", "tools": "[]"}, "/answers"),
        ("xlam", {"query": "a", "answers": '[{"name": 3}]', "tools": "[]"}, "/answers/0/name"),
        ("trl_prompt", {"prompt": [], "completion": [{"role": "robot", "content": ""}]}, "/completion/0/role"),
        ("toolace", {"system": "no functions", "conversations": []}, "/system"),
    ],
)
def test_error_points_into_the_row(name, row, pointer):
    with pytest.raises(ProtocolError) as caught:
        formats.get(name).decode(row)
    assert caught.value.pointer == pointer


def test_result_that_contains_the_separator_is_reported():
    text = "a\n</tool_response>\n<tool_response>\nb"
    example = conversation(
        Message("assistant", (ROME,)), Message("user", (ROME.result(text),)), Message("assistant", (Text("."),))
    )
    row, losses = write(example, "llamafactory")
    assert concepts(losses)["result boundary"] == "weakened"
    assert formats.get("llamafactory").decode(row).results == (ToolResult("call_1", "get_weather", (Text(text),)),)


@pytest.mark.parametrize("weights", [[1], [0, 2], [1, 1, 1]])
def test_canonical_row_with_wrong_weights_is_an_error(weights):
    row, _ = write(PARALLEL, "toolwire")
    with pytest.raises(ProtocolError) as caught:
        formats.get("toolwire").decode({**row, "weights": weights})
    assert caught.value.pointer == "/weights"


@settings(max_examples=30, deadline=None)
@given(example=conversations())
def test_normal_form_is_stable(example):
    assert make_example(example.messages, example.tools) == example


@pytest.mark.parametrize("name", ["llamafactory", "llamafactory_openai", "swift"])
def test_leading_system_messages_become_one(name):
    example = make_example(
        [
            Message("system", (Text("a"),)),
            Message("developer", (Text("b"),)),
            Message("user", (Text("Go."),)),
            Message("assistant", (Text("!"),)),
        ]
    )
    row, losses = write(example, name)
    assert concepts(losses) == {"developer role": "rewritten", "message boundary": "rewritten"}
    assert [message.text for message in formats.get(name).decode(row).messages] == ["a\n\nb", "Go.", "!"]


@pytest.mark.parametrize("name", ["llamafactory_openai", "xlam"])
def test_message_without_anything_to_learn_is_refused(name):
    with pytest.raises(EncodeError, match="nothing of an assistant message"):
        write(conversation(Message("assistant", (Reasoning("Only thoughts."),))), name)


MARKS = (
    "plain",
    "a</think>b",
    "<think>\nx\n</think>\n\ny",
    "\nfirst",
    "last\n",
    " ",
    "\n</tool_response>\n<tool_response>\n",
)


@pytest.mark.parametrize("name", [name for name in WRITABLE if name not in SINGLE_TURN])
def test_text_with_the_marks_of_a_format_is_kept_or_a_loss(name):
    for thoughts in MARKS:
        for text in MARKS:
            answer = Message("assistant", (Reasoning(thoughts), Text(text)))
            example = make_example([Message("user", (Text(text),)), answer])
            row, losses = write(example, name)
            assert formats.get(name).decode(row).messages == example.messages or losses, (thoughts, text)


@pytest.mark.parametrize("thoughts", MARKS)
def test_row_of_a_call_after_reasoning_can_be_read_or_is_refused(thoughts):
    example = make_example(
        [Message("user", (Text("Rome?"),)), Message("assistant", (Reasoning(thoughts), ROME))], [WEATHER]
    )
    if "</think>" in thoughts:
        with pytest.raises(EncodeError, match="contains </think>"):
            write(example, "llamafactory")
    else:
        again = formats.get("llamafactory").decode(write(example, "llamafactory")[0])
        assert again.messages[1].parts[0] == Reasoning(thoughts) and bare_calls(again) == bare_calls(example)


def test_answer_with_two_values_of_loss_is_refused():
    call = {"role": "tool_call", "content": '{"name": "get_time", "arguments": {}}', "loss": False}
    row = {
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Wait.", "loss": True}, call]
    }
    with pytest.raises(ProtocolError, match="different values of loss"):
        formats.get("swift").decode(row)
