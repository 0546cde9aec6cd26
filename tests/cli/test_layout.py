"""Tables and paragraphs for terminals of any width: no line is too wide, and no text is lost."""

import io
import re
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.cli.terminal.layout import StreamWrap, lay_out, text_width, wrap_command, wrap_text
from toolwire.cli.terminal.options import CommandHelp, _wrap_example
from toolwire.cli.terminal.output import print_note, terminal_width, text_lines
from work_counter import count_work

HEADERS = ("model", "wire", "key", "variable")
ROWS = [
    ("anthropic/MODEL", "anthropic", "missing", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
    ("openai/MODEL", "openai_responses", "set", "OPENAI_API_KEY"),
]


def lines_of(layout):
    return ["  ".join(pieces) for row in layout.rows for pieces in row]


def shown_lines(width, hide=()):
    return [line.rstrip() for line in lines_of(lay_out(ROWS, HEADERS, width, hide))]


@pytest.mark.finding("NU1")
def test_numbers_are_not_broken():
    rows = [("words and more words of prose", f"{number}.0", "[+100.0, +12.5] of it") for number in (1, 100)]
    layout = lay_out(rows, ("method of the search", "R@10", "difference to it"), 30)
    assert layout.columns
    assert [pieces[1].strip() for row in layout.rows for pieces in row if pieces[1].strip()] == ["R@10", "1.0", "100.0"]


@pytest.mark.finding("NU1")
def test_help_fills_paragraphs_and_keeps_the_items_of_a_list_together():
    text = "A sentence that goes on\nin the next line.\nAnother one.\nexit codes: 0 done   1 failed\n            2 wrong usage"
    assert CommandHelp("toolwire")._fill_text(text, 34, "").splitlines() == [
        "A sentence that goes on in the",
        "next line.",
        "Another one.",
        "exit codes: 0 done   1 failed",
        "            2 wrong usage",
    ]


@pytest.mark.finding("NU1")
def test_wide_terminal_keeps_natural_widths():
    assert shown_lines(100) == [
        "model            wire              key      variable",
        "anthropic/MODEL  anthropic         missing  ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
        "openai/MODEL     openai_responses  set      OPENAI_API_KEY",
    ]


@pytest.mark.finding("NU1")
def test_cells_wrap_between_words():
    assert shown_lines(70) == [
        "model            wire              key      variable",
        "anthropic/MODEL  anthropic         missing  ANTHROPIC_API_KEY or",
        "                                            ANTHROPIC_AUTH_TOKEN",
        "openai/MODEL     openai_responses  set      OPENAI_API_KEY",
    ]


@pytest.mark.finding("NU1")
def test_least_important_columns_are_left_out_before_names_wrap():
    layout = lay_out(ROWS, HEADERS, 50, ("wire", "key"))
    assert layout.hidden == ["wire"]
    assert lines_of(layout)[1].rstrip() == "anthropic/MODEL  missing  ANTHROPIC_API_KEY or"


@pytest.mark.finding("NU1")
def test_names_wrap_after_separators():
    assert shown_lines(43)[1:4] == [
        "anthropic/  anthropic  missing  ANTHROPIC_",
        "MODEL                           API_KEY or",
        "                                ANTHROPIC_",
    ]


@pytest.mark.finding("NU1")
def test_row_that_does_not_fit_is_a_block():
    assert shown_lines(34)[:6] == [
        "model     anthropic/MODEL",
        "wire      anthropic",
        "key       missing",
        "variable  ANTHROPIC_API_KEY or",
        "          ANTHROPIC_AUTH_TOKEN",
        "",
    ]
    assert shown_lines(24)[:4] == ["model", "  anthropic/MODEL", "wire", "  anthropic"]


def test_blank_cells_are_laid_out():
    assert lines_of(lay_out([("file:///x", "   ")], (), 40)) == ["file:///x     "]
    assert lines_of(lay_out([("     ", "a b c")], ("", "x"), 8))


def test_long_last_cell_lengthens_no_other_row():
    rows = [("a", "b"), ("c", "x" * 5000)]
    lines = lines_of(lay_out(rows, ("name", "text"), sys.maxsize))
    assert [len(line) for line in lines] == [10, 7, 5006]


def test_label_of_wide_characters_is_aligned():
    lines = lines_of(lay_out([("a" * 20, "b" * 20)], ("漢字", "b"), 30))
    assert [text_width(line) for line in lines[:2]] == [26, 26]


@every_case("text", ["é" * 800, "漢" * 800, " " * 800, "a é " * 200, "x/" * 400, "a" * 800])
def test_wrapping_takes_linear_time(text):
    little = count_work(lambda: lay_out([(text, "b")], ("c", "d"), 80))
    much = count_work(lambda: lay_out([(text * 8, "b")], ("c", "d"), 80))
    assert much < 12 * little + 2000


@pytest.mark.parametrize("given", ["-5", "0", "99999999999", "80x", "٨٠٠٠٠"])
def test_invalid_columns_are_ignored(given, monkeypatch):
    monkeypatch.setenv("COLUMNS", given)
    assert terminal_width(io.StringIO()) == sys.maxsize


@pytest.mark.finding("NU1")
def test_note_wraps_on_a_terminal_and_long_names_stay_whole(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    path = f"{'/folder' * 8}/settings.toml"
    print_note(f"cannot read the settings in the file {path}: it does not exist, or it cannot be read", None)
    assert stream.getvalue().splitlines() == [
        "cannot read the settings in the file",
        f"  {path}:",
        "  it does not exist, or it cannot be",
        "  read",
    ]


def test_numbers_are_aligned_on_the_right():
    layout = lay_out([("a", "5", "1.5 s"), ("b", "1,200", "-")], ("", "tokens", "time"), 80)
    assert lines_of(layout) == ["   tokens   time", "a       5  1.5 s", "b   1,200      -"]


CELLS = st.text("ab /_-.é日\u0301 ", max_size=30).map(lambda text: " ".join(text.split()))


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(1, 60))
def test_any_table_fits_and_loses_no_text(rows, width):
    layout = lay_out(rows, ("first", "second one", "b"), width)
    assert all(text_width(line.rstrip()) <= max(width, 4) for line in lines_of(layout) if layout.columns)
    for number, row in enumerate(rows):
        if layout.columns:
            found = ["".join(pieces[column] for pieces in layout.rows[number + 1]) for column in range(3)]
            assert [without_spaces(text) for text in found] == [without_spaces(cell) for cell in row]
        else:
            found = "".join("".join(pieces) for pieces in layout.rows[number])
            assert all(without_spaces(cell) in without_spaces(found) for cell in row)


def without_spaces(text):
    return re.sub(r"\s", "", text)


@given(st.text("ab /_-日 ", max_size=60), st.integers(2, 40))
def test_any_line_wraps_to_the_width_and_keeps_its_text(text, width):
    lines = wrap_text(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert without_spaces("".join(lines)) == without_spaces(text)


@pytest.mark.finding("NU1")
def test_explanation_of_a_wide_example_has_its_own_line():
    line = "  toolwire audit tools.json --target portable     everything that a provider does not accept"
    assert _wrap_example(line, 70) == [
        "  toolwire audit tools.json --target portable",
        "      everything that a provider does not accept",
    ]
    assert _wrap_example(line, 100) == [line]
    assert _wrap_example("  toolwire run --tools one.py two.py three.py", 30) == [
        "  toolwire run \\",
        "      --tools one.py two.py \\",
        "      three.py",
    ]
    assert _wrap_example("  toolwire run 'Which city is it?' | jq 'select(.a == 1)'", 34) == [
        "  toolwire run \\",
        "      'Which city is it?' | jq \\",
        "      'select(.a == 1)'",
    ]


def test_text_of_several_lines_wraps_below_its_own_indentation(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "20")
    text = "one two three four five\n  six seven eight nine\x1b"
    assert text_lines(text, " ", Terminal()) == [
        " one two three four",
        " five",
        "   six seven eight",
        "   nine\\x1b",
    ]
    assert text_lines(text, stream=io.StringIO()) == ["one two three four five", "  six seven eight nine\\x1b"]


@pytest.mark.parametrize("text", ["all the cuttings: 0.48 s", "all cuttings in 143 µs.", "they are 5,120 bytes (1)"])
def test_number_and_unit_are_not_separated(text):
    for width in range(9, len(text)):
        assert not any(line[-1].isdigit() for line in wrap_text(text, width))


def test_prose_shrinks_before_names_are_split():
    rows = [("deepseek_dsml_v32", "arguments in tags with a type, in a block")]
    assert lines_of(lay_out(rows, (), 32))[0].rstrip() == "deepseek_dsml_v32  arguments in"


@pytest.mark.parametrize("splits_words", [False, True])
@pytest.mark.parametrize("mark", ["\u0301", "\x1b[1m"])
def test_word_of_invisible_characters_is_not_held_back_without_bound(mark, splits_words):
    wrap = StreamWrap(20, splits_words=splits_words)
    written = ""
    for number in range(1, 2001):
        written += wrap.feed(mark)
        assert number * len(mark) - len(written) <= 1000
    assert written + wrap.flush() == mark * 2000


def test_tab_fills_the_line_to_its_stop():
    wrap = StreamWrap(30)
    lines = (wrap.feed("a\tb\tc\td\te") + wrap.flush()).split("\n")
    assert lines == ["a       b       c       d", "e"]


@pytest.mark.parametrize(
    "argument", ["don't break this text at all", 'a "quoted text" in it', r"back\slash and spaces"]
)
def test_wrapped_command_keeps_its_arguments(argument):
    command = ["toolwire", "run", argument, "--model", "local/smollm2"]
    for text in (shlex.join(command), f'toolwire run "{argument}" --x' if '"' not in argument else shlex.join(command)):
        wrapped = "\n".join(wrap_command(text, 30))
        assert shlex.split(wrapped.replace("\\\n", "")) == shlex.split(text)
