"""The conversation before a run: untrusted output, and calls without a result."""

import pytest

from toolwire import Message, Request, Text, ToolCall, ToolResult
from toolwire.run import Budget, Session
from toolwire.run.session.history import answer_open_calls
from toolwire.run.values.results import has_untrusted_output, mark_untrusted, result_code
from toolwire.testing import says


def user(*parts):
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def calls(*ids, name="look"):
    return Message("assistant", tuple(ToolCall(call_id, name, {}) for call_id in ids))


def results(*ids, name="look"):
    return user(*(ToolResult(call_id, name, (Text("found"),)) for call_id in ids))


def shape(messages):
    """Return the ids of the results of each message, marked with ! if they are errors, and the texts."""
    return [
        [
            part.call_id + "!" * part.is_error if isinstance(part, ToolResult) else getattr(part, "text", "")
            for part in message.parts
        ]
        for message in messages
        if message.role == "user"
    ]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("a"), calls("1"), user("b")], [["a"], ["1!"], ["b"]]),
        ([user("a"), calls("1", "2"), results("1"), user("b")], [["a"], ["2!", "1"], ["b"]]),
        ([calls("1"), results("1"), calls("1"), user("b")], [["1"], ["1!"], ["b"]]),
        ([calls("1"), calls("2"), user("b")], [["1!", "2!"], ["b"]]),
        ([calls("1"), user("b"), results("1")], [["b"], ["1"]]),  # a late result is a result
        ([calls("1"), results("1")], [["1"]]),  # the prompt is the result
        ([user("a"), calls("1")], [["a"]]),
        ([calls(""), user("b")], [["b"]]),
        ([], []),
    ],
)
def test_each_call_before_the_prompt_gets_a_result(messages, expected):
    completed = answer_open_calls(tuple(messages))
    assert shape(completed) == expected
    assert answer_open_calls(completed) == completed


def test_added_result_does_not_claim_an_outcome():
    (_, added, _) = answer_open_calls((calls("1"), user("b"), user("c")))[:3]
    (result,) = added.parts
    assert result_code(result) == "cancelled"
    assert "not executed, or it was interrupted" in result.text


def test_complete_history_is_returned_unchanged():
    messages = (user("a"), calls("1"), results("1"), user("b"))
    assert answer_open_calls(messages) is messages


def test_untrusted_output_is_found_by_name_by_call_and_by_mark():
    history = [calls("1", name="fetch"), user(ToolResult("1", None, (Text("x"),)))]
    assert has_untrusted_output(history, {"fetch"})
    assert has_untrusted_output([results("1", name="fetch")], {"fetch"})
    assert not has_untrusted_output(history, {"look"})
    assert not has_untrusted_output([calls("1", name="fetch"), user("b")], {"fetch"})
    marked = mark_untrusted([ToolCall("1", "fetch", {})], [ToolResult("1", "fetch")], {"fetch"})
    assert has_untrusted_output([user(*marked)], ())


def repeated_session(history, first_message, **limits):
    request = Request("m", (*history, user("Again?")))
    return Session(request, now=lambda: 0.0, budget=Budget(**limits), first_message=first_message)


def test_calls_of_the_history_do_not_count_as_repeats():
    history = [message for _ in range(5) for message in (calls("1"), results("1"))]
    run = repeated_session(history, len(history))
    for number in range(4):
        run.add_response(says(ToolCall(f"new {number}", "look", {})))
        assert run.state.phase == "run"
        run.add_results([ToolResult(f"new {number}", "look")])
    run.add_response(says(ToolCall("last", "look", {})))
    assert run.state.reason == "the model repeated the same call more than 4 times"


def test_limits_of_a_response_that_is_not_complete():
    run = repeated_session([], 0, calls=3, same_call=1)
    run.add_response(says(ToolCall("1", "look", {})))
    run.add_results([ToolResult("1", "look")])
    limits = run.call_limits()
    other = ToolCall("2", "look", {"n": 1})
    assert not limits.may_start(ToolCall("2", "look", {}), 0)
    assert [limits.may_start(other, position) for position in range(4)] == [True, True, False, False]


def test_untrusted_tools_that_are_known_later_taint_the_run():
    run = repeated_session([calls("1"), results("1")], 2)
    assert not run.state.tainted
    run.adopt(["fetch"], None, None)
    assert not run.state.tainted
    run.adopt(["look"], None, None)
    assert run.state.tainted
