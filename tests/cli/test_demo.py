"""`toolwire demo`: three screens of 80 columns and 24 lines, whose figures are measured."""

import asyncio
import re

import pytest
from chat_terminal import on_terminal, without_styles

from toolwire.cli import demo
from toolwire.cli.main import main
from toolwire.cli.terminal.layout import text_width
from toolwire.testing import random_chunks
from toolwire.wire import names

COLUMNS, LINES = 80, 24


def test_demo_in_a_pipe_prints_three_screens_and_ends(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(demo, "_CUTS", 50)  # a thousand take seconds
    assert main(["demo", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    screens = re.split(r"^(?=[123]/3)", printed, flags=re.MULTILINE)[1:]
    assert len(screens) == 3
    assert all(len(screen.splitlines()) <= LINES for screen in screens), "a terminal has the keys on the last line"
    assert max(map(text_width, printed.splitlines())) <= COLUMNS
    assert "\x1b" not in printed
    assert all(re.search(rf"^{name} ", screens[0], re.MULTILINE) for name in demo._FORMATS)
    assert screens[0].count("✗ reasoning dropped") == 4
    assert screens[0].count("~ signature rewritten") == 1
    assert "✓ 50 random cuttings" in screens[1]
    assert "→ 1 result\n" in screens[1]
    assert "exit status -9" in screens[2]
    assert screens[2].count("A-17   40 EUR") == 2, "the charge of the first process, and the only line of the ledger"
    assert "✓ charged once" in screens[2]


def test_first_screen_of_a_narrow_terminal_names_the_formats_that_have_no_room(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines, is_right = demo._call_screen()
    assert is_right
    assert len(lines) < LINES, "the last line is for the key"
    assert max(map(text_width, lines)) <= 60
    assert all(any(name in line for line in lines) for name in demo._FORMATS)
    assert lines[-1] == "not shown: openai_responses (a wider terminal shows it)"


def test_details_of_the_demo_report_no_failures(capsys, monkeypatch):
    monkeypatch.setattr(demo, "_CUTS", 1)
    monkeypatch.setattr("toolwire.testing.random_chunks", lambda data, *_: [data[:100], data[100:]])
    monkeypatch.setattr(demo, "_payment_screen", lambda: (["a payment"], True))
    assert main(["demo", "--seed", "1", "--all"]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^(\d)/6  ", printed, re.MULTILINE) == list("123456")
    assert "--all" not in printed
    out = printed.split("One Python function")[1]
    assert "✗" not in out
    assert out.count("1,000/1,000") == len(names())
    assert len(re.findall(r"✓  \S+ → \S+ +4/4 ", out)) == len(names()) * (len(names()) - 1)


def test_decoder_that_depends_on_the_cuts_is_noticed(capsys, monkeypatch):
    """The second screen and the exit code report a second result."""

    def lose_a_piece(data, random, pieces):
        chunks = random_chunks(data, random, pieces)
        return [data.replace(b"rich", b"RICH")] if pieces == 77 else chunks

    monkeypatch.setattr("toolwire.testing.random_chunks", lose_a_piece)
    monkeypatch.setattr(demo, "_payment_screen", lambda: (["a payment"], True))
    assert main(["demo", "--seed", "1"]) == 1
    assert "→ 2 results" in capsys.readouterr().out


def test_second_charge_is_noticed(tmp_path, capsys, monkeypatch):
    """The payment's screen counts the lines of the real ledger."""

    def kill_after_two(folder):
        ended = kill(folder)
        ledger = tmp_path.__class__(folder, "ledger")
        ledger.write_text(ledger.read_text() * 2)
        return ended

    kill = demo._kill_while_paying
    monkeypatch.setattr(demo, "_kill_while_paying", kill_after_two)
    lines, is_right = demo._payment_screen()
    assert not is_right
    assert lines[-1] == "✗ 2 charges"


def test_screens_on_a_terminal_wait_for_a_key(tmp_path):
    """Enter shows the next screen, q ends; the key is not printed."""

    async def look():
        async with on_terminal(tmp_path, "demo", "--seed", "1") as terminal:
            first = without_styles(await terminal.expect("quit "))
            assert "1/3" in first
            terminal.type("x\n")
            second = without_styles(await terminal.expect("quit "))
            assert "2/3" in second
            assert "3/3" not in second
            terminal.type("q")
            assert await terminal.process.wait() == 0
            assert "3/3" not in terminal.written

    asyncio.run(look())


def test_ctrl_c_between_screens_removes_the_question(capsys, monkeypatch):
    """The prompt of the shell begins a line."""

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "read_key", interrupt)
    with pytest.raises(KeyboardInterrupt):
        demo._is_continued()
    assert capsys.readouterr().out.endswith("quit \r\x1b[K")


@pytest.mark.parametrize("columns", [60, 120])
def test_screens_fit_a_narrow_and_a_wide_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines, _ = demo._call_screen()
    assert max(map(text_width, lines)) <= min(columns, COLUMNS)
