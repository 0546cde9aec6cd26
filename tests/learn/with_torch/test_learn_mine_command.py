"""`toolwire learn mine` writes its results, continues a run, and reports wrong usage."""

import json

import pytest
from tiny_model import tiny_model

from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError
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


def mine(folder, texts, run, *options):
    """The calendar needs no sampling, so that the test is fast."""
    fixed = "--tools calendar --positions 1 --call-probability 0 --threshold=-100 --shard-size 2".split()
    return main(["learn", "mine", str(texts), "-m", str(folder), "-o", str(run), *fixed, *options])


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


def test_several_machines_share_a_store(folder, texts, tmp_path, capsys):
    store = str(tmp_path / "shared.db")
    for name in ("one", "two"):
        assert mine(folder, texts, tmp_path / name, "--store", store) == 0
    capsys.readouterr()
    one, two = ((tmp_path / name / "corpus.jsonl").read_bytes() for name in ("one", "two"))
    assert one == two


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
        ("search", "the tool search needs a file"),
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
