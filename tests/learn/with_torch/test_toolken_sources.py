"""Recorded conversations and mined calls become demonstrations with the right positions."""

import pytest
from tiny_model import tiny_model

from toolwire import Message, Text, Tool, ToolCall, ToolResult
from toolwire.ir.errors import ConfigError
from toolwire.learn import (
    Demonstration,
    MarkedCall,
    ToolkenSettings,
    demonstrations_of_examples,
    demonstrations_of_mined,
    fit_toolkens,
    make_example,
)
from toolwire.learn.toolformer.mining import MinedCall

CALCULATOR = Tool("Calculator", input_schema={"type": "object", "properties": {"expression": {"type": "string"}}})


def text(role, content):
    return Message(role, (Text(content),))


def weather_example(**options):
    return make_example(
        [
            text("user", "Rain in Rome?"),
            Message("assistant", (Text("I look."), ToolCall("c1", "weather", {"city": "Rome"}))),
            Message("user", (ToolResult("c1", "weather", (Text("dry,\n25 °C"),)),)),
            text("assistant", "No rain."),
            text("user", "Thanks"),
            text("assistant", "Bye"),
        ],
        **options,
    )


def test_call_of_a_conversation_is_marked_where_its_result_is_inserted():
    first, second = demonstrations_of_examples(tiny_model(), [weather_example()])
    prompt = "<|im_start|>user\nRain in Rome?<|im_end|>\n<|im_start|>assistant\n"
    assert first.text == f"{prompt}I look. dry, 25 °C\nNo rain."
    [call] = first.calls
    assert (call.tool, call.arguments, first.text[call.start : call.end]) == ("weather", {"city": "Rome"}, "dry, 25 °C")
    assert first.begin == len(prompt) and first.ignored == ()
    assert second.calls == () and second.text.endswith("<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\nBye")
    assert first.text[len(prompt) :] in second.text and second.text[second.begin :] == "Bye"


def test_answer_with_weight_zero_is_context():
    first, second = demonstrations_of_examples(tiny_model(), [weather_example(weights=[0, 0, 1])])
    assert first.calls == () and first.ignored[0][0] == first.begin and first.ignored[-1][1] == len(first.text)
    assert second.ignored == ()


def test_failed_call_is_not_demonstrated():
    example = make_example(
        [
            text("user", "Rain?"),
            Message("assistant", (ToolCall("c1", "weather", {}),)),
            Message("user", (ToolResult("c1", "weather", (Text("no network"),), is_error=True),)),
            text("assistant", "I do not know."),
        ]
    )
    [one] = demonstrations_of_examples(tiny_model(), [example])
    assert one.calls == () and one.text.endswith("assistant\nI do not know.")


def test_model_without_a_chat_template_is_refused():
    model = tiny_model()
    model.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        demonstrations_of_examples(model, [])


def test_mined_calls_of_one_text_are_one_demonstration():
    passage = "She has 8 - 2 = 6 cups and 6 * 3 = 18 spoons."
    mined = [
        MinedCall(passage, 34, "Calculator(6 * 3)", "18"),
        MinedCall(passage, 15, "Calculator(8 - 2)", "6"),
    ]
    assert demonstrations_of_mined(mined, tools=[CALCULATOR]) == [
        Demonstration(
            passage,
            (
                MarkedCall("Calculator", 16, 17, {"expression": "8 - 2"}),
                MarkedCall("Calculator", 35, 37, {"expression": "6 * 3"}),
            ),
        )
    ]


def test_mined_call_may_get_the_name_of_another_tool():
    passage = "It is 6 and 7."
    mined = [MinedCall(passage, 5, "Calculator(8 - 2)", "6"), MinedCall(passage, 11, "Calculator(1 + 2 * 3)", "7")]
    [one] = demonstrations_of_mined(mined, name_of=lambda call: "subtract" if "-" in call.call else None)
    assert one.calls == (MarkedCall("subtract", 6, 7),) and one.ignored == ((12, 13),)
    assert demonstrations_of_mined(mined, name_of=lambda call: None) == []


def test_mined_calls_train_a_head():
    passages = [f"{a} - {b} = {a - b}." for a in range(20, 30) for b in (3, 7)]
    mined = [MinedCall(one, one.index("=") + 1, "Calculator(…)", one.split("= ")[1][:-1]) for one in passages]
    shown = demonstrations_of_mined(mined)
    fit = fit_toolkens(tiny_model(1), shown, shown, settings=ToolkenSettings(epochs=40, learning_rate=0.1))
    assert fit.head.names == ("Calculator",) and fit.score.calls.f1 > 0.9
