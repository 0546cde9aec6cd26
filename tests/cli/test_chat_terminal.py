"""`toolwire chat` on a pseudo-terminal, as a process, with a scripted provider."""

import asyncio
import json
import stat

import pytest
from chat_terminal import CTRL_C, PASTE, TAB, UP, on_terminal, without_styles
from test_cli_run import DONE, MAIL, TOOLS, WEATHER

from toolwire import Media, Text, ToolCall, ToolResult
from toolwire.ir.response import Fault, Response, Usage
from toolwire.testing import Upstream, says
from toolwire.testing.upstream import PartialReply
from waiting import until

USAGE = Usage(input=1000, output=100)
SLOW_TOOLS = '''
import asyncio
from pathlib import Path
import toolwire

@toolwire.tool(effect="read")
async def wait() -> str:
    """Wait for ever."""
    Path("began").touch()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        Path("cancelled").touch()
        raise
    return "done"

@toolwire.tool
async def pay() -> str:
    """Pay."""
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    Path("paid").touch()
    return "paid"
'''


def chatting(tmp_path, script, work, *options, tools=TOOLS, env=None, **settings):
    """Run `work(terminal, upstream)` while a chat runs."""
    (tmp_path / "tools.py").write_text(tools)

    async def chat():
        async with Upstream(*script, **settings) as upstream:
            command = ("chat", "-t", "tools.py", "-m", "vllm/any", "--base-url", upstream.url, *options)
            more = {} if env is None else {"env": env}
            async with on_terminal(tmp_path, *command, **more) as terminal:
                await work(terminal, upstream)

    asyncio.run(chat())


def prompts(heard):
    """Return the texts of the messages of a request."""
    return [message.text for message in heard.request.messages if message.role == "user" and message.text]


def test_commands_show_tools_usage_and_help(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("/tools")
        shown = await terminal.expect("Send a mail.")
        assert "get_weather(city)" in shown and "read" in shown
        await terminal.enter("Weather?")
        await terminal.expect("✓ get_weather sun in Paris")
        await terminal.expect("All done.")
        await terminal.enter("/usage")
        shown = await terminal.expect("conversation")
        assert "20 of them cached" not in shown
        assert "input tokens   1,000" in shown and "cost           0.004500" in shown
        await terminal.enter("/uasge")
        await terminal.expect("unknown command /uasge (did you mean /usage?)")
        await terminal.enter("/help")
        await terminal.expect("/model [NAME [OPTIONS]]")
        await terminal.enter("/exit")
        assert await terminal.process.wait() == 0

    counted = Response(parts=DONE.parts, stop=DONE.stop, usage=USAGE)
    chatting(tmp_path, [WEATHER, counted], work, "--price", "3/15")


def test_prompts_of_several_lines(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter('"""one')
        await terminal.expect(". ")
        terminal.type('two"""\n')
        await terminal.expect("First.")
        await terminal.enter("three\\")
        await terminal.expect(". ")
        terminal.type("four\n")
        await terminal.expect("Second.")
        await terminal.expect("> ")
        terminal.type(PASTE.format("five\nsix"))
        await terminal.expect("six")
        terminal.type("\n")
        await terminal.expect("Third.")
        assert prompts(upstream.requests[-1]) == ["one\ntwo", "three\nfour", "five\nsix"]
        assert await terminal.leave() == 0

    chatting(tmp_path, [says("First."), says("Second."), says("Third.")], work)


def test_history_is_private_and_recalled_in_the_next_session(tmp_path):
    async def first(terminal, upstream):
        await terminal.enter("remember this")
        await terminal.expect("All done.")
        assert await terminal.leave() == 0

    async def second(terminal, upstream):
        await terminal.expect("> ")
        terminal.type(f"{UP}\n")
        await terminal.expect("All done.")
        assert prompts(upstream.requests[-1]) == ["remember this"]

    chatting(tmp_path, [DONE], first)
    path = tmp_path / "state" / "toolwire" / "chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    chatting(tmp_path, [DONE], second)


def test_tab_completes_commands_and_file_names(tmp_path):
    (tmp_path / "holiday.txt").write_text("Sea.")

    async def work(terminal, upstream):
        await terminal.expect("> ")
        terminal.type(f"/att{TAB}hol{TAB}\n")
        await terminal.expect("attached to the next prompt: holiday.txt")
        await terminal.expect("> ")
        terminal.type(f"Describe @hol{TAB}\n")
        await terminal.expect("All done.")
        (message,) = upstream.requests[0].request.messages
        assert [part.text for part in message.parts] == ["Describe @holiday.txt", *["holiday.txt:\nSea."] * 2]

    chatting(tmp_path, [DONE], work)


def test_attached_image_is_sent_once(tmp_path):
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")

    async def work(terminal, upstream):
        await terminal.enter("Who is ann@example.com in @cat.png?")
        await terminal.expect("A cat.")
        await terminal.enter("/attach nothing.png")
        await terminal.expect("cannot read nothing.png")
        await terminal.enter("Thanks")
        await terminal.expect("Welcome.")
        first, _, last = upstream.requests[-1].request.messages
        assert [type(part) for part in first.parts] == [Text, Media]
        assert [type(part) for part in last.parts] == [Text]

    chatting(tmp_path, [says("A cat."), says("Welcome.")], work)


def test_model_is_switched_with_the_whole_history(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Weather?")
        await terminal.expect("All done.")
        await terminal.enter(f"/model anthropic/claude-sonnet-5 --base-url {upstream.url} --key-env SECRET")
        await terminal.expect("anthropic/claude-sonnet-5 continues with 4 messages")
        await terminal.enter("And Rome?")
        await terminal.expect("Rain.")
        heard = upstream.requests[-1]
        assert (upstream.requests[0].wire, heard.wire) == ("openai_chat", "anthropic")
        assert [type(message.parts[-1]) for message in heard.request.messages] == [
            Text,
            ToolCall,
            ToolResult,
            Text,
            Text,
        ]
        await terminal.enter("/model")
        await terminal.expect("anthropic/claude-sonnet-5")
        await terminal.enter("/model nope/x")
        await terminal.expect("unknown provider")
        await terminal.enter("/model --nope")
        await terminal.expect("/model NAME [--base-url URL]")
        assert "no answer" not in terminal.written
        assert "k1" not in terminal.written

    chatting(tmp_path, [WEATHER, DONE, says("Rain.")], work, env={"NO_COLOR": "1", "TERM": "xterm", "SECRET": "k1"})


def test_conversation_is_saved_undone_retried_and_resumed(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("one")
        await terminal.expect("First.")
        await terminal.enter("two")
        await terminal.expect("Second.")
        await terminal.enter("/retry")
        await terminal.expect("Again.")
        assert prompts(upstream.requests[-1]) == ["one", "two"]
        await terminal.enter("/undo")
        await terminal.expect("2 messages left")
        await terminal.enter("/save talk.json")
        await terminal.expect("2 messages saved")
        await terminal.enter("/save tools.py")
        await terminal.expect("exists and is not a saved chat")
        await terminal.enter("/clear")
        await terminal.enter("/system Be brief.")
        await terminal.enter("three")
        await terminal.expect("Third.")
        assert [message.text for message in upstream.requests[-1].request.messages] == ["Be brief.", "three"]
        await terminal.enter("/load talk.json")
        await terminal.expect("2 messages loaded")

    async def resumed(terminal, upstream):
        await terminal.expect("2 tools, 2 messages")
        await terminal.enter("four")
        await terminal.expect("All done.")
        assert prompts(upstream.requests[-1]) == ["one", "four"]

    script = [says("First."), says("Second."), says("Again."), says("Third.")]
    chatting(tmp_path, script, work)
    saved = tmp_path / "talk.json"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert json.loads(saved.read_text())["toolwire_chat"] == 1
    chatting(tmp_path, [DONE], resumed, "--resume", "talk.json")


def test_call_is_approved_edited_always_approved_or_denied(tmp_path):
    def mail(number):
        return says(ToolCall(f"c{number}", "send_mail", {"to": "ann"}))

    async def work(terminal, upstream):
        await terminal.enter("mail 1")
        shown = await terminal.expect("Run it? [y]es, [n]o, [e]dit, [a]lways")
        assert "send_mail needs approval: it is a write tool" in shown and 'to  "ann"' in shown
        terminal.type("n too late\n")
        await terminal.expect("✗ send_mail")
        await terminal.expect("Denied.")
        assert "too late" in upstream.requests[1].request.messages[-1].parts[0].text
        await terminal.enter("mail 2")
        await terminal.expect("Run it?")
        terminal.type("e\n")
        await terminal.expect('arguments: {"to": "ann"}')
        terminal.type('\x7f\x7f\x7f\x7f\x7fbob"}\n')
        await terminal.expect('changed the arguments of this call to {"to":"bob"}] sent to bob')
        await terminal.expect("Edited.")
        await terminal.enter("mail 3")
        await terminal.expect("Run it?")
        terminal.type("a\n")
        await terminal.expect("✓ send_mail sent to ann")
        await terminal.expect("Always.")
        await terminal.enter("mail 4")
        await terminal.expect("approved: always for send_mail")
        await terminal.expect("Automatic.")
        assert "Run it?" not in terminal.written.partition("Always.")[2]

    answers = [says("Denied."), says("Edited."), says("Always."), says("Automatic.")]
    script = [one for number, answer in enumerate(answers) for one in (mail(number), answer)]
    chatting(tmp_path, script, work)


def test_ctrl_c_stops_the_answer_and_not_the_chat(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Tell me a long story.")
        await terminal.expect("Once")
        terminal.type(CTRL_C)
        await terminal.expect("stopped")
        await upstream.disconnected()
        await terminal.expect("> ")
        terminal.type("half a line")
        await terminal.expect("half a line")
        await terminal.press_until(CTRL_C, "> ")
        terminal.type("two\n")
        await terminal.expect("All done.")
        assert prompts(upstream.requests[-1]) == ["two"]
        assert await terminal.leave() == 0

    chatting(tmp_path, [PartialReply(says("Once upon a time. " * 40), size=900, then="stall"), DONE], work)


def test_ctrl_c_cancels_a_running_tool(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Wait.")
        await until((tmp_path / "began").exists)
        terminal.type(CTRL_C)
        await terminal.expect("stopped")
        assert (tmp_path / "cancelled").exists()
        assert await terminal.leave() == 0

    chatting(tmp_path, [says(ToolCall("c1", "wait", {}))], work, tools=SLOW_TOOLS)


def test_ctrl_c_at_a_question_stops_the_answer(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Mail Ann.")
        await terminal.expect("Run it?")
        await terminal.press_until(CTRL_C, "stopped")
        await terminal.enter("two")
        await terminal.expect("All done.")
        assert prompts(upstream.requests[-1]) == ["two"]

    chatting(tmp_path, [MAIL, DONE], work)


def test_failed_prompt_is_sent_again_by_retry(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("one")
        await terminal.expect("First.")
        await terminal.enter("two")
        await terminal.expect("no answer: too long")
        await terminal.enter("/retry")
        await terminal.expect("Second.")
        assert prompts(upstream.requests[-1]) == ["one", "two"]

    chatting(tmp_path, [says("First."), Fault("invalid_request", "too long", 400), says("Second.")], work)


def test_ctrl_c_waits_for_a_write_that_has_begun(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Pay.")
        await until((tmp_path / "began").exists)
        terminal.type(CTRL_C)
        await terminal.expect("stopped; waiting for running calls")
        assert not (tmp_path / "paid").exists()
        (tmp_path / "go").touch()
        await terminal.expect("stopped")
        assert (tmp_path / "paid").exists()
        assert await terminal.leave() == 0

    chatting(tmp_path, [says(ToolCall("c1", "pay", {}))], work, "--yes", tools=SLOW_TOOLS)


def test_second_ctrl_c_leaves_without_waiting(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Pay.")
        await until((tmp_path / "began").exists)
        terminal.type(CTRL_C)
        await terminal.expect("stopped; waiting for running calls")
        terminal.type(CTRL_C)
        assert await asyncio.wait_for(terminal.process.wait(), 300) == 130
        assert not (tmp_path / "paid").exists()
        assert "Traceback" not in terminal.written, terminal.written

    chatting(tmp_path, [says(ToolCall("c1", "pay", {}))], work, "--yes", tools=SLOW_TOOLS)


def test_run_is_interrupted_with_exit_code_130(tmp_path):
    async def interrupt():
        async with Upstream(PartialReply(says("Once upon a time. " * 40), size=900, then="stall")) as upstream:
            command = ("run", "Go.", "-m", "vllm/any", "--base-url", upstream.url, "--store", "none")
            async with on_terminal(tmp_path, *command) as terminal:
                await terminal.expect("Once")
                terminal.type(CTRL_C)
                await terminal.expect("stopped")
                assert await asyncio.wait_for(terminal.process.wait(), 300) == 130
                assert "Traceback" not in terminal.written
            await upstream.disconnected()

    asyncio.run(interrupt())


def test_results_of_a_failed_answer_stay_in_the_history(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Weather?")
        await terminal.expect("no answer: too long")
        await terminal.enter("Again.")
        await terminal.expect("All done.")
        parts = [part for message in upstream.requests[-1].request.messages for part in message.parts]
        assert [type(part) for part in parts] == [Text, Text, ToolCall, ToolResult, Text]

    chatting(tmp_path, [WEATHER, Fault("invalid_request", "too long", 400), DONE], work)


def test_markdown_is_rendered_and_hostile_text_is_not_executed(tmp_path):
    text = "# Title\n\nSome **bold** text, \x1b[2J and `code`.\n\n- one\n\n```python\nx = 1\n```\n"

    async def work(terminal, upstream):
        await terminal.enter("Go.")
        await terminal.expect("x = 1")
        shown = terminal.written
        assert "\x1b[1mbold\x1b[0m" in shown and "\x1b[36mcode\x1b[0m" in shown
        assert "\x1b[2J" not in shown
        lines = without_styles(shown).splitlines()
        assert [line for line in lines if "# " in line or "**" in line] == []
        assert {"Title", "Some bold text, \\x1b[2J and code.", "• one", "```python"} <= set(lines)

    chatting(tmp_path, [says(text)], work, env={"TERM": "xterm"}, delta=3)


def test_arguments_are_shown_while_the_model_writes_them(tmp_path):
    async def work(terminal, upstream):
        await terminal.enter("Go.")
        await terminal.expect('→ send_mail {"to":"annannann')
        assert not upstream.disconnects
        terminal.type(CTRL_C)
        await terminal.expect("stopped")

    call = says(ToolCall("c1", "send_mail", {"to": "ann" * 100}))
    chatting(tmp_path, [PartialReply(call, size=2000, then="stall")], work)


def test_unreadable_saved_chat_is_wrong_usage(tmp_path):
    async def work(terminal, upstream):
        await terminal.expect("cannot read nothing.json")
        assert await terminal.process.wait() == 2

    chatting(tmp_path, [], work, "--resume", "nothing.json")


@pytest.mark.parametrize("text", ['{"toolwire_chat": 1, "messages": 3}', "[]]", '[{"role": 1}]'])
def test_invalid_saved_chat_is_wrong_usage(tmp_path, text):
    (tmp_path / "talk.json").write_text(text)

    async def work(terminal, upstream):
        assert await terminal.process.wait() == 2
        assert "Traceback" not in terminal.written

    chatting(tmp_path, [], work, "--resume", "talk.json")
