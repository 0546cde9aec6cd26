"""The state of `toolwire chat` on a terminal: approvals, the system prompt, the model and failed commands."""

import asyncio
import json
import os

import pytest
from chat_terminal import CTRL_C, on_terminal
from test_chat_terminal import chatting
from test_cli_run import DONE, MAIL, TOOLS

from toolwire import ToolCall
from toolwire.cli.agent.chat_session import ChatSession
from toolwire.ir.errors import ConfigError
from toolwire.net.model.interface import prompt_message
from toolwire.testing import Upstream, says
from waiting import until

HOLD = '''

@toolwire.tool(effect="read")
async def hold() -> str:
    """Wait for a file."""
    import asyncio
    from pathlib import Path

    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "held"
'''


def texts(heard):
    return [(message.role, message.text) for message in heard.request.messages if message.text]


@pytest.mark.parametrize("typed", ["y", "a"])
def test_line_typed_before_a_question_does_not_answer_it(tmp_path, typed):
    async def work(terminal, upstream):
        await terminal.enter("mail")
        await terminal.expect("→ hold")
        terminal.type(f"{typed}\n")
        await until(lambda: terminal.typed_bytes() == len(typed) + 1)
        (tmp_path / "go").touch()
        await terminal.expect("Run it? [y]es, [n]o, [e]dit, [a]lways for this tool: ")
        terminal.type("n\n")
        await terminal.expect("✗ send_mail")
        await terminal.expect("All done.")
        assert "✓ send_mail" not in terminal.written

    chatting(tmp_path, [says(ToolCall("c0", "hold", {})), MAIL, DONE], work, tools=TOOLS + HOLD)


def test_removed_system_prompt_is_not_sent(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("one")
        await terminal.expect("First.")
        await terminal.enter("/system NEW")
        await terminal.expect("NEW")
        await terminal.enter("two")
        await terminal.expect("Second.")
        await terminal.enter("/system none")
        await terminal.expect("no system prompt")
        await terminal.enter("/save talk.json")
        await terminal.expect("saved")
        await terminal.enter("three")
        await terminal.expect("Third.")
        sent = [texts(heard)[0] for heard in upstream.requests]
        assert sent == [("system", "OLD"), ("system", "NEW"), ("user", "one")]

    chatting(tmp_path, [says("First."), says("Second."), says("Third.")], work, "--system", "OLD")
    roles = [message["role"] for message in json.loads((tmp_path / "talk.json").read_text())["messages"]]
    assert roles == ["user", "assistant"] * 2


def test_failed_switch_keeps_the_model(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("/model local/nope")
        await terminal.expect("unknown local model 'nope'")
        await terminal.enter("/model")
        await terminal.expect("vllm/any")
        await terminal.enter("hello")
        await terminal.expect("All done.")

    chatting(tmp_path, [DONE], work)


def test_name_without_a_provider_is_a_model_of_the_same_server(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter(f"/model anthropic/x --base-url {upstream.url} --key-env SECRET")
        await terminal.enter("/model y")
        await terminal.expect("anthropic/y continues")
        await terminal.enter("hello")
        await terminal.expect("All done.")
        (heard,) = upstream.requests
        assert (heard.wire, heard.request.model) == ("anthropic", "y")

    chatting(tmp_path, [DONE], work, env={"NO_COLOR": "1", "TERM": "xterm", "SECRET": "k1"})


def test_failed_commands_name_their_file_and_the_option(tmp_path):
    (tmp_path / "bad.json").write_text("nope")

    async def work(terminal, upstream):
        await terminal.enter("/load bad.json")
        await terminal.expect("bad.json is not a saved chat: ")
        await terminal.enter("/retry")
        await terminal.expect("there is no prompt to send again")
        await terminal.enter("/model anthropic/claude")
        await terminal.expect("or add --key-env NAME")
        await terminal.enter("/usr/bin/x is a path")
        await terminal.expect("All done.")
        await terminal.enter(" /tools")
        await terminal.expect("get_weather(city)")
        assert "no answer" not in terminal.written

    chatting(tmp_path, [DONE], work)


def test_interrupt_while_a_tool_server_starts_does_not_wait_for_it(tmp_path):
    asyncio.run(interrupt_start(tmp_path))


async def interrupt_start(tmp_path):
    marker = tmp_path / "began"
    server = f"sh -c 'touch {marker}; sleep 3600'"
    async with Upstream() as upstream:
        command = ("chat", "-t", server, "-m", "vllm/any", "--base-url", upstream.url)
        async with on_terminal(tmp_path, *command) as terminal:
            await until(marker.exists)
            terminal.type(CTRL_C)
            assert await terminal.process.wait() == 130


def test_only_regular_files_are_attached(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigError, match="not a regular file"):
            asyncio.run(prompt_message(path))
    with pytest.raises(ConfigError, match=r"cannot read .*missing: No such file"):
        asyncio.run(prompt_message(tmp_path / "missing"))


def test_loaded_messages_keep_their_system_prompt(tmp_path):
    from argparse import Namespace

    from toolwire import Message, Text
    from toolwire.run.session.history import dump_messages

    file = tmp_path / "talk.json"
    file.write_text(dump_messages([Message("system", (Text("Be brief."),)), Message("user", (Text("hi"),))]))
    session = ChatSession(None, None, Namespace(system=""))
    assert session.load(str(file)) == 2
    assert session.system == "Be brief."
