"""Texts with calls follow the text format, and unchanged texts stay in the corpus."""

import pytest

import toolwire.text
from toolwire.ir.errors import ConfigError, ToolwireError
from toolwire.ir.parts import ToolCall
from toolwire.learn import InlineCall, calculator_tool, format_call, read_texts
from toolwire.learn.toolformer.corpus import augment_texts, insert_calls, result_spans


def test_call_and_result_are_written_as_in_the_text_format():
    tools = [calculator_tool().tool]
    text = f"The share is {format_call('Calculator(400 / 1400)', '0.29')}"
    assert text == "The share is [Calculator(400 / 1400)] → 0.29"
    [call] = toolwire.text.get("toolformer").parse(text, tools).calls
    assert (call.name, call.arguments) == ("Calculator", {"expression": "400 / 1400"})
    written = format_call(ToolCall("1", "Calculator", {"expression": "1 + 2"}), "3")
    [again] = toolwire.text.get("toolformer").parse(written, tools).calls
    assert again.arguments == {"expression": "1 + 2"}


def test_result_is_one_line_and_limited():
    assert format_call("Search(a)", "one\n two") == "[Search(a)] → one two"
    assert len(format_call("Search(a)", "x" * 5000)) < 500


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("The answer is 6.", 13, "The answer is [C(8 - 2)] → 6 6."),
        ("The answer is 6.", 14, "The answer is [C(8 - 2)] → 6 6."),
        ("6 is it", 0, "[C(8 - 2)] → 6 6 is it"),
        ("It is", 5, "It is [C(8 - 2)] → 6"),
    ],
)
def test_call_is_separated_by_one_space(text, position, expected):
    assert insert_calls(text, [InlineCall(position, "C(8 - 2)", "6")]) == expected


def test_result_spans_cover_the_arrow_and_the_result():
    calls = [(0, InlineCall(8, "C(1 + 2)", "3")), (0, InlineCall(2, "C(2)", "two words"))]
    [row, unchanged] = augment_texts(["a 3 and 3 more", "no number"], calls)
    assert row.text == "a [C(2)] → two words 3 and [C(1 + 2)] → 3 3 more"
    assert [row.text[start:end] for start, end in result_spans(row)] == [" → two words", " → 3"]
    assert (unchanged.text, unchanged.calls, unchanged.source) == ("no number", (), 1)


def test_texts_are_read_from_lines_and_json_lines(tmp_path):
    plain, rows = tmp_path / "a.txt", tmp_path / "a.jsonl"
    plain.write_text("one\n\ntwo\n")
    rows.write_text('{"text": "one", "date": "2025-07-04"}\n')
    assert [one.text for one in read_texts(plain)] == ["one", "two"]
    assert read_texts(rows)[0].date == "2025-07-04"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": 1}\n', "line 1: Expected `str`"),
        ("{\n", "line 1"),
        ("\n", "has no texts"),
        ('{"text": "' + "x" * 20001 + '"}', "line 1 is longer than"),
    ],
)
def test_unreadable_texts_are_named(tmp_path, content, message):
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_texts(file)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*b\.txt"):
        read_texts(tmp_path / "b.txt")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested more than 200 levels"),
        ('{"text": "a", "text": "b"}', "duplicate key"),
        ('{"text": 3}', "Expected `str`"),
    ],
)
def test_hostile_row_is_refused_with_its_line(tmp_path, line, message):
    from toolwire.learn.tuning import read_training_file

    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "8 - 2 = 6"}\n' + line + "\n")
    for read in (read_texts, read_training_file):
        with pytest.raises(ConfigError, match=rf"line 2: .*{message}"):
            read(file)
    file.write_text(line)  # the first row decides between texts and conversations
    with pytest.raises(ToolwireError):
        read_training_file(file)
