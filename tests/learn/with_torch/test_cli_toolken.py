"""`toolwire learn toolken` trains, adds, measures and uses a head from the command line."""

import json
import shutil

import pytest
from tiny_model import tiny_model

from toolwire.cli.main import main

TRAINING = ("--epochs", "40", "--rate", "0.1")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = tiny_model(1)
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return str(folder)


def write_pairs(file, *tools):
    rows = [{"query": f"{verb} {tool}", "tool": tool} for verb in ("buy", "eat", "cut", "peel") for tool in tools]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_head_is_trained_extended_and_measured(tmp_path, model_folder, capsys):
    pairs = write_pairs(tmp_path / "pairs.jsonl", "fig", "kiwi")
    first, larger = str(tmp_path / "first"), str(tmp_path / "larger")
    assert main(["learn", "toolken", pairs, "-m", model_folder, "-o", first, "--dev", pairs, "--json", *TRAINING]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["accuracy"] == 1.0 and document["parameters"] == 2 * 32
    assert {file.name for file in (tmp_path / "first").iterdir()} >= {
        "head",
        "loss.svg",
        "result.json",
        "manifest.json",
    }
    more = write_pairs(tmp_path / "more.jsonl", "fig", "kiwi", "plum")
    assert main(["learn", "toolken", more, "-m", model_folder, "-o", larger, "--add", first, *TRAINING]) == 0
    assert "right tool at" in capsys.readouterr().out
    measure = ["learn", "toolken", more, "-m", model_folder, "--head", larger]
    assert main([*measure, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["tools"] == 3 and set(measured["by_tool"]) == {"fig", "kiwi", "plum"}
    assert main([*measure, "--bias", "-1000", "--fail-under", "100.5"]) == 1
    assert "bias -1000.00: precision 100.0 %, recall 0.0 %" in capsys.readouterr().out


def test_run_continues_only_with_resume(tmp_path, model_folder, capsys):
    pairs = write_pairs(tmp_path / "pairs.jsonl", "fig", "kiwi")
    command = ["learn", "toolken", pairs, "-m", model_folder, "-o", str(tmp_path / "run"), "--epochs", "2", "--json"]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert main(command) == 2
    assert "already contains a run" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().out == first


def test_run_does_not_continue_with_other_weights(tmp_path, model_folder, capsys):
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    pairs = write_pairs(tmp_path / "pairs.jsonl", "fig", "kiwi")
    command = ["learn", "toolken", pairs, "-m", str(folder), "-o", str(tmp_path / "run"), "--epochs", "2"]
    assert main(command) == 0
    tiny_model(2).network.save_pretrained(folder)
    assert main([*command, "--resume"]) == 2
    assert "a run with other inputs" in capsys.readouterr().err


def test_prompt_is_continued_with_real_calls(tmp_path, model_folder, monkeypatch, capsys):
    pairs = write_pairs(tmp_path / "pairs.jsonl", "fig", "kiwi")
    tools = tmp_path / "tools.py"
    tools.write_text(
        'def fig() -> str:\n    """Buy a fig."""\n    return "one fig"\n\n\n'
        'def kiwi() -> str:\n    """Buy a kiwi."""\n    open("bought", "a").close()\n    return "one kiwi"\n'
    )
    monkeypatch.chdir(tmp_path)
    run = str(tmp_path / "run")
    train = ["learn", "toolken", pairs, "-m", model_folder, "-o", run, "--dev", pairs, "--tools", str(tools), *TRAINING]
    assert main(train) == 0
    capsys.readouterr()
    use = ["learn", "toolken", "-m", model_folder, "--head", run, "--tools", str(tools), "--max-tokens", "12"]
    assert main([*use, "--prompt", "Request: eat kiwi\nTool:", "--bias", "30", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert not output["calls"] and "approv" in output["failed"][0]["error"]
    assert not (tmp_path / "bought").exists()  # a plain function may have side effects
    use.append("--yes")
    assert main([*use, "--prompt", "Request: eat kiwi\nTool:", "--bias", "30", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["text"].startswith(" one kiwi") and output["calls"][0]["tool"] == "kiwi"
    assert main([*use, "--prompt", "Request: eat kiwi\nTool:", "--bias", "30"]) == 0
    captured = capsys.readouterr()
    assert "Tool: one kiwi" in captured.out and "one kiwi" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to train"),
        (["pairs.jsonl"], "no folder for the run"),
        (["--head", "run"], "either PAIRS to measure or --prompt"),
        (["missing.jsonl", "-o", "run"], "cannot read missing.jsonl"),
    ],
)
def test_wrong_use_is_an_error_of_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["learn", "toolken", *arguments, "-m", "model"]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "option", ["--epochs=0", "--rate=x", "--bias=nan", "--seed=-1", "--seed=1234567890123456789", "--negatives=0"]
)
def test_wrong_number_is_refused(option, capsys):
    with pytest.raises(SystemExit):
        main(["learn", "toolken", "pairs.jsonl", "-m", "model", "-o", "run", option])
    assert option.split("=")[0] in capsys.readouterr().err
