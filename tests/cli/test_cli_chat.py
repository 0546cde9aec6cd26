"""`toolwire chat`, as a user types it, against a scripted provider."""

import asyncio
import json

from test_cli_run import DONE, MAIL, TOOLS, WEATHER

from toolwire.ir.response import Fault
from toolwire.testing import Upstream, says
from warm_command import WARM


def toolwire_chat(tmp_path, script, stdin, *arguments):
    tools = tmp_path / "tools.py"
    tools.write_text(TOOLS)

    async def run():
        async with Upstream(*script) as upstream:
            process = await asyncio.create_subprocess_exec(
                *(*WARM, "chat", "-t", str(tools), *arguments),
                *("-m", "vllm/any", "--base-url", upstream.url),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate(stdin.encode())
            return process.returncode, out.decode(), err.decode(), upstream.requests

    return asyncio.run(run())


def test_input_lines_form_one_conversation(tmp_path):
    script = [WEATHER, says("It is sunny."), says("You are welcome.")]
    code, out, err, heard = toolwire_chat(tmp_path, script, "Weather in Paris?\n\nThank you!\n")
    assert (code, out) == (0, "Looking. \nIt is sunny.\nYou are welcome.\n"), err
    assert '→ get_weather {"city":"Paris"}' in err
    assert "✓ get_weather sun in Paris" in err
    roles = [message["role"] for message in json.loads(heard[-1].body)["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_quit_ends_the_chat(tmp_path):
    code, out, _, heard = toolwire_chat(tmp_path, [DONE], "/quit\nhello\n")
    assert (code, out, heard) == (0, "", [])


def test_failed_message_is_reported_and_dropped_from_the_history(tmp_path):
    script = [Fault("invalid_request", "too long", 400), DONE]
    code, out, err, heard = toolwire_chat(tmp_path, script, "one\ntwo\n")
    assert (code, out) == (1, "All done.\n")
    assert "no answer: too long" in err
    assert [message["content"] for message in json.loads(heard[-1].body)["messages"]] == ["two"]


def test_commands_and_file_names_are_plain_text_in_a_pipe(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    code, _, err, heard = toolwire_chat(
        tmp_path, [DONE, DONE], f"/save {tmp_path}/x.json\nRead @{tmp_path}/secret.txt\n"
    )
    assert code == 0, err
    texts = [message.text for message in heard[-1].request.messages if message.role == "user"]
    assert texts == [f"/save {tmp_path}/x.json", f"Read @{tmp_path}/secret.txt"]
    assert not (tmp_path / "x.json").exists()


def test_call_without_possible_approval_is_denied(tmp_path):
    code, _, err, _ = toolwire_chat(tmp_path, [MAIL, DONE], "Write to Ann\n")
    assert code == 0
    assert "✗ send_mail" in err
    code, _, err, _ = toolwire_chat(tmp_path, [MAIL, DONE], "Write to Ann\n", "--yes")
    assert "✓ send_mail sent to ann" in err
