"""Compaction of any history: accepted by every wire, pairs and signatures intact, idempotent, never larger."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accepted_bodies import MODELS, translated, violations
from canonical import distinct, texts
from canonical import messages as any_messages
from sdk_validation import validate_request
from toolwire.ir import Artefact, Media, Message, Reasoning, Request, Text, Tool, ToolCall, ToolResult
from toolwire.ir.prompt_size import message_size
from toolwire.ir.text import to_bytes
from toolwire.run import Compaction, plan_compaction
from toolwire.run.session.compaction import group_turns
from toolwire.stream.strict import parse_object

PROVIDERS = {"anthropic": "anthropic", "openai_responses": "openai", "gemini": "google"}
TOOL = Tool("f", input_schema={"type": "object", "properties": {}})
IMAGE = Media("image", "image/png", "aGVsbG8h" * 20)

settings = st.builds(
    Compaction,
    max_tokens=st.sampled_from([1, 20, 100, 400]),
    max_messages=st.sampled_from([None, 1, 5]),
    target=st.sampled_from([0.3, 0.5, 1.0]),
    keep_first=st.integers(0, 2),
    keep_last=st.integers(1, 3),
    max_result=st.sampled_from([0, 50, 400]),
    summarise=st.booleans(),
    max_summary=st.sampled_from([10, 200]),
)
summaries = st.sampled_from(["", "The user asked about f.", "ü" * 500])


@st.composite
def agent_histories(draw, provider="anthropic"):
    """A conversation as an agent writes it: signed reasoning, parallel calls, long results, images."""
    history = [Message("system", (Text("Be brief."),))] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        history.append(Message("user", tuple(draw(st.sampled_from([(Text("Go on."),), (Text("See:"), IMAGE)])))))
        for _ in range(draw(st.integers(0, 4))):
            number += 1
            signature = (Artefact(provider, "signature", f"c2ln{number:04}"),)
            reasoning = Reasoning("Hm.", artefacts=signature, extra={"openai_responses": {"id": f"rs_{number}"}})
            calls = [
                ToolCall(f"call_{number}_{index}", "f", {}, artefacts=signature if provider == "google" else ())
                for index in range(draw(st.integers(1, 2)))
            ]
            length = draw(st.sampled_from([1, 100, 1000]))
            results = tuple(call.result("x" * length) for call in calls)
            pictures = (ToolResult(calls[-1].id, "f", (Text("picture"), IMAGE)),) if draw(st.booleans()) else ()
            history.append(Message("assistant", (*(() if provider == "google" else (reasoning,)), *calls)))
            history.append(Message("user", (*results[: len(results) - len(pictures)], *pictures)))
        history.append(Message("assistant", (Text("Done."),)))
    return history[: len(history) - draw(st.integers(0, 1))]


histories = st.one_of(agent_histories(), st.lists(any_messages, max_size=8))


def compacted(history, setting, summary=""):
    plan = plan_compaction(history, setting)
    return tuple(history) if plan is None else plan.apply([summary] * len(plan.spans))


@pytest.mark.parametrize("target", MODELS)
@given(data=st.data(), setting=settings, summary=summaries)
def test_compacted_history_is_accepted(target, data, setting, summary):
    own = agent_histories(PROVIDERS.get(target, "anthropic"))
    history = data.draw(st.one_of(own, st.lists(any_messages, max_size=8)))
    messages = compacted(history, setting, summary)
    for model in MODELS[target]:
        body = translated(distinct(Request(model, messages, (TOOL,))), target, model)
        if body is not None:
            body = parse_object(to_bytes(body))
            assert violations(body, target, model) == []
            validate_request(target, body)


@given(history=histories, setting=settings, summary=summaries)
def test_messages_of_the_model_are_kept_unchanged_or_replaced(history, setting, summary):
    kept = iter(history)
    for message in compacted(history, setting, summary):
        if message.role != "user":
            assert any(message is one for one in kept), "changed, or in another order"


@given(history=agent_histories(), setting=settings, summary=summaries)
def test_calls_and_results_stay_together(history, setting, summary):
    before, after = list(history), compacted(history, setting, summary)
    calls = [part.id for message in after for part in message.parts if isinstance(part, ToolCall)]
    results = [part.call_id for message in after for part in message.parts if isinstance(part, ToolResult)]
    answered = {part.call_id for message in before for part in message.parts if isinstance(part, ToolResult)}
    assert [one for one in calls if one in answered] == results
    for index, message in enumerate(after):
        answers = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if answers:
            asked = {part.id for part in after[index - 1].parts if isinstance(part, ToolCall)}
            assert answers <= asked


@given(history=histories, setting=settings)
def test_turns_are_replaced_as_a_whole(history, setting):
    plan = plan_compaction(history, setting)
    for span in () if plan is None else plan.spans:
        for turn in group_turns(history):
            inside = [span.start <= index < span.end for index in turn]
            assert all(inside) or not any(inside)


@given(history=histories, setting=settings, summary=summaries)
def test_first_and_last_turns_and_system_messages_are_kept(history, setting, summary):
    after = compacted(history, setting, summary)
    system = [message for message in history if message.role in ("system", "developer")]
    assert [message for message in after if message.role in ("system", "developer")] == system
    turns = [
        turn
        for turn in group_turns(history)
        if not any(history[index].role in ("system", "developer") for index in turn)
    ]
    for turn in (*turns[: setting.keep_first], *turns[max(len(turns) - setting.keep_last, 0) :]):
        for index in turn:
            assert any(history[index] is message for message in after)
    prompts = [
        index
        for index, message in enumerate(history)
        if message.role == "user" and any(not isinstance(part, ToolResult) for part in message.parts)
    ]
    assert not prompts or any(history[prompts[-1]] is message for message in after)


@given(history=histories, setting=settings, summary=summaries)
def test_compaction_is_idempotent_and_never_larger(history, setting, summary):
    once = compacted(history, setting, summary)
    assert compacted(once, setting, summary) == once
    assert sum(map(message_size, once)) <= sum(map(message_size, history))
    assert len(once) <= len(history)
    markers = [message.extra["toolwire~"]["replaced"] for message in once if "toolwire~" in message.extra]
    assert sum(markers) + len(once) - len(markers) == len(history)


@given(history=st.lists(texts.map(lambda text: Message("user", (text,))), max_size=12), setting=settings)
def test_continued_conversation_counts_every_message_once(history, setting):
    """Compaction after each new message replaces as many messages as a single compaction could."""
    view = ()
    for message in history:
        view = compacted((*view, message), setting)
    markers = [message.extra["toolwire~"]["replaced"] for message in view if "toolwire~" in message.extra]
    assert sum(markers) + len(view) - len(markers) == len(history)


@pytest.mark.parametrize("target", PROVIDERS)
@given(data=st.data(), setting=settings, summary=summaries)
def test_signatures_of_kept_turns_are_sent_and_no_others(target, data, setting, summary):
    model = {"anthropic": "claude-sonnet-4-5", "openai_responses": "gpt-5", "gemini": "gemini-3-pro-preview"}[target]
    history = data.draw(agent_histories(PROVIDERS[target]))
    after = compacted(history, setting, summary)
    whole = json.dumps(translated(Request(model, tuple(history), (TOOL,)), target, model))
    sent = json.dumps(translated(Request(model, after, (TOOL,)), target, model))
    for message in history:
        for part in message.parts:
            for artefact in getattr(part, "artefacts", ()):
                is_kept = any(message is one for one in after)
                assert (artefact.data in sent) == (is_kept and artefact.data in whole)
