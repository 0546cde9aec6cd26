"""Keys typed during an answer are not echoed into it, and the terminal is restored in every case."""

import asyncio
import os
import signal
import termios

import pytest
from chat_terminal import CTRL_C, on_terminal, without_styles

from toolwire import ToolCall
from toolwire.cli.terminal.input import HiddenTyping
from toolwire.testing import Upstream, says
from waiting import until

TOOLS = '''
import asyncio
from pathlib import Path
import toolwire

@toolwire.tool(effect="read")
async def wait() -> str:
    """Wait for a file."""
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "went"
'''
WAIT = ToolCall("call-1", "wait", {})


def echoes(descriptor):
    return bool(termios.tcgetattr(descriptor)[3] & termios.ECHO)


@pytest.fixture
def screen(monkeypatch):
    """Standard input on a terminal; yields the descriptor of the terminal."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as file:
        monkeypatch.setattr("sys.stdin", file)
        yield theirs
    os.close(ours)


@pytest.mark.finding("NU7")
def test_typed_text_stays_out_of_an_answer_and_is_the_next_prompt(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)

    async def chat():
        async with Upstream(says(WAIT), says("The end.")) as upstream:
            command = ("chat", "-t", "tools.py", "-m", "vllm/any", "--base-url", upstream.url)
            async with on_terminal(tmp_path, *command) as terminal:
                await terminal.enter("Wait.")
                await until((tmp_path / "began").exists)
                assert not echoes(terminal._descriptor)
                terminal.type("typed too early")
                (tmp_path / "go").touch()
                answer = await terminal.expect("The end.")
                assert "typed" not in answer
                assert "typed too early" in without_styles(await terminal.expect("early"))
                await terminal.press_until(CTRL_C, "> ")

    asyncio.run(chat())


def test_echo_is_off_inside_the_block_and_on_after_an_error(screen):
    with pytest.raises(ZeroDivisionError), HiddenTyping() as typing:
        assert not echoes(screen)
        with typing.paused():
            assert echoes(screen)
        assert not echoes(screen)
        raise ZeroDivisionError
    assert echoes(screen)
    assert signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP])
def test_signal_that_stops_or_ends_the_process_finds_the_terminal_restored(number, screen, monkeypatch):
    """The process would stop inside `raise_signal`; it continues after it with `fg`."""
    states = []
    raise_signal = signal.raise_signal

    def stop(raised):
        states.append((raised, echoes(screen), signal.getsignal(number)))

    monkeypatch.setattr("toolwire.cli.terminal.input.signal.raise_signal", stop)
    with HiddenTyping():
        raise_signal(number)
        assert states == [(number, True, signal.SIG_DFL)]
        assert not echoes(screen)
    assert echoes(screen)


def test_without_a_terminal_nothing_changes(monkeypatch, tmp_path):
    (tmp_path / "input").touch()
    with (tmp_path / "input").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with HiddenTyping():
            pass
