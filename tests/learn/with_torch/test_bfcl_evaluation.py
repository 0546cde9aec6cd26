"""The evaluation of a model on BFCL: kinds of errors, scores, runs that continue, the network and local models."""

import json

import pytest
from tiny_model import tiny_model

from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.response import Fault, Response, Stop, UpstreamError
from toolwire.learn import BFCLAnswer, BFCLReport, ClientAnswers, LocalAnswers, evaluate_bfcl, read_bfcl, select_entries
from toolwire.learn.bfcl.entries import CALL_CATEGORIES, offered_tools
from toolwire.learn.bfcl.evaluation import wilson_interval
from toolwire.learn.bfcl.judgement import classify_answer
from toolwire.learn.run_folder import RunFolder
from toolwire.learn.training import save_model
from toolwire.net import ModelClient
from toolwire.net.executors import ProcessPool
from toolwire.run.executor import InProcess
from toolwire.testing import Upstream
from toolwire.testing.servers import start_upstream, stop_upstream

ENTRIES = {entry.id: entry for entry in read_bfcl((*CALL_CATEGORIES, "irrelevance", "live_relevance"))}
FACTORIAL = ENTRIES["simple_python_1"]
UNRELATED = ENTRIES["irrelevance_0"]
RELATED = ENTRIES["live_relevance_0-0-0"]


def call(name="math.factorial", state="complete", **arguments):
    return ToolCall("c", name, arguments, state=state)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (BFCLAnswer((call(number=5),)), "right"),
        (BFCLAnswer(text="120"), "no_call"),
        (BFCLAnswer(text="<tool_call>{", unparsable=True), "unparsable"),
        (BFCLAnswer((ToolCall("c", "math.factorial", None, "{", "invalid"),)), "unparsable"),
        (BFCLAnswer((call(number="5"),)), "invalid"),
        (BFCLAnswer((call("factorial", number=5),)), "invalid"),
        (BFCLAnswer((call(number=5), call(number=5))), "wrong_function"),
        (BFCLAnswer((call(number=6),)), "wrong_arguments"),
        (BFCLAnswer((call(number=5),), finished=False), "unfinished"),
        (BFCLAnswer((call(number=5),), error="overloaded"), "upstream_error"),
    ],
)
def test_answer_is_classified(answer, outcome):
    assert classify_answer(FACTORIAL, answer).outcome == outcome


def test_wrong_function_is_not_wrong_arguments():
    entry = next(one for one in ENTRIES.values() if one.category == "multiple")
    other = next(tool for tool in entry.tools if tool.name != entry.all_calls[0].name)
    examples = {"string": "a", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    properties = other.input_schema["properties"]
    arguments = {name: examples[properties[name]["type"]] for name in other.input_schema["required"]}
    assert classify_answer(entry, BFCLAnswer((ToolCall("c", other.name, arguments),))).outcome == "wrong_function"


def test_irrelevance_is_judged_by_the_presence_of_a_call():
    made = BFCLAnswer((call("determine_body_mass_index", weight=1.0, height=1.0),))
    assert classify_answer(UNRELATED, BFCLAnswer(text="No tool fits.")).outcome == "right"
    assert classify_answer(UNRELATED, made).outcome == "unexpected_call"
    assert classify_answer(UNRELATED, BFCLAnswer(error="x")).outcome == "upstream_error"
    assert classify_answer(RELATED, made).outcome == "right"
    assert classify_answer(RELATED, BFCLAnswer(text="Sorry.")).outcome == "no_call"


@pytest.mark.parametrize(("category", "language"), [("simple_java", "Java"), ("simple_javascript", "JavaScript")])
def test_arguments_of_other_languages_are_literals_as_text(category, language):
    entry = next(one for one in ENTRIES.values() if one.category == category)
    [tool] = offered_tools(entry)
    assert {schema["type"] for schema in tool.input_schema["properties"].values()} == {"string"}
    assert f"{language} literal" in json.dumps(tool.input_schema)


def test_parameter_of_any_type_is_offered_as_the_checker_expects_it():
    for entry in ENTRIES.values():
        for tool in offered_tools(entry):
            assert all("type" in schema for schema in tool.input_schema["properties"].values())


def test_interval_contains_the_share_and_stays_within_bounds():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    for right, count in ((0, 10), (10, 10), (3, 7), (500, 1000)):
        low, high = wilson_interval(right, count)
        assert 0 <= low <= right / count <= high <= 1
    low, high = wilson_interval(50, 100)
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)  # as in tables of Wilson's method


def test_sample_is_reproducible_and_depends_on_the_seed():
    first = [entry.id for entry in select_entries(["multiple", "parallel"], limit=20, seed=1)]
    assert first == [entry.id for entry in select_entries(["multiple", "parallel"], limit=20, seed=1)]
    assert first != [entry.id for entry in select_entries(["multiple", "parallel"], limit=20, seed=2)]
    assert len(first) == 20
    assert len(select_entries(["live_parallel"], limit=10_000)) == 16


def test_wrong_selections_are_refused():
    with pytest.raises(ConfigError, match="unknown category of the leaderboard 'memory'"):
        select_entries(["memory"])
    with pytest.raises(ConfigError, match="must be positive, got 0"):
        select_entries(["multiple"], limit=0)


class FixedAnswers:
    """Give the expected calls, except that the entries `fails` have an upstream error, until the answer number `stop`."""

    def __init__(self, fails=(), stop=None):
        self.fails = fails
        self.stop = stop
        self.asked = []

    settings = {"model": "fixed"}

    def parts(self, entries):
        return [entries[:1], entries[1:4], entries[4:]]

    def answers(self, entries):
        for number, entry in enumerate(entries):
            if number == self.stop:
                raise KeyboardInterrupt
            self.asked.append(entry.id)
            failed = entry.id in self.fails
            yield entry, BFCLAnswer(error="overloaded") if failed else BFCLAnswer(tuple(entry.all_calls))


def test_interrupted_run_continues_without_asking_again(tmp_path):
    entries = select_entries(["simple_python"], limit=10)
    run = RunFolder.create(tmp_path / "run", {"a": 1})
    failing = {entries[1].id}
    with pytest.raises(KeyboardInterrupt):
        evaluate_bfcl(FixedAnswers(failing, stop=6), entries, run=run)
    progress = []
    source = FixedAnswers()
    report = evaluate_bfcl(source, entries, run=run, on_answer=lambda *numbers: progress.append(numbers))
    assert source.asked == [entries[1].id, *(entry.id for entry in entries[6:])]
    assert (report.total.entries, report.total.right) == (10, 10)
    assert progress[0] == (5, 10)
    assert progress[-1] == (10, 10)
    assert run.read_json("report.json")["total"]["accuracy"] == 1.0
    assert [row["id"] for row in run.rows("answers.jsonl")] == [entry.id for entry in entries]


@pytest.mark.parametrize("executor", [InProcess(), ProcessPool(2)])
def test_parts_of_workers_give_the_same_run(tmp_path, executor):
    entries = select_entries(["simple_python"], limit=10)
    files = []
    for name, options in (("here", {}), ("workers", {"executor": executor, "reopen": FixedAnswers})):
        run = RunFolder.create(tmp_path / name, {"a": 1})
        progress = []
        evaluate_bfcl(FixedAnswers(), entries, run=run, on_answer=lambda *at: progress.append(at), **options)
        assert (progress[0], progress[-1]) == ((0, 10), (10, 10))
        files.append([(run.path / name).read_bytes() for name in ("answers.jsonl", "report.json")])
    assert files[0] == files[1]
    with pytest.raises(ConfigError, match="needs `reopen`"):
        evaluate_bfcl(FixedAnswers(), entries, executor=executor)


def test_report_counts_by_category():
    rows = [
        classify_answer(FACTORIAL, BFCLAnswer((call(number=5),))),
        classify_answer(FACTORIAL, BFCLAnswer(text="no")),
        classify_answer(UNRELATED, BFCLAnswer(text="no")),
    ]
    document = BFCLReport.count(rows, {"model": "m"}).document()
    assert [row["category"] for row in document["categories"]] == ["simple_python", "irrelevance"]
    assert document["categories"][0]["outcomes"] == {"right": 1, "no_call": 1}
    assert document["categories"][0]["valid"] == 1
    assert document["total"]["accuracy"] == 0.6667


@pytest.fixture
def upstream():
    """A scripted provider; the script answers every request with the expected calls of its entry."""
    server = Upstream(*[answer_request] * 200)
    start_upstream(server)
    yield server
    stop_upstream(server)


BY_PROMPT = {entry.turns[0][-1].text: entry for entry in ENTRIES.values()}


def answer_request(request):
    """Answer as a model of the wire: with the names that the request declares."""
    entry = BY_PROMPT[request.messages[-1].text]
    if entry.category == "irrelevance":
        return Response(parts=(Text("No tool fits."),), stop=Stop("stop"))
    names = {tool.description: tool.name for tool in request.tools}
    described = {tool.name: tool.description for tool in offered_tools(entry)}
    calls = [ToolCall(one.id, names[described[one.name]], one.arguments) for one in entry.all_calls]
    return Response(parts=tuple(calls), stop=Stop("tool_calls"))


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "gemini"])
def test_model_over_a_wire_has_its_true_score(upstream, wire):
    vendor = {"openai_chat": "openai", "anthropic": "anthropic", "gemini": "gemini"}[wire]
    entries = [FACTORIAL, ENTRIES["parallel_0"], ENTRIES["multiple_3"], UNRELATED]
    with ModelClient(f"{vendor}/any", base_url=upstream.url, key="k", wire=wire) as client:
        source = ClientAnswers(client, concurrency=2)
        report = evaluate_bfcl(source, entries)
    assert report.total.outcomes == {"right": 4}
    assert report.settings["wire"] == wire
    declared = {tool.name for one in upstream.requests for tool in one.request.tools}
    assert ("math.factorial" in declared) == (wire == "gemini")


def test_failed_requests_are_counted_and_a_wrong_key_ends_the_run():
    faults = [Fault("invalid_request", "no", 400), Fault("authentication", "wrong key", 401)]
    server = Upstream(*faults)
    start_upstream(server)
    try:
        with ModelClient("openai/any", base_url=server.url, key="k", retries=0) as client:
            source = ClientAnswers(client, concurrency=1)
            found = source.answers([FACTORIAL, FACTORIAL])
            assert "no" in next(found)[1].error
            with pytest.raises(UpstreamError, match="wrong key"):
                next(found)
    finally:
        stop_upstream(server)


def test_concurrency_must_be_positive():
    with ModelClient("openai/any", key="k") as client, pytest.raises(ConfigError, match="from 1 to 1000, got 0"):
        ClientAnswers(client, concurrency=0)


def test_answer_at_the_token_limit_is_unfinished():
    server = Upstream(Response(parts=(Text("Let me"),), stop=Stop("length")))
    start_upstream(server)
    try:
        with ModelClient("openai/any", base_url=server.url, key="k") as client:
            [(_, answer)] = ClientAnswers(client).answers([FACTORIAL])
    finally:
        stop_upstream(server)
    assert not answer.finished


def test_local_model_answers_in_a_text_format():
    entries = [FACTORIAL, ENTRIES["simple_python_0"], UNRELATED]
    source = LocalAnswers(tiny_model(), "generic_json", max_tokens=12, batch_tokens=3_000)
    answers = {entry.id: answer for entry, answer in source.answers(entries)}
    assert answers.keys() == {entry.id for entry in entries}
    assert all(answer.text for answer in answers.values())
    assert source.settings["format"] == "generic_json"


def test_masked_calls_of_a_random_model_are_valid():
    entries = [FACTORIAL, ENTRIES["simple_python_0"]]
    source = LocalAnswers(
        tiny_model(), "hermes", mask=True, choice="required", parallel=False, may_reason=False, max_tokens=120
    )
    for entry, answer in source.answers(entries):
        row = classify_answer(entry, answer)
        assert (row.finished, row.valid) == (True, True), answer
        assert len(answer.calls) == 1


def test_prompt_longer_than_the_window_is_an_error_of_its_entry():
    source = LocalAnswers(tiny_model(), "generic_json", max_tokens=2_048)
    [(_, answer)] = source.answers([FACTORIAL])
    assert "exceeds the window of 2048" in answer.error


def test_command_reports_a_server(upstream, capsys, tmp_path):
    plot = tmp_path / "score.svg"
    arguments = ["learn", "eval", "bfcl", "-m", "openai/any", "--base-url", upstream.url, "--wire", "openai_chat"]
    arguments += ["--categories", "simple_python,irrelevance", "--limit", "6", "-o", str(tmp_path / "run")]
    assert main([*arguments, "--plot", str(plot)]) == 0
    output = capsys.readouterr()
    assert "simple_python" in output.out
    assert "100.0" in output.out
    assert "<svg" in plot.read_text()
    asked = len(upstream.requests)
    assert main([*arguments, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["right"] == 6
    assert len(upstream.requests) == asked
    assert main(arguments) == 2
    assert "already contains a run" in capsys.readouterr().err


def test_command_reports_a_local_model(capsys, tmp_path):
    save_model(tiny_model(), tmp_path / "tiny")
    arguments = ["learn", "eval", "bfcl", "-m", str(tmp_path / "tiny"), "--format", "generic_json", "--limit", "2"]
    assert main([*arguments, "--max-tokens", "4", "--categories", "simple_python", "--json", "--fail-under", "1"]) == 1
    assert json.loads(capsys.readouterr().out)["total"]["entries"] == 2


def test_command_gives_equal_files_for_any_number_of_workers(capsys, tmp_path):
    save_model(tiny_model(), tmp_path / "tiny")
    arguments = ["learn", "eval", "bfcl", "-m", str(tmp_path / "tiny"), "--format", "generic_json", "--limit", "40"]
    files = []
    for workers in ("1", "2", "4"):
        run = tmp_path / workers
        assert main([*arguments, "--max-tokens", "8", "-o", str(run), "--workers", workers]) == 0
        files.append([(run / name).read_bytes() for name in ("answers.jsonl", "report.json", "manifest.json")])
    assert files[0] == files[1] == files[2]
    assert files[0][0].count(b"\n") == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "openai/any", "--mask"], "--mask needs a model that runs here"),
        (["-m", "openai/any", "--resume"], "--resume needs the folder of a run"),
        (["-m", "openai/any", "--categories", "simple"], "unknown category of the leaderboard 'simple'"),
        (["-m", "openai/any", "--plot", "score.png"], "cannot write a plot"),
        (["-m", "openai/any", "--categories", ","], "--categories names no category"),
        (
            ["-m", "openai/any", "--base-url", "http://127.0.0.1:9", "--key-env", "NO_SUCH_KEY"],
            "NO_SUCH_KEY is not set",
        ),
    ],
)
def test_wrong_usage_names_the_problem(arguments, message, capsys):
    assert main(["learn", "eval", "bfcl", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("number", ["x", "0", "-1", "1e3"])
def test_count_must_be_positive(number, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["learn", "eval", "bfcl", "-m", "openai/any", f"--limit={number}"])
    assert f"--limit: must be a whole number of at least 1, got '{number}'" in capsys.readouterr().err


def test_unreachable_server_is_no_score(capsys, tmp_path):
    arguments = ["learn", "eval", "bfcl", "-m", "any", "--base-url", "http://127.0.0.1:1/v1", "--wire", "openai_chat"]
    arguments += ["--categories", "simple_python", "--limit", "1", "-o", str(tmp_path / "run"), "--json"]
    assert main(arguments) == 1
    output = capsys.readouterr()
    assert "1 of 1 questions could not be asked; --resume asks them again: " in output.err
    reason = json.loads(output.out)["first_error"]
    assert reason
    assert reason in output.err


def test_local_model_has_no_wire(capsys, tmp_path):
    assert main(["learn", "eval", "bfcl", "-m", str(tmp_path), "--wire", "ollama", "--limit", "1"]) == 2
    assert "--wire has no effect on a local model" in capsys.readouterr().err
