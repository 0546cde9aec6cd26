"""`toolwire learn export`: formats, selection, splits, reports, exit codes."""

import json

import pytest

from toolwire.cli.learn.command import _FORMATS, _READ_ONLY
from toolwire.cli.main import main
from toolwire.ir.parts import Reasoning, Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import formats, make_example, read_examples, write_examples

NUMBER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
NAMES = [f"tool_{number}" for number in range(10)]
TOOLS = [Tool(name, f"Do the work of {name}.", NUMBER) for name in NAMES]


def example(name, number, *, thoughts="", x=1):
    call = ToolCall("call_1", name, {"x": x})
    lead = (Reasoning(thoughts),) if thoughts else ()
    messages = [
        Message("user", (Text(f"Please use {name}, number {number}."),)),
        Message("assistant", (*lead, call)),
        Message("user", (call.result("done"),)),
        Message("assistant", (Text("It is done."),)),
    ]
    return make_example(messages, TOOLS)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path / "in.jsonl", [example(name, number) for name in NAMES for number in range(4)], "toolwire")
    return tmp_path


def export(capsys, *options, code=0):
    assert main(["learn", "export", *options]) == code
    return capsys.readouterr()


def report(capsys, *options, code=0):
    return json.loads(export(capsys, *options, "--json", code=code).out)


def test_formats_of_the_command_are_those_of_the_package():
    assert sorted(_FORMATS) == sorted(formats.names(writable=True))
    assert sorted((*_FORMATS, *_READ_ONLY)) == sorted(formats.names())


@pytest.mark.parametrize("name", _FORMATS)
def test_every_format_is_written_and_read_back(folder, capsys, name):
    found = report(capsys, "in.jsonl", "--format", name, "-o", "out.jsonl")
    assert found["written"] == {"out.jsonl": 40}
    assert found["examples"] == {"train": 40}
    assert found["tools"]["tool_3"] == {"train": 4}
    read = list(read_examples("out.jsonl", name))
    assert [one.called_names for one in read] == [(tool,) for tool in NAMES for _ in range(4)]


def test_manifest_records_settings_and_inputs(folder, capsys):
    export(capsys, "in.jsonl", "--format", "trl", "-o", "out.jsonl", "--seed", "7")
    manifest = json.loads((folder / "out.manifest.json").read_text())
    settings = manifest["settings"]
    assert (settings["format"], settings["seed"], settings["dedupe"], settings["split"]) == ("trl", 7, None, None)
    assert [len(value) for value in manifest["inputs"].values()] == [64]
    assert manifest["written"] == {"out.jsonl": 40}


def test_split_by_tool_keeps_held_out_tools_out_of_training(folder, capsys):
    found = report(capsys, "in.jsonl", "--format", "trl", "-o", "out.jsonl", "--split", "by-tool:0.2")
    held_out = set(found["held_out"])
    assert len(held_out) == 2
    assert found["written"] == {"out.train.jsonl": 32, "out.test.jsonl": 8}
    for one in read_examples("out.train.jsonl"):
        assert held_out.isdisjoint(one.called_names)
        assert held_out.isdisjoint(tool.name for tool in one.tools)
    for one in read_examples("out.test.jsonl"):
        assert held_out.issuperset(one.called_names)
        assert len(one.tools) == 10


def test_split_by_example_is_deterministic(folder, capsys):
    first = report(capsys, "in.jsonl", "--format", "trl", "-o", "a.jsonl", "--split", "by-example:0.3", "--seed", "3")
    second = report(capsys, "in.jsonl", "--format", "trl", "-o", "b.jsonl", "--split", "by-example:0.3", "--seed", "3")
    assert first["examples"] == second["examples"]
    assert (folder / "a.train.jsonl").read_bytes() == (folder / "b.train.jsonl").read_bytes()
    assert sum(first["examples"].values()) == 40
    assert 3 < first["examples"]["test"] < 22


def test_duplicates_are_removed(folder, capsys):
    both = report(capsys, "in.jsonl", "in.jsonl", "--format", "trl", "-o", "out.jsonl", "--dedupe")
    assert both["examples"] == {"train": 40}
    assert both["rejected"] == {"duplicate (exact)": 40}
    write_examples(folder / "near.jsonl", [example("tool_1", 1), example("tool_1", 1, x=2)], "toolwire")
    near = report(capsys, "near.jsonl", "--format", "trl", "-o", "out.jsonl", "--dedupe", "near")
    assert near["rejected"] == {"duplicate (near)": 1}


def test_balance_by_tool(folder, capsys):
    found = report(capsys, "in.jsonl", "--format", "trl", "-o", "out.jsonl", "--max-per-tool", "3")
    assert found["tools"] == {name: {"train": 3} for name in NAMES}
    assert found["rejected"] == {"its tools have 3 other examples": 10}
    write_examples(folder / "more.jsonl", [example("tool_1", 100)], "toolwire")
    found = report(capsys, "in.jsonl", "more.jsonl", "--format", "trl", "-o", "out.jsonl", "--min-per-tool", "5")
    assert list(found["tools"]) == ["tool_1"]


def test_check_rejects_with_the_rule(folder, capsys):
    write_examples(
        folder / "bad.jsonl", [example("tool_1", 1, x="one"), example("other", 1), example("tool_2", 1)], "toolwire"
    )
    found = report(capsys, "bad.jsonl", "--format", "trl", "-o", "out.jsonl", "--check")
    assert found["rejected"] == {"check: invalid arguments": 1, "check: tool not offered": 1}
    assert found["details"][0]["source"] == "bad.jsonl:1"
    assert "/messages/1/parts/0/arguments/x" in found["details"][0]["detail"]


def test_losses_are_reported_by_concept(folder, capsys):
    write_examples(
        folder / "deep.jsonl", [example("tool_1", number, thoughts="Hm.") for number in range(3)], "toolwire"
    )
    out = export(capsys, "deep.jsonl", "--format", "openai", "-o", "out.jsonl").out
    (line,) = [line for line in out.splitlines() if "reasoning dropped" in line]
    assert line.split()[:4] == ["warning", "reasoning", "dropped", "3"]
    assert "deep.jsonl:1 /messages/1/parts/0" in line


def test_strict_writes_nothing_with_losses(folder, capsys):
    write_examples(folder / "deep.jsonl", [example("tool_1", 1, thoughts="Hm.")], "toolwire")
    printed = export(capsys, "deep.jsonl", "--format", "openai", "-o", "out.jsonl", "--strict", code=1)
    assert "nothing was written" in printed.err
    assert not (folder / "out.jsonl").exists()
    export(capsys, "deep.jsonl", "--format", "trl", "-o", "out.jsonl", "--strict")
    assert (folder / "out.jsonl").exists()


def test_dry_run_writes_nothing(folder, capsys):
    out = export(capsys, "in.jsonl", "--format", "llamafactory", "--dry-run").out
    assert "call id dropped" in out
    assert "dataset_info.json" in out
    assert [file.name for file in folder.iterdir()] == ["in.jsonl"]


def test_invalid_rows_are_counted(folder, capsys):
    with (folder / "in.jsonl").open("a") as file:
        file.write("not json\n")
    found = report(capsys, "in.jsonl", "--format", "trl", "-o", "out.jsonl")
    assert found["rejected"] == {"invalid row": 1}
    assert found["details"][0]["source"] == "in.jsonl:41"


def test_example_that_the_format_cannot_express_is_counted(folder, capsys):
    two_questions = make_example([*example("tool_1", 1).messages, *example("tool_2", 1).messages], TOOLS)
    write_examples(folder / "long.jsonl", [two_questions, example("tool_1", 1)], "toolwire")
    found = report(capsys, "long.jsonl", "--format", "xlam", "-o", "out.jsonl")
    assert found["rejected"] == {"not expressible in xlam": 1}
    assert found["written"] == {"out.jsonl": 1}


@pytest.mark.parametrize("name", sorted(set(_FORMATS) - {"xlam"}))
def test_recorded_run_in_every_format(tmp_path, capsys, name):
    from toolwire import Agent
    from toolwire.net import TraceObserver
    from toolwire.testing import ScriptedModel, says

    def add(a: int, b: float = 0.5) -> float:
        """Add two numbers."""
        return a + b

    calls = ToolCall("c1", "add", {"a": 1, "b": 2.5}), ToolCall("c2", "add", {"a": 3})
    script = [says(*calls), says("3.5 and 3.5.")]
    Agent(ScriptedModel(script), [add], observers=[TraceObserver(folder=tmp_path / "traces")]).run_sync(
        "1 + 2.5, 3 + 0.5?"
    )
    found = report(capsys, str(tmp_path / "traces"), "--format", name, "-o", str(tmp_path / "out.jsonl"), "--check")
    assert found["rejected"] == {}
    assert found["tools"] == {"add": {"train": 1}}
    (read,) = read_examples(tmp_path / "out.jsonl", name)
    assert [repr(call.arguments) for call in read.calls] == ["{'a': 1, 'b': 2.5}", "{'a': 3}"]
    assert [result.text for result in read.results] == ["3.5", "3.5"]


def test_no_example_is_a_failure(folder, capsys):
    (folder / "empty.jsonl").write_text("nothing\n")
    printed = export(capsys, "empty.jsonl", "--format", "trl", "-o", "out.jsonl", code=1)
    assert "no example can be exported" in printed.err
    assert not (folder / "out.jsonl").exists()


def test_specifications_of_an_index(folder, capsys):
    pytest.importorskip("numpy")
    from toolwire.retrieve import ToolIndex

    index = ToolIndex()
    index.add(TOOLS)
    index.save(folder / "tools.index")
    options = ["in.jsonl", "--format", "trl", "-o", "out.jsonl", "--specs", "tools.index", "--k", "2"]
    found = report(capsys, *options, "--gold", "first", "--split", "by-tool:0.2")
    assert 0 <= found["gold_found"] <= 1
    held_out = set(found["held_out"])
    for one in read_examples("out.train.jsonl"):
        names = [tool.name for tool in one.tools]
        assert names[0] in one.called_names
        assert len(names) == 2
        assert held_out.isdisjoint(names)
    assert "all called tools among the specifications" in export(capsys, *options).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["in.jsonl", "--format", "trl"], "there is no file to write"),
        (["in.jsonl", "--format", "trl", "-o", "in.jsonl"], "also an input"),
        (["absent.jsonl", "--format", "trl", "-o", "out.jsonl"], "does not exist"),
        (["in.jsonl", "--format", "trl", "-o", "absent/out.jsonl"], "cannot write"),
    ],
)
def test_wrong_usage_names_the_problem(folder, capsys, options, message):
    assert message in export(capsys, *options, code=2).err


@pytest.mark.parametrize(
    "options",
    [
        ["in.jsonl", "--format", "toolace", "-o", "x"],
        ["in.jsonl", "--format", "trl", "-o", "x", "--split", "by-tool:1.5"],
        ["in.jsonl", "--format", "trl", "-o", "x", "--split", "by-tool:0"],
        ["in.jsonl", "--format", "trl", "-o", "x", "--max-per-tool", "0"],
        ["in.jsonl", "--format", "trl", "-o", "x", "--seed", "-1"],
    ],
)
def test_wrong_option_is_refused(folder, options):
    with pytest.raises(SystemExit) as caught:
        main(["learn", "export", *options])
    assert caught.value.code == 2


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        main(["learn", "export", "--help"])
    out = capsys.readouterr().out
    assert "toolwire learn export traces/" in out
    assert "exit codes" in out
