"""`toolwire learn mine` writes its results, continues a run, and reports wrong usage."""

import json
import signal
import subprocess
import sys

import pytest
from tiny_model import tiny_model

from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError
from toolwire.learn.toolformer import mining_run
from toolwire.learn.toolformer.mining_run import open_tools, read_tool_list


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model = tiny_model(3)
    model.network.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text(
        '{"text": "The report of today.", "date": "2025-07-04"}\n{"text": "It is Friday."}\n{"text": "No date."}\n'
    )
    return file


def command(folder, texts, run, *options):
    """The calendar needs no sampling, so that the test is fast."""
    fixed = "--tools calendar --positions 1 --call-probability 0 --threshold=-100 --shard-size 2".split()
    return ["learn", "mine", str(texts), "-m", str(folder), "-o", str(run), *fixed, *options]


def mine(*arguments):
    return main(command(*arguments))


def test_run_is_written_and_continued(folder, texts, tmp_path, capsys):
    run = tmp_path / "run"
    assert mine(folder, texts, run) == 0
    shown = capsys.readouterr().out
    assert "Calendar" in shown
    assert "3 of 3 texts have calls" in shown
    rows = [json.loads(line) for line in (run / "corpus.jsonl").read_text().splitlines()]
    assert "[Calendar()] → Today is Friday, July 4, 2025." in rows[0]["text"]
    before = (run / "candidates.jsonl").read_bytes()
    assert mine(folder, texts, run, "--resume", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["augmented"] == 3
    assert report["tools"][0]["kept"] == 3
    assert (run / "candidates.jsonl").read_bytes() == before


# Mines as the command does, and is killed while it holds the second shard, which begins with the third text.
KILLED = """
import os, signal, sys
from toolwire.cli.main import main
from toolwire.learn.toolformer import mining_run

def mine_texts(*arguments, first, mine=mining_run.mine_texts, **options):
    if first == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return mine(*arguments, first=first, **options)

mining_run.mine_texts = mine_texts
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_killed_run_continues_after_its_finished_shards(folder, texts, tmp_path, capsys, monkeypatch):
    assert mine(folder, texts, tmp_path / "whole") == 0
    run = tmp_path / "killed"
    arguments = command(folder, texts, run)
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (run / "candidates.jsonl").exists()
    begun = []

    def record(*given, first, mine_texts=mining_run.mine_texts, **options):
        begun.append(first)
        return mine_texts(*given, first=first, **options)

    monkeypatch.setattr(mining_run, "mine_texts", record)
    assert main([*arguments, "--resume"]) == 0
    assert begun == [2]
    capsys.readouterr()
    for name in ("candidates.jsonl", "corpus.jsonl", "report.json"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_results_are_equal_for_any_number_of_workers(folder, texts, tmp_path, capsys):
    """The calculator samples calls, so floats of the model decide every result."""
    sampled = "--tools calculator,calendar --samples 2 --temperature 1.5".split()
    runs = {}
    for workers in ("1", "2", "4"):
        run = tmp_path / workers
        assert mine(folder, texts, run, *sampled, "--workers", workers, "--results", str(run / "elsewhere")) == 0
        files = ("candidates.jsonl", "corpus.jsonl", "report.json", "manifest.json")
        runs[workers] = [(run / name).read_bytes() for name in files]
        assert len(list((run / "elsewhere").iterdir())) == 2
    assert runs["1"] == runs["2"] == runs["4"]
    assert b"Calculator(" in runs["1"][0]


def test_run_without_kept_calls_has_exit_code_1(folder, texts, tmp_path, capsys):
    assert mine(folder, texts, tmp_path / "run", "--threshold", "100") == 1
    assert "loss not reduced enough 3" in capsys.readouterr().out


def test_command_can_be_corrected_in_the_same_folder(folder, texts, tmp_path, capsys):
    run = tmp_path / "run"
    assert mine(folder, texts, run, "--samples", "0") == 2
    assert "samples must be positive, got 0" in capsys.readouterr().err
    assert mine(folder, texts, run, "--dtype", "nope") == 2
    assert "unknown type of weights 'nope'" in capsys.readouterr().err
    assert mine(folder, texts, run) == 0


def test_wrong_usage_is_explained(folder, texts, tmp_path, capsys):
    assert mine(folder, texts, tmp_path / "a", "--tools", "abacus") == 2
    assert "unknown tool 'abacus'" in capsys.readouterr().err
    assert mine(folder, tmp_path / "missing.txt", tmp_path / "b") == 2
    assert "missing.txt" in capsys.readouterr().err
    assert mine(folder, texts, tmp_path / "c") == 0
    assert mine(folder, texts, tmp_path / "c") == 2
    assert "already contains a run" in capsys.readouterr().err
    assert mine(folder, texts, tmp_path / "c", "--resume", "--seed", "1") == 2
    assert "seed was 0, now 1" in capsys.readouterr().err


def test_tools_are_read_from_names_and_files(tmp_path):
    (tmp_path / "p.txt").write_text("Boston lies in Massachusetts.\n")
    (tmp_path / "q.tsv").write_text("Who founded it?\tAda\n")
    entries = read_tool_list(f"calculator, convert,search={tmp_path / 'p.txt'},qa={tmp_path / 'q.tsv'}")
    assert [tool.name for tool in open_tools(entries)] == ["Calculator", "Convert", "Search", "QA"]
    listed = tmp_path / "tools.json"
    listed.write_text('[{"kind": "calculator", "threshold": 0.25}, {"kind": "translate", "file": "q.tsv"}]')
    calculator, translate = open_tools(read_tool_list(str(listed)))
    assert calculator.threshold == 0.25
    assert translate.tool("who founded it?") == "Ada"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("calculator=a.txt", "the tool calculator has no file"),
        ("", "there is no tool"),
        ("missing.json", "cannot read missing.json"),
    ],
)
def test_wrong_tool_lists_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        read_tool_list(text)


def test_broken_tool_files_are_named(tmp_path):
    listed = tmp_path / "tools.json"
    listed.write_text('[{"kind": "calculator", "treshold": 1}]')
    with pytest.raises(ConfigError, match="treshold"):
        read_tool_list(str(listed))
    columns = tmp_path / "q.tsv"
    columns.write_text("one column\n")
    with pytest.raises(ConfigError, match="entry 1 has no two columns"):
        open_tools(read_tool_list(f"qa={columns}"))
