"""`toolwire learn submit`: the cost, confirmation, exit codes, JSON, continuation."""

import json
import os
import signal
import subprocess
import sys

import pytest
from test_learn_export import example

from toolwire.cli.main import main
from toolwire.learn import write_examples
from tuning_services import KEY, OpenAIMock, TogetherMock, serve
from waiting import SAFETY, wait_until


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    write_examples(tmp_path / "in.jsonl", [example("tool_1", number) for number in range(12)], "toolwire")
    return tmp_path


@pytest.fixture
def mock(folder, monkeypatch):
    service = OpenAIMock()
    service.states = ("validating_files", "succeeded")  # it is done at the first look, so that no test waits
    with serve(service) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        yield service


def submit(capsys, *options, code=0):
    key = KEY_OPTION if "OPENAI_BASE_URL" in os.environ else ()
    assert main(["learn", "submit", *key, *options]) == code
    return capsys.readouterr()


KEY_OPTION = ("--key-env", "OPENAI_API_KEY")  # to the mock at another address
NEW = ("in.jsonl", "--to", "openai", "-m", "gpt-4.1-mini", "-o", "run", "--poll", "1")


def test_job_is_submitted_and_reported(mock, folder, capsys):
    mock.states = ("validating_files", "running", "succeeded")
    shown = submit(capsys, *NEW, "--yes")
    assert "12 examples" in shown.err
    assert "USD (5 USD per million tokens, https://developers.openai.com/api/docs/pricing, read 2025-10)" in shown.err
    assert "none after 2027-01-06" in shown.err
    assert "running Step 3/3" in shown.err
    assert "model ft:gpt-4.1-mini:org::1" in shown.out
    assert "wrote run: result.json, metrics.csv" in shown.out
    assert (folder / "run/metrics.csv").read_text() == "step,train_loss\n1,0.5\n"
    again = json.loads(submit(capsys, "-o", "run", "--resume", "--json").out)
    assert again["job"]["model"] == "ft:gpt-4.1-mini:org::1"
    assert len(mock.jobs) == 1


def test_without_a_terminal_yes_is_needed(mock, capsys):
    shown = submit(capsys, *NEW, code=1)
    assert "give --yes" in shown.err and "the cost was not confirmed" in shown.err
    assert mock.calls == []
    submit(capsys, "-o", "run", "--resume", "--yes")


def test_unknown_cost_needs_yes_or_a_price(mock, capsys):
    new = [*NEW[:3], "-m", "gpt-9", *NEW[5:]]
    shown = submit(capsys, *new, code=1)
    assert (
        "unknown (no price of gpt-9 is known; https://developers.openai.com/api/docs/pricing lists prices)" in shown.err
    )
    assert "the cost is unknown: give --yes, or --price" in shown.err
    assert mock.calls == []
    shown = submit(capsys, *new[:-3], "priced", "--price", "2", "--max-cost", "0.0001", code=1)
    assert "the limit is 0.00 USD" in shown.err


def test_refused_file_is_exit_code_1_with_the_reason(mock, capsys):
    mock.failure = {"code": "invalid_training_file", "message": "Line 3 has no messages", "param": "training_file"}
    shown = submit(capsys, *NEW, "--yes", "--json", code=1)
    assert json.loads(shown.out) == {
        "error": "openai refused the training data: Line 3 has no messages (invalid_training_file)",
        "kind": "RefusedTrainingFile",
    }


def test_job_without_waiting_is_cancelled_later(mock, capsys):
    mock.is_frozen = True
    shown = submit(capsys, *NEW, "--yes", "--no-wait")
    assert "toolwire learn submit -o run --resume" in shown.err
    shown = submit(capsys, "-o", "run", "--cancel")
    assert "job ftjob-0: cancelled" in shown.out
    shown = submit(capsys, "-o", "run", "--resume", code=1)
    assert "cancelled" in shown.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "run"], "FILE is missing"),
        (["in.jsonl", "-o", "run"], "--to is missing"),
        (["in.jsonl", "--to", "openai", "-o", "run"], "-m is missing"),
        (["-o", "run", "--resume"], "contains no run"),
        (["in.jsonl", "-o", "run", "--resume"], "continues with its own file"),
        (["-o", "run", "--resume", "--max-cost", "5"], "--max-cost cannot change"),
        (["-o", "run", "--resume", "--epochs", "3"], "--epochs cannot change"),
        (["-o", "run", "--cancel", "--base-url", "https://other"], "--base-url cannot change"),
        (["-o", "run", "--resume", "--cancel"], "both --resume and --cancel"),
        ([*NEW[:3], "-m", "x", "-o", "run", "--base-url", "https://example.com/v1"], "--key-env"),
    ],
)
def test_wrong_usage_is_exit_code_2(folder, capsys, options, message):
    assert message in submit(capsys, *options, code=2).err


def test_malformed_command_of_a_key_is_wrong_usage(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["learn", "submit", *NEW, "--key-command", "print 'key"])
    assert ended.value.code == 2 and "No closing quotation" in capsys.readouterr().err


def test_folder_with_a_run_is_not_used_for_another(mock, capsys):
    submit(capsys, *NEW, "--yes")
    assert "already contains a run" in submit(capsys, *NEW, "--yes", code=2).err


def test_refused_creation_is_exit_code_2_and_continues(mock, capsys):
    mock.fail(r"POST .*/jobs", 400, {"error": {"message": "unknown model"}})
    assert "unknown model" in submit(capsys, *NEW, "--yes", code=2).err
    submit(capsys, "-o", "run", "--resume")
    assert len(mock.jobs) == 1


def test_key_of_another_server_is_named(folder, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    service = TogetherMock()
    with serve(service) as url:
        new = ["in.jsonl", "--to", "together", "-m", "q", "-o", "run", "--base-url", f"{url}/v1", "--key-env", "MY_KEY"]
        shown = submit(capsys, *new, "--yes", "--no-wait")
    assert "1.25 USD (calculated by together)" in shown.err
    assert len(service.jobs) == 1
    assert all(KEY not in path.read_text() for path in (folder / "run").iterdir())


def start_process(*options):
    return subprocess.Popen(
        [sys.executable, "-m", "toolwire", "learn", "submit", *KEY_OPTION, *options],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_process_that_ends_while_it_watches_leaves_the_job(mock, capsys, number):
    mock.is_frozen = True
    process = start_process(*NEW, "--yes")
    wait_until(lambda: any(name.endswith("/events") for name in mock.names()))
    process.send_signal(number)
    _, shown = process.communicate(timeout=SAFETY)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "toolwire learn submit -o run --resume" in shown and "--cancel" in shown
    assert not any(name.endswith("/cancel") for name in mock.names())
    mock.is_frozen = False
    submit(capsys, "-o", "run", "--resume")
    assert len(mock.jobs) == 1
