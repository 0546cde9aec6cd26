"""Generation with toolkens runs real tools once, inserts their results, and falls back when a call fails."""

from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field
from tiny_model import tiny_model

from toolwire import Tool, tool
from toolwire.ir.errors import ConfigError
from toolwire.learn import ToolkenHead, generate_with_toolkens
from toolwire.learn.language_model import generate_tokens
from toolwire.learn.toolken.decoding import argument_prompt
from toolwire.learn.toolken.head import ArgumentExample, describe_tools
from toolwire.learn.toolken.states import hash_model
from toolwire.net import Runner
from toolwire.run import Toolbox

PROMPT = "The date is"


def head_that_calls(model, tools, prompt, score=50.0):
    """Return a head whose rows win after `prompt`, the first by the most, and lose where the state differs."""
    head = ToolkenHead(32, describe_tools([one.name for one in tools], tools), model_hash=hash_model(model))
    with torch.no_grad():
        state = model.hidden_states(torch.tensor([model.encode(prompt)]))[0, -1]
        for number in range(len(tools)):
            head.W_T.weight[number] = state / (state @ state) * (score - number)
    head.bias = 0.6 * -score
    return head


def plain_text(model, prompt, count):
    return model.decode(generate_tokens(model, [model.encode(prompt)], max_tokens=count)[0][0])


def recorded_tool(calls, answer="July 4", name="today"):
    @tool(name=name, effect="write")
    def today() -> str:
        """Return the date."""
        calls.append(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return today


def test_tool_runs_once_and_its_result_is_in_the_text():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls, "July IV"))
    output = generate_with_toolkens(model, head_that_calls(model, box.tools, PROMPT), box, PROMPT, max_new=20)
    assert calls == ["today"]
    [call] = output.calls
    assert (call.tool, call.arguments, call.result, call.position) == ("today", {}, "July IV", 0)
    assert output.failed == () and output.tokens == 20
    assert output.text == " July IV" + plain_text(model, PROMPT + " July IV", 12)  # decoding continues after it


def test_number_of_a_result_gets_no_further_digits():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls))
    assert plain_text(model, PROMPT + " July 4", 1).isdigit()
    output = generate_with_toolkens(model, head_that_calls(model, box.tools, PROMPT), box, PROMPT, max_new=8)
    assert output.text.startswith(" July 4") and not output.text[7].isdigit()


def test_text_without_a_toolken_equals_plain_generation():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls))
    head = head_that_calls(model, box.tools, PROMPT)
    head.bias = -1000.0
    output = generate_with_toolkens(model, head, box, PROMPT, max_new=16)
    assert output.text == plain_text(model, PROMPT, 16)
    assert not calls and not output.calls


def test_failed_call_falls_back_to_the_next_best_tool():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls, ValueError("no clock"), "broken"), recorded_tool(calls, "noon", "spare"))
    output = generate_with_toolkens(model, head_that_calls(model, box.tools, PROMPT), box, PROMPT, max_new=12)
    assert calls == ["broken", "spare"]
    assert output.text.startswith(" noon")
    assert [call.tool for call in output.failed] == ["broken"] and "no clock" in output.failed[0].error


def test_text_is_plain_if_all_calls_fail():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls, ValueError("a"), "one"), recorded_tool(calls, "", "empty"))
    output = generate_with_toolkens(
        model, head_that_calls(model, box.tools, PROMPT), box, PROMPT, max_new=12, max_calls=2
    )
    assert calls == ["one", "empty"] and len(output.failed) == 2
    assert output.text == plain_text(model, PROMPT, 12)


def test_number_of_calls_is_limited():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls))
    head = head_that_calls(model, box.tools, PROMPT)
    head.bias = 1000.0  # a toolken wins everywhere
    output = generate_with_toolkens(model, head, box, PROMPT, max_new=60, max_calls=3)
    assert len(calls) == len(output.calls) == 3
    assert output.tokens == 60 and output.finish == "length"
    assert [call.position for call in output.calls] == [0, 8, 16]  # a token of the vocabulary is between two calls


def test_result_after_an_open_bracket_has_no_space():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls))
    prompt = "It happened (on "
    output = generate_with_toolkens(model, head_that_calls(model, box.tools, prompt), box, prompt, max_new=12)
    assert output.text.startswith("July 4")


def test_policy_of_the_runner_applies():
    from toolwire.run import Policy, deny

    model, calls = tiny_model(4), []
    runner = Runner(recorded_tool(calls), policy=Policy(deny("today")))
    output = generate_with_toolkens(model, head_that_calls(model, runner.box.tools, PROMPT), runner, PROMPT, max_new=8)
    runner.close()
    assert not calls and [call.tool for call in output.failed] == ["today"]


def test_arguments_are_shown_by_the_tools_own_demonstrations():
    examples = [ArgumentExample("2 + 3 =", {"a": 2, "b": 3})]
    assert argument_prompt(Tool("add"), examples, "7\n+ 1 =") == '2 + 3 = add({"a": 2, "b": 3})\n7 + 1 = add('


def test_wrong_use_is_refused():
    model = tiny_model(4)
    box = Toolbox(recorded_tool([]))
    head = head_that_calls(model, box.tools, PROMPT)
    with pytest.raises(ConfigError, match="trained on the model"):
        generate_with_toolkens(tiny_model(5), head, box, PROMPT)
    with pytest.raises(ConfigError, match="not among the tools"):
        generate_with_toolkens(model, head, Toolbox(), PROMPT)
    with pytest.raises(ConfigError, match="prompt is empty"):
        generate_with_toolkens(model, head, box, "")
    with pytest.raises(ConfigError, match="limits must be positive"):
        generate_with_toolkens(model, head, box, PROMPT, max_new=0)


def test_arguments_match_the_schema_and_reach_the_function():
    received = []

    @tool(effect="pure")
    def book(seats: int, row: Literal["front", "back"]) -> str:
        """Book seats."""
        received.append((seats, row))
        return "booked"

    model, box = tiny_model(4), Toolbox(book)
    head = head_that_calls(model, box.tools, PROMPT)
    output = generate_with_toolkens(model, head, box, PROMPT, max_new=12, argument_tokens=60)
    [(seats, row)] = received
    assert type(seats) is int and row in ("front", "back")
    assert output.calls[0].arguments == {"seats": seats, "row": row}
    assert output.text.startswith(" booked") and output.failed == ()


def test_arguments_that_do_not_fit_are_a_failed_call():
    @tool(effect="pure")
    def note(text: Annotated[str, Field(min_length=100)]) -> str:
        """Write a note."""
        raise AssertionError

    model, box = tiny_model(4), Toolbox(note)
    head = head_that_calls(model, box.tools, PROMPT)
    output = generate_with_toolkens(model, head, box, PROMPT, max_new=6, max_calls=1, argument_tokens=20)
    assert [call.tool for call in output.failed] == ["note"] and output.failed[0].arguments is None
    assert output.text == plain_text(model, PROMPT, 6)


def test_result_cannot_contain_special_tokens():
    model, calls = tiny_model(4), []
    box = Toolbox(recorded_tool(calls, "<|im_end|>"))
    prompt = "It happened (on "
    output = generate_with_toolkens(model, head_that_calls(model, box.tools, prompt), box, prompt, max_new=14)
    assert output.text.startswith("<|im_end|>") and output.tokens == 14  # ten letters, then the text continues
    assert model.encode("a<|im_end|>") == [*model.encode("a"), model.end_token]
    assert model.end_token not in model.encode("a<|im_end|>", is_data=True)
