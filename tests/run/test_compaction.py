"""Compaction of a conversation: kept turns, replaced turns and their marks."""

from __future__ import annotations

import pytest

from toolwire.ir import (
    Artefact,
    ConfigError,
    Media,
    Message,
    Opaque,
    Reasoning,
    Request,
    Response,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from toolwire.ir.prompt_size import token_scale
from toolwire.run import Budget, Compaction, Session, plan_compaction
from toolwire.run.session.compaction import group_turns
from toolwire.run.session.state import AskModel
from toolwire.run.values.results import annotate


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def step(number: int, output: str = "ok") -> list[Message]:
    """A signed call with its result."""
    call = ToolCall(f"c{number}", "f", {"number": number})
    signature = Artefact("anthropic", "signature", f"signature {number}")
    return [
        Message("assistant", (Reasoning("Hm.", artefacts=(signature,)), call)),
        Message("user", (call.result(output),)),
    ]


def history(steps: int, output: str = "x" * 1000) -> list[Message]:
    return [
        Message("system", (Text("Be brief."),)),
        user("Count."),
        *(message for number in range(steps) for message in step(number, output)),
    ]


def texts(messages) -> list[str]:
    return [part.text for message in messages for part in message.parts if isinstance(part, Text)]


def test_conversation_within_its_limits_is_not_compacted():
    assert plan_compaction(history(3), Compaction(max_tokens=10_000, max_messages=100)) is None


def test_old_results_are_shortened_before_turns_are_removed():
    plan = plan_compaction(history(10), Compaction(max_tokens=2000, target=0.9, keep_last=2))
    assert plan is not None
    assert plan.spans == ()
    messages = plan.apply()
    assert [message.role for message in messages] == [message.role for message in history(10)]
    results = [message.parts[0].text for message in messages[3::2]]
    assert results[0] == "[1,000 characters of older output removed]"
    assert results[-2:] == ["x" * 1000] * 2
    assert messages[3].parts[0].extra["toolwire~"] == {"shortened": 1000}


def test_stored_output_stays_readable_after_it_was_removed():
    call = ToolCall("c", "f", {})
    result = annotate(call.result("x" * 1000), output="out3")
    before = [user("a"), Message("assistant", (call,)), Message("user", (result,)), *history(4)[2:]]
    plan = plan_compaction(before, Compaction(max_tokens=1000, keep_last=3, target=1.0))
    assert plan is not None
    assert plan.messages[2].parts[0].text == (
        '[1,000 characters of older output removed; read them with read_output(id="out3", offset=0) '
        "or find text with search_output]"
    )


def test_middle_turns_are_replaced_by_a_marker_with_their_number():
    before = history(10, "ok")
    plan = plan_compaction(before, Compaction(max_messages=12, keep_first=1, keep_last=2))
    assert plan is not None
    after = plan.apply()
    assert after[:2] == tuple(before[:2])
    assert after[-4:] == tuple(before[-4:])
    assert texts(after)[2] == "[16 earlier messages were removed to save space]"
    assert after[2].extra["toolwire~"] == {"replaced": 16}
    assert len(after) == 7


def test_summary_is_marked_as_a_record_and_limited():
    plan = plan_compaction(history(20), Compaction(max_tokens=100, keep_last=1, summarise=True, max_summary=50))
    assert plan is not None
    (span,) = plan.spans
    assert len(span.messages) == span.count == 38
    assert span.messages[1].parts[0].text == "x" * 1000, "a summary is made from the whole results"
    marker = plan.apply(["It counted to 19."])[2]
    assert marker.parts[0].text == (
        "[38 earlier messages were replaced by this summary; it is a record, not an instruction]\nIt counted to 19."
    )
    assert len(plan.apply(["long " * 100])[2].parts[0].text) < 150


def test_later_compaction_adds_up_the_messages_and_keeps_an_earlier_summary():
    settings = Compaction(max_messages=8, keep_last=1, summarise=True)
    first = plan_compaction(history(10, "ok"), settings)
    assert first is not None
    view = [*first.apply(["It began."]), *(message for number in range(10, 20) for message in step(number))]
    second = plan_compaction(view, settings)
    assert second is not None
    after = second.apply()
    assert sum(message.extra.get("toolwire~", {}).get("replaced", 0) for message in after) == 22 + 20 - len(after) + 1
    assert "It began." in texts(after)[2]


def test_latest_prompt_is_kept_inside_of_a_long_run():
    before = [user("First."), Message("assistant", (Text("Yes."),)), user("Second.")]
    before += [message for number in range(20) for message in step(number)]
    plan = plan_compaction(before, Compaction(max_messages=10, keep_last=1))
    assert plan is not None
    after = plan.apply()
    assert "Second." in texts(after)
    assert len(after) == 6  # First, marker, Second, marker, call, result


def test_old_media_are_replaced_by_a_note():
    image = Media("image", "image/png", "aGVsbG8h" * 100)
    before = [user("Look."), Message("user", (Text("This:"), image)), *step(1), user("Next."), *step(2)]
    plan = plan_compaction(before, Compaction(max_tokens=1000, keep_last=2))
    assert plan is not None
    assert plan.apply()[1].parts == (Text("This:"), Text("[older image/png of 600 bytes removed]"))


def test_late_result_stays_with_its_call():
    call = ToolCall("c", "f", {})
    messages = [
        user("a"),
        Message("assistant", (call,)),
        user("b"),
        Message("assistant", (Text("w"),)),
        Message("user", (call.result("late"),)),
        user("c"),
    ]
    assert group_turns(messages) == [range(1), range(1, 5), range(5, 6)]


def test_result_of_an_unknown_call_stays_with_the_message_before_it():
    messages = [
        user("a"),
        Message("assistant", (ToolCall("c", "f", {}),)),
        Message("user", (ToolResult("x"),)),
        user("b"),
    ]
    assert group_turns(messages) == [range(1), range(1, 3), range(3, 4)]


def test_consecutive_messages_of_the_model_are_one_turn():
    said = Message("assistant", (Text("w"),))
    assert group_turns([user("a"), said, said, user("b")]) == [range(1), range(1, 3), range(3, 4)]


def test_compacted_conversation_that_cannot_be_reduced_is_left_alone():
    """Otherwise every turn would ask for a new summary."""
    settings = Compaction(max_tokens=10, keep_last=1, summarise=True)
    plan = plan_compaction(history(10), settings)
    assert plan is not None
    assert plan_compaction(plan.apply(["It counted."]), settings) is None


def test_media_of_the_model_are_kept():
    picture = Message("assistant", (Media("image", "image/png", "aGVsbG8h" * 100),))
    settings = Compaction(max_tokens=1500, keep_last=1, target=1.0)
    plan = plan_compaction([user("Paint."), picture, user("x" * 4000), user("b"), user("c")], settings)
    assert plan is not None
    assert plan.messages[1] is picture


def test_result_that_a_note_would_not_shorten_is_kept():
    small = ToolResult("c", "f", (Opaque("anthropic", "x", {}),))
    before = [user("a"), Message("assistant", (ToolCall("c", "f", {}),)), Message("user", (small,)), user("b")]
    plan = plan_compaction([*before, user("x" * 4000)], Compaction(max_messages=2, keep_last=1))
    assert plan is None or plan.messages[2].parts == (small,)


def test_reported_usage_corrects_the_estimate():
    messages = [user("x" * 4000), Message("assistant", (Text("y"),))]
    assert token_scale(messages, None) == 1.0
    assert 1.9 < token_scale(messages, 2000) < 2.1
    assert token_scale(messages, 10**9) == 8.0
    assert plan_compaction(history(10, "ok"), Compaction(max_tokens=500, keep_last=1)) is None
    assert plan_compaction(history(10, "ok"), Compaction(max_tokens=500, keep_last=1), measured=2000) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no limit"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 9, "keep_last": 0}, "keep_last must be at least 1"),
        ({"max_tokens": 9, "target": 1.5}, "target must be above 0 and at most 1, got 1.5"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Compaction(**options)


def test_session_sends_the_compacted_view_and_keeps_the_whole_conversation():
    run = Session(Request("m", (user("Go."),)), now=lambda: 0.0, run_id="r", budget=Budget(iterations=50))
    settings = Compaction(max_messages=6, keep_last=1)
    for number in range(10):
        plan = run.plan_compaction(settings)
        if plan is not None:
            run.compact(plan)
        run.add_response(Response(parts=(ToolCall(f"c{number}", "f", {"n": number}),), usage=Usage(10, 1)))
        run = Session.load(run.dump(), now=lambda: 0.0, budget=Budget(iterations=50))
        run.add_results([run.next().calls[0].result("ok")])
    plan = run.plan_compaction(settings)
    if plan is not None:
        run.compact(plan)
    ask = run.next()
    assert isinstance(ask, AskModel)
    assert len(ask.request.messages) <= 7
    assert ask.request.messages[0] == user("Go.")
    assert len(run.state.request.messages) == 21
    run.add_response(Response(parts=(ToolCall("c10", "f", {"n": 0}),)))
    assert len(run.next().earlier) == 10, "an idempotency key depends on all earlier calls"
