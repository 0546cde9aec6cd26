"""Multi-turn entries: conversations with the simulated classes, judged by the leaderboard's own checker."""

import json
from contextlib import closing

import pytest
from msgspec.structs import replace
from tiny_model import tiny_model

from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError, MissingExtra
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.response import Response, Stop
from toolwire.learn import ClientAnswers, LocalAnswers, check_conversation, evaluate_bfcl, read_bfcl, select_entries
from toolwire.learn.bfcl import answers, conversations
from toolwire.learn.bfcl.conversations import SimulatedConversation
from toolwire.learn.bfcl.entries import MULTI_TURN_CATEGORIES
from toolwire.learn.bfcl.judgement import BFCLAnswer, classify_answer
from toolwire.net import ModelClient
from toolwire.testing import Upstream
from toolwire.testing.servers import start_upstream, stop_upstream

ENTRIES = {entry.id: entry for entry in read_bfcl(MULTI_TURN_CATEGORIES)}
FILES = ENTRIES["multi_turn_base_0"]  # five calls in four turns
WITHHELD = ENTRIES["multi_turn_miss_func_0"]  # `sort` is offered from turn 3 on
MATHS = next(entry for entry in ENTRIES.values() if "MathAPI" in entry.scenario.classes)


def hold(entry, model):
    """Hold a conversation; `model` gets the turn, the step and the conversation, and returns the parts of an answer."""
    with closing(SimulatedConversation(entry)) as conversation:
        while not conversation.is_over:
            conversation.add(model(len(conversation.turns) - 1, len(conversation.turns[-1]), conversation))
        return classify(conversation)


def classify(conversation):
    turns = tuple(map(tuple, conversation.turns))
    answer = BFCLAnswer((), conversation.text, conversation.finished, conversation.unparsable, "", turns)
    return classify_answer(conversation.entry, answer)


def expected_calls(turn, step, conversation):
    return () if step else conversation.entry.calls[turn]


def single_calls(turn, step, conversation):
    return conversation.entry.calls[turn][step : step + 1]


@pytest.mark.parametrize("category", MULTI_TURN_CATEGORIES)
def test_perfect_model_is_always_right(category):
    entries = [entry for entry in ENTRIES.values() if entry.category == category]
    wrong = {entry.id: row.detail for entry in entries if (row := hold(entry, expected_calls)).outcome != "right"}
    assert len(entries) == 200
    assert wrong == {}


def test_calls_may_be_spread_over_several_answers():
    for number in range(20):
        assert hold(ENTRIES[f"multi_turn_base_{number}"], single_calls).outcome == "right"


@pytest.mark.parametrize("category", MULTI_TURN_CATEGORIES)
def test_idle_model_is_never_right(category):
    entries = [entry for entry in ENTRIES.values() if entry.category == category]
    assert {hold(entry, lambda *_: (Text("Done."),)).outcome for entry in entries} == {"no_call"}


def test_wrong_argument_leads_to_another_state():
    def model(turn, step, conversation):
        calls = expected_calls(turn, step, conversation)
        return [ToolCall(call.id, call.name, {"dir_name": "tmp"}) if call.name == "mkdir" else call for call in calls]

    row = hold(FILES, model)
    assert row.outcome == "wrong_state"
    assert "GorillaFileSystem" in row.detail


def test_omitted_read_is_a_missing_result():
    def model(turn, step, conversation):
        return [call for call in expected_calls(turn, step, conversation) if call.name != "grep"]

    assert hold(FILES, model).outcome == "missing_result"


def test_additional_read_is_permitted():
    def model(turn, step, conversation):
        return (ToolCall("c", "ls", {"a": True}),) if step == 0 else single_calls(turn, step - 1, conversation)

    assert hold(FILES, model).outcome == "right"


def test_results_are_in_the_history():
    with closing(SimulatedConversation(FILES)) as conversation:
        conversation.add((ToolCall("c1", "pwd", {}), ToolCall("c2", "cat", {"file_name": "absent"})))
        first, second = conversation.messages[-1].results
    assert (first.call_id, json.loads(first.text)) == ("c1", {"current_working_directory": "/workspace"})
    assert (second.call_id, "error" in second.text) == ("c2", True)


def test_turn_without_end_is_too_many_steps():
    row = hold(FILES, lambda *_: (ToolCall("c", "pwd", {}),))
    assert row.outcome == "too_many_steps"
    assert row.detail == f"the conversation ended in turn 1 of {len(FILES.turns)}"
    assert len(row.turns[0]) == 21  # the leaderboard ends after step 20 was exceeded


def test_withheld_function_is_offered_from_its_turn_on():
    seen = []

    def model(turn, step, conversation):
        seen.append((turn, "sort" in {tool.name for tool in conversation.tools}, conversation.messages[-1].text))
        return expected_calls(turn, step, conversation)

    assert hold(WITHHELD, model).outcome == "right"
    assert {turn for turn, offered, _ in seen if offered} == {3, 4}
    assert "updated some more functions" in next(text for turn, _, text in seen if turn == 3)


def test_unreadable_call_ends_its_turn():
    with closing(SimulatedConversation(FILES)) as conversation:
        conversation.add((ToolCall("c", "cd", None, '{"folder', "invalid"),))
        assert len(conversation.turns) == 2
        assert [message.role for message in conversation.messages[-3:]] == ["assistant", "user", "user"]
        assert classify(conversation).outcome == "unparsable"


def test_answer_at_the_token_limit_is_the_cause_of_a_wrong_conversation():
    with closing(SimulatedConversation(FILES)) as conversation:
        while not conversation.is_over:
            conversation.add((Text("Let me"),), finished=False)
        row = classify(conversation)
    assert (row.outcome, row.finished) == ("unfinished", False)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "open", {"file": "{path}", "mode": "w"}),
        ToolCall("c", "_load_scenario", {"scenario": {}}),
        ToolCall("c", "pwd(open('{path}', 'w'))", {}),
        ToolCall("c", "cd", {"folder=open('{path}', 'w'), x": 1}),
        ToolCall("c", "cd", {"folder": "', open('{path}', 'w'))"}),
    ],
)
def test_text_of_a_model_is_never_evaluated(call, tmp_path):
    path = tmp_path / "written"
    text = str(path)
    arguments = {key.replace("{path}", text): _fill(value, text) for key, value in call.arguments.items()}
    with closing(SimulatedConversation(FILES)) as conversation:
        conversation.add((ToolCall("c", call.name.replace("{path}", text), arguments),))
        assert "rror" in conversation.messages[-1].results[0].text
        check_conversation(FILES, [*conversation.turns, *[()] * (len(FILES.turns) - 1)])
    assert not path.exists()


def _fill(value, text):
    return value.replace("{path}", text) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("power", {"base": 10, "exponent": 10**9}),
        ("power", {"base": 10**4_000, "exponent": 1_000}),
        ("round_number", {"number": 5, "decimal_places": -(10**9)}),
        ("logarithm", {"value": 2, "base": 10, "precision": 10**9}),
        ("square_root", {"number": 2, "precision": 10**9}),
    ],
)
def test_call_that_would_take_hours_is_an_error(name, arguments):
    with closing(SimulatedConversation(MATHS)) as conversation:
        conversation.add((ToolCall("c", name, arguments),))
        assert conversation.messages[-1].results[0].text.startswith("Error during execution")


def test_instances_are_removed():
    before = set(conversations._load().instances)
    hold(FILES, expected_calls)
    assert set(conversations._load().instances) == before


def test_entry_with_one_turn_has_no_conversation():
    [entry, *_] = read_bfcl(["simple_python"])
    with pytest.raises(ConfigError, match="simple_python has no simulated classes"):
        check_conversation(entry, [])


def test_missing_library_of_the_classes_is_named(monkeypatch):
    monkeypatch.setattr(conversations, "find_spec", lambda name: None)
    conversations._load.cache_clear()
    try:
        with pytest.raises(MissingExtra, match="require mpmath"):
            select_entries(["multi_turn_base"])  # before the folder of a run is made
    finally:
        conversations._load.cache_clear()


def answer_request(request):
    """Answer as a perfect model: the expected calls of the turn that the last message of the user began."""
    prompts = [message.text for message in request.messages if message.role == "user" and not message.results]
    entry = next(entry for entry in CHOSEN if entry.turns[0][0].text == prompts[0])
    done = request.messages[-1].results
    calls = () if done else entry.calls[len(prompts) - 1]
    if not calls:
        return Response(parts=(Text("Done."),), stop=Stop("stop"))
    return Response(parts=calls, stop=Stop("tool_calls"))


CHOSEN = [ENTRIES[f"multi_turn_base_{number}"] for number in (0, 3)] + [ENTRIES["multi_turn_miss_func_2"]]


@pytest.fixture
def upstream():
    server = Upstream(*[answer_request] * 200)
    start_upstream(server)
    yield server
    stop_upstream(server)


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "gemini"])
def test_perfect_model_over_a_wire_is_right(upstream, wire):
    vendor = {"openai_chat": "openai", "anthropic": "anthropic", "gemini": "gemini"}[wire]
    with ModelClient(f"{vendor}/any", base_url=upstream.url, key="k", wire=wire) as client:
        report = evaluate_bfcl(ClientAnswers(client, concurrency=2), CHOSEN)
    assert report.total.outcomes == {"right": 3}


def test_slow_conversation_is_an_error_that_is_asked_again(upstream, monkeypatch):
    monkeypatch.setattr(answers, "_LONGEST_CONVERSATION", 0)
    with ModelClient("openai/any", base_url=upstream.url, key="k") as client:
        [(entry, answer)] = ClientAnswers(client).answers([FILES])
    assert answer.error == "the conversation took longer than 0 seconds"
    assert classify_answer(entry, answer).outcome == "upstream_error"


def test_command_scores_conversations_and_continues(upstream, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("toolwire.learn.bfcl.evaluation.read_bfcl", lambda categories: CHOSEN[:2])
    arguments = ["learn", "eval", "bfcl", "-m", "openai/any", "--base-url", upstream.url, "--wire", "openai_chat"]
    arguments += ["--categories", "multi_turn_base", "-o", str(tmp_path / "run"), "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["total"]["right"] == 2
    asked = len(upstream.requests)
    lines = (tmp_path / "run/answers.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["turns"]
    (tmp_path / "run/answers.jsonl").write_text(lines[0] + "\n")
    assert main([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["right"] == 2
    again = next(entry for entry in CHOSEN if entry.id != json.loads(lines[0])["id"])
    assert len(upstream.requests) == asked + len(again.turns) + sum(map(bool, again.calls))


def only_pwd(entry):
    return replace(entry, functions=tuple(one for one in entry.functions if one["name"] == "pwd"))


def test_local_model_holds_conversations():
    source = LocalAnswers(tiny_model(), "generic_json", max_tokens=4)
    entries = [only_pwd(FILES), only_pwd(ENTRIES["multi_turn_base_1"])]
    found = {entry.id: answer for entry, answer in source.answers(entries)}
    assert all(not answer.error for answer in found.values())
    assert {key: len(answer.turns) for key, answer in found.items()} == {one.id: len(one.turns) for one in entries}


def test_calls_of_a_local_model_are_executed(monkeypatch):
    wheel = conversations._load()._replace(step_limit=1)
    monkeypatch.setattr(conversations, "_load", lambda: wheel)
    model = tiny_model()
    model.network.config.max_position_embeddings = 100_000
    source = LocalAnswers(
        model, "hermes", mask=True, choice="required", parallel=False, may_reason=False, max_tokens=90
    )
    [(entry, answer)] = source.answers([only_pwd(FILES)])
    assert [len(turn) for turn in answer.turns] == [2]
    assert classify_answer(entry, answer).outcome == "too_many_steps"


def test_conversation_that_exceeds_the_window_is_an_error():
    [(_, answer)] = LocalAnswers(tiny_model(), "generic_json").answers([FILES])
    assert "exceeds the window of 2048" in answer.error
