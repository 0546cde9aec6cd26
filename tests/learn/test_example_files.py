"""Reading and writing files of training examples."""

import json

import pytest

from toolwire.ir.errors import ConfigError, EncodeError, ProtocolError
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import example_files, make_example, read_examples, write_examples

CALL = ToolCall("call_1", "add", {"a": 1, "b": 2.5})
EXAMPLE = make_example(
    [
        Message("user", (Text("1 + 2.5?"),)),
        Message("assistant", (CALL,)),
        Message("user", (CALL.result("3.5"),)),
        Message("assistant", (Text("3.5"),)),
    ],
    [Tool("add", "Add.", {"type": "object", "properties": {"a": {"type": "number"}}})],
    parallel=False,
    weights=(1, 0),
    source="test",
)


@pytest.mark.parametrize("name", ["toolwire", "openai"])
def test_file_is_read_back(tmp_path, name):
    file = tmp_path / "train.jsonl"
    assert write_examples(file, [EXAMPLE, EXAMPLE], name) == 2
    first, second = read_examples(file)
    assert first.messages == EXAMPLE.messages
    assert (first.tools, first.parallel, first.weights) == (EXAMPLE.tools, False, (1, 0))
    assert second.messages == first.messages
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]


def test_array_is_read_like_lines(tmp_path):
    lines, array = tmp_path / "a.jsonl", tmp_path / "a.json"
    write_examples(lines, [EXAMPLE, EXAMPLE], "openai")
    array.write_text("\n [" + ",\n".join(lines.read_text().splitlines()) + "]\n")
    assert [one.messages for one in read_examples(array)] == [one.messages for one in read_examples(lines)]


@pytest.mark.parametrize(
    ("line", "pointer"),
    [
        ("{", ""),
        ("[]", ""),
        ("{}", ""),
        ('{"messages": 3}', ""),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "/messages/0/role"),
        ('{"messages": [{"role": "assistant", "content": "x", "weight": 2}]}', "/messages/0/weight"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}', "/tools/0/function"),
    ],
)
def test_error_names_file_line_and_pointer(tmp_path, line, pointer):
    file = tmp_path / "train.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "x"}]}\n\n' + line + "\n")
    rows = read_examples(file)
    assert next(rows).user_text == "x"
    with pytest.raises(ProtocolError) as caught:
        next(rows)
    assert caught.value.message.startswith("train.jsonl:3: ")
    assert caught.value.hint
    if pointer:
        assert caught.value.pointer == pointer


def test_rejected_rows_are_reported_and_the_others_read(tmp_path):
    file = tmp_path / "train.jsonl"
    good = json.dumps({"messages": [{"role": "user", "content": "x"}]})
    file.write_text(f"{good}\nnot json\n{good}\n")
    rejected = []
    assert len(list(read_examples(file, on_rejected=rejected.append))) == 2
    assert [(one.source, one.reason) for one in rejected] == [("train.jsonl:2", "invalid row")]


def test_long_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(example_files, "MAX_ROW", 100)
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "x" * 200}]}))
    with pytest.raises(ProtocolError, match="exceeds 100 bytes"):
        list(read_examples(file))


def test_broken_array_is_refused(tmp_path):
    file = tmp_path / "train.json"
    file.write_text("[{]")
    with pytest.raises(ProtocolError, match="not a JSON array"):
        list(read_examples(file))


def test_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        list(read_examples(tmp_path / "absent.jsonl"))
    with pytest.raises(ConfigError, match="cannot write"):
        write_examples(tmp_path / "absent" / "a.jsonl", [EXAMPLE], "openai")


def test_unknown_format_is_a_usage_error(tmp_path):
    with pytest.raises(ConfigError, match="unknown training format 'opnai'") as caught:
        write_examples(tmp_path / "a.jsonl", [EXAMPLE], "opnai")
    assert caught.value.hint == "did you mean 'openai'?"


def test_failed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text("old")
    empty = make_example([Message("assistant", (ToolCall("a", "f", {"x": float("nan")}),))])
    with pytest.raises(EncodeError):
        write_examples(file, [EXAMPLE, empty], "openai")
    assert file.read_text() == "old"
    rejected = []
    assert write_examples(file, [EXAMPLE, empty], "openai", on_rejected=rejected.append) == 1
    assert [one.reason for one in rejected] == ["not expressible in openai"]


def test_format_is_detected_again_where_a_row_does_not_fit(tmp_path):
    """The first row has no calls, so it fits several formats."""
    file = tmp_path / "swift.jsonl"
    plain = make_example([Message("user", (Text("Hi."),)), Message("assistant", (Text("Hello."),))])
    write_examples(file, [plain, EXAMPLE, plain], "swift")
    assert [example.messages for example in read_examples(file)] == [plain.messages, EXAMPLE.messages, plain.messages]
    with pytest.raises(ProtocolError, match="unknown role 'tool_call'"):
        list(read_examples(file, "openai"))
