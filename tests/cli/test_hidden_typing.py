"""Keys typed during an answer are not echoed into it, and the terminal is restored in every case."""

import asyncio
import os
import signal
import termios
import tty
from contextlib import nullcontext

import pytest
from chat_terminal import CTRL_C, on_terminal, without_styles

from toolwire import ToolCall
from toolwire.cli.terminal.input import HiddenTyping, read_key
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


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_that_stops_or_ends_the_process_finds_the_terminal_restored(number, screen, monkeypatch):
    """The process would stop inside `raise_signal`; it continues after it with `fg`."""
    states = []
    raise_signal = signal.raise_signal
    before = signal.signal(number, signal.SIG_DFL)  # `nohup`, and a shell's `&`, let their programs ignore some

    def stop(raised):
        states.append((raised, echoes(screen), signal.getsignal(number)))

    monkeypatch.setattr("toolwire.cli.terminal.input.signal.raise_signal", stop)
    with HiddenTyping():
        raise_signal(number)
        assert states == [(number, True, signal.SIG_DFL)]
        assert not echoes(screen)
    assert echoes(screen)
    signal.signal(number, before)


@pytest.mark.parametrize("is_asked", [True, False])
def test_terminal_is_continued_as_it_was_stopped(is_asked, screen, monkeypatch):
    """After Ctrl-Z at a question and `fg`, keys are echoed, and keep what readline has set for its line."""
    states = []

    def stop(_):
        states.append(termios.tcgetattr(screen)[3])
        termios.tcsetattr(screen, termios.TCSANOW, before)  # as a shell does for `fg`

    before = termios.tcgetattr(screen)
    raise_signal = signal.raise_signal
    monkeypatch.setattr("toolwire.cli.terminal.input.signal.raise_signal", stop)
    with HiddenTyping() as typing, typing.paused() if is_asked else nullcontext():
        tty.setcbreak(screen)
        if is_asked:
            changed = termios.tcgetattr(screen)
            changed[3] |= termios.ECHO
            termios.tcsetattr(screen, termios.TCSANOW, changed)
        mode = termios.tcgetattr(screen)
        raise_signal(signal.SIGTSTP)
        assert states == [before[3]]
        assert termios.tcgetattr(screen) == mode
    assert termios.tcgetattr(screen) == before


def test_nothing_is_changed_in_the_background(screen, monkeypatch):
    """After Ctrl-Z and `bg`, a change would stop the process, and would hide the keys from the shell."""
    with HiddenTyping() as typing:
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        termios.tcsetattr(screen, termios.TCSANOW, typing._before)  # as before the stop
        with typing.paused():
            pass
        assert echoes(screen)
    assert echoes(screen)


def test_second_interrupt_does_not_leave_the_terminal_hidden(screen, monkeypatch):
    set_attributes = termios.tcsetattr
    interrupts = [KeyboardInterrupt]

    def interrupted(*given):
        if interrupts:
            raise interrupts.pop()
        set_attributes(*given)

    with pytest.raises(KeyboardInterrupt), HiddenTyping():
        monkeypatch.setattr(termios, "tcsetattr", interrupted)
    assert echoes(screen)


def test_signal_that_arrives_while_a_key_is_awaited_finds_the_terminal_restored(screen, monkeypatch):
    """`read_key` reads one key without Enter. `kill` used to leave the terminal without echo."""
    modes = []

    def read(*_):
        modes.append(termios.tcgetattr(screen)[3] & (termios.ECHO | termios.ICANON))
        raise_signal(signal.SIGTERM)
        return b"k"

    raise_signal = signal.raise_signal
    before = termios.tcgetattr(screen)
    stopped = []
    monkeypatch.setattr(
        "toolwire.cli.terminal.input.signal.raise_signal", lambda _: stopped.append(termios.tcgetattr(screen))
    )
    monkeypatch.setattr("toolwire.cli.terminal.input.os.read", read)
    assert read_key() == "k"
    assert (modes, stopped) == ([0], [before])
    assert termios.tcgetattr(screen) == before


def test_without_a_terminal_nothing_changes(monkeypatch, tmp_path):
    (tmp_path / "input").touch()
    with (tmp_path / "input").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with HiddenTyping():
            pass
