"""`toolwire run` and `toolwire chat` as processes, on a pseudo-terminal and on a pipe: text is shown as the model wrote it, and
nothing that a model or a tool writes drives the terminal."""

import asyncio
import os
import termios

import pytest
from test_cli_run import DONE, TOOLS

from toolwire import ToolCall
from toolwire.testing import Upstream, says
from warm_command import WARM

READABLE = (
    "# Title\n\n\tindented\u00a0text\r\nfamily \U0001f469\u200d\U0001f469\u200d\U0001f467, "
    "flag \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\n"
    "\u05e9\u05dc\u05d5\u05dd\u200f! \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u2067\u05d0\u05d1\u2069\n"
)
HOSTILE = "\x1b[2J \x1b]0;owned\x07 \x9b31m \x7f\x08 safe\rrm -rf \u202egnp.exe"
SHOWN = READABLE + r"\x1b[2J \x1b]0;owned\x07 \x9b31m \x7f\x08 safe\rrm -rf \u202egnp.exe"
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
HOSTILE_TOOL = f'{TOOLS}\n\n@toolwire.tool(effect="read")\ndef look() -> str:\n    return {HOSTILE!r} + "\\nnext"\n'


ANSWER = "n\n"


async def on_pipe(command, typed):
    """Standard output and standard error of a command whose streams are pipes."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT)
    out, err = await process.communicate(typed.encode())
    assert process.returncode == 0, err.decode()
    return out.decode(), err.decode()


async def on_terminal(command, typed):
    """What a command writes to a terminal, twice: standard output and standard error are one there."""
    ours, theirs = os.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST  # the bytes as they are written
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT
    )
    os.close(theirs)
    is_answer = typed == ANSWER
    if not is_answer:
        os.write(ours, typed.encode())
    written = await asyncio.to_thread(_read_all, ours, answer=typed if is_answer else "")
    os.close(ours)
    assert await process.wait() == 0, written
    return written, written


def _read_all(descriptor, answer):
    """Read until the other side is closed; type the answer once there is a question."""
    written = b""
    while True:
        if answer and b"Run it?" in written:
            os.write(descriptor, answer.encode())
            answer = ""
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # how Linux reports that the other side is closed
            piece = b""
        if not piece:
            return written.decode()
        written += piece


OUTPUT_KINDS = pytest.mark.parametrize("on", [on_pipe, on_terminal])
COMMANDS = pytest.mark.parametrize("command", ["run", "chat"])


def toolwire(on, command, tmp_path, script, *, delta=8, typed=""):
    tools = tmp_path / "tools.py"
    tools.write_text(HOSTILE_TOOL, encoding="utf-8")
    options = {"run": ["Go.", "-t", str(tools), "--store", "none"], "chat": ["-t", str(tools)]}[command]

    async def run():
        async with Upstream(*script, delta=delta) as upstream:
            line = [*WARM, command, *options, "-m", "vllm/any", "--base-url", upstream.url]
            return await on(line, typed if command == "run" else "Go.\n/quit\n")

    return asyncio.run(asyncio.wait_for(run(), 300))


def controls_in(written):
    """Control characters that are neither line breaks nor tabs."""
    return {
        char for char in written.replace("\r\n", "\n") if char not in "\n\t" and (char < " " or "\x7f" <= char < "\xa0")
    }


@pytest.mark.one_in(5)
@pytest.mark.finding("U1")
@OUTPUT_KINDS
@COMMANDS
@pytest.mark.parametrize("delta", [1, 3, 1000])
def test_text_is_shown_as_written_without_control_sequences(on, command, tmp_path, delta):
    out, err = toolwire(on, command, tmp_path, [says(READABLE + HOSTILE)], delta=delta)
    assert SHOWN in out
    assert not controls_in(out + err)


@pytest.mark.finding("U1")
@OUTPUT_KINDS
@COMMANDS
def test_text_that_ends_in_a_carriage_return_is_shown_to_its_end(on, command, tmp_path):
    out, _ = toolwire(on, command, tmp_path, [says("almost\r")])
    assert "almost\\r\n" in out


@pytest.mark.finding("U1")
@OUTPUT_KINDS
@COMMANDS
def test_calls_and_results_are_one_line_each(on, command, tmp_path):
    script = [says(ToolCall("c1", "look", {})), says(ToolCall("c2", f"no\n{HOSTILE}", {"a": f"{HOSTILE}\nb"})), DONE]
    out, err = toolwire(on, command, tmp_path, script)
    lines = err.splitlines()
    assert any(line.startswith(r"✓ look \x1b[2J") and line.endswith("gnp.exe next") for line in lines)
    assert any(line.startswith(r"→ no\n\x1b[2J \x1b]0;owned\x07 \x9b31m") for line in lines)
    assert "All done." in out
    assert not controls_in(out + err)


@pytest.mark.finding("U1")
def test_arguments_in_a_question_are_one_line_without_control_sequences(tmp_path):
    script = [says(ToolCall("c1", "send_mail", {"to": f"ann\n{HOSTILE}"})), DONE]
    written, _ = toolwire(on_terminal, "run", tmp_path, script, typed=ANSWER)
    lines = written.splitlines()
    (title,) = [number for number, line in enumerate(lines) if line.startswith("send_mail needs approval")]
    question = lines[title + 1]
    assert lines[title + 2].startswith("Run it? [y]es, [n]o, [e]dit, [a]lways")
    assert r"ann\n\u001b[2J \u001b]0;owned\u0007 \x9b31m" in question
    assert r"\u202egnp.exe" in question
    assert not controls_in(written)
