"""Checks of training examples."""

from msgspec.structs import replace

from tables import every_case
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import Example, check_example, make_example

WEATHER = Tool(
    "get_weather",
    "Weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
)
CALL = ToolCall("c1", "get_weather", {"city": "Rome"})
ASK = Message("user", (Text("Rome?"),))
ANSWER = Message("assistant", (Text("Sunny."),))
CALLING = Message("assistant", (CALL,))
RESULT = Message("user", (CALL.result("sun"),))
GOOD = make_example([Message("system", (Text("Be brief."),)), ASK, CALLING, RESULT, ANSWER], [WEATHER])


def rules(example, **options):
    return [(one.rule, one.pointer) for one in check_example(example, **options)]


def test_good_example_has_no_findings():
    assert check_example(GOOD) == []


def test_call_at_the_end_needs_no_result():
    assert check_example(make_example([ASK, CALLING], [WEATHER])) == []


def calling(arguments, **fields):
    return make_example([ASK, Message("assistant", (ToolCall("c1", "get_weather", arguments, **fields),))], [WEATHER])


@every_case(
    ("example", "expected"),
    [
        (make_example([]), [("no answer", "/messages")]),
        (make_example([ASK]), [("no answer", "/messages")]),
        (make_example([ANSWER]), [("role order", "/messages/0")]),
        (make_example([ASK, ASK, ANSWER]), [("role order", "/messages/1")]),
        (make_example([ASK, ANSWER, ANSWER]), [("role order", "/messages/2")]),
        (make_example([ASK, Message("assistant")]), [("empty message", "/messages/1")]),
        (replace(GOOD, weights=(0, 0)), [("weights", "/weights")]),
        (replace(GOOD, weights=(1,)), [("weights", "/weights")]),
        (replace(GOOD, tools=()), [("no tools", "/tools")]),
        (replace(GOOD, tools=(WEATHER, WEATHER)), [("duplicate tool", "/tools/1")]),
        (replace(GOOD, tools=(replace(WEATHER, name="other"),)), [("tool not offered", "/messages/2/parts/0")]),
        (calling({"city": 3}), [("invalid arguments", "/messages/1/parts/0/arguments/city")]),
        (calling({}), [("invalid arguments", "/messages/1/parts/0/arguments")]),
        (calling(None, raw="{", state="truncated"), [("incomplete call", "/messages/1/parts/0")]),
        (
            make_example([ASK, CALLING, ANSWER], [WEATHER]),
            [("role order", "/messages/2"), ("missing result", "/messages/1")],
        ),
        (
            make_example([ASK, ANSWER, Message("user", (ToolResult("x", None, (Text("1"),)),)), ANSWER]),
            [("result without call", "/messages/2/parts/0")],
        ),
        (
            Example((ASK, CALLING, Message("user", (CALL.result("1"), CALL.result("2"))), ANSWER), (WEATHER,)),
            [("result without call", "/messages/2/parts/1")],
        ),
        (make_example([ASK, Message("assistant", (CALL, CALL))], [WEATHER]), [("duplicate id", "/messages/1/parts/1")]),
        (
            replace(calling({"city": "Rome"}), tools=(Tool("get_weather", None, {"type": "nonsense"}),)),
            [("unusable schema", "/tools/0/input_schema")],
        ),
    ],
)
def test_each_problem_is_found_where_it_is(example, expected):
    assert rules(example) == expected
    assert all(one.detail and str(one) for one in check_example(example))


def test_long_example_is_found():
    assert rules(GOOD, max_characters=50) == [("too long", "")]
