"""Servers that are processes: started, used, misbehaving, killed."""

import asyncio
import subprocess
import threading

import pytest

from mcp_client.client_helpers import McpClient, cancel_once, misbehaving, run, tool_call, toolbox_of, until, workshop
from mcp_server.server_process import effects_in
from toolwire.ir.errors import ProtocolError
from toolwire.mcp.client import Handlers, McpServers, ServerGone, ServerSpec, stdio
from toolwire.net.tools.runner import Runner
from toolwire.run.values.results import result_code
from waiting import SAFETY

ERAS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("version", ["auto", *ERAS])
def test_client_works_with_every_version_of_our_server(version):
    async def test():
        async with McpClient(workshop(protocol=version)) as client:
            assert client.greeting.version == (version if version != "auto" else "2026-07-28")
            assert (await client.call(tool_call("add", a=1, b=2))).text == "3"
            assert [one["uriTemplate"] for one in await client.resources()] == ["notes://{day}"]
            assert (await client.read("notes://monday"))[0]["text"] == "notes of monday"
            assert (await client.prompts())[0]["name"] == "review"
            assert "x = 1" in str(await client.get_prompt("review", {"code": "x = 1"}))

    run(test())


def test_handshake_server_is_detected():
    async def test():
        async with McpClient(misbehaving()) as client:
            assert client.greeting.version == "2025-11-25"
            assert (await client.call(tool_call("echo", text="hi"))).text == "hi"

    run(test())


def test_server_that_dies_on_discover_is_initialized_with_the_handshake():
    async def test():
        async with McpClient(misbehaving("dies-of-discover")) as client:
            assert (await client.call(tool_call("echo", text="hi"))).text == "hi"

    run(test())


def test_invalid_tools_are_skipped_and_the_others_kept():
    async def test():
        async with McpClient(misbehaving()) as client:
            assert "echo" in client.tools
            assert client.tools["echo"].description == "Says it again."
            return {problem.tool: problem.reason for problem in client.problems}

    problems = run(test())
    assert set(problems) == {"broken_schema", "no_object", "echo", "#5", "#6", "bad_header"}
    assert problems["echo"].startswith("declared twice")
    assert "nonsense" in problems["broken_schema"]


def test_endless_tool_list_is_an_error():
    with pytest.raises(ProtocolError, match="does not end"):
        run(McpClient(misbehaving("loops")).connect())


def test_server_that_never_initializes_times_out():
    with pytest.raises(ServerGone, match=r"did not initialize within 0\.5 seconds"):
        run(McpClient(misbehaving("never-greets", timeout=0.5, start_timeout=0.5)).connect())


def test_missing_command_raises_server_gone():
    with pytest.raises(ServerGone, match="cannot start x: no-such-command: No such file") as gone:
        run(McpClient(ServerSpec("x", command="no-such-command")).connect())
    assert not gone.value.sent


def test_concurrent_calls_receive_their_own_answers():
    async def test():
        async with McpClient(workshop()) as client:
            results = await asyncio.gather(*(client.call(tool_call("add", a=n, b=n)) for n in range(200)))
            assert [result.text for result in results] == [str(2 * n) for n in range(200)]

    run(test())


@pytest.mark.full
def test_ten_thousand_calls_over_one_connection():
    async def test():
        async with McpClient(workshop()) as client:
            right = 0
            for start in range(0, 10_000, 500):
                results = await asyncio.gather(
                    *(client.call(tool_call("add", a=n, b=1)) for n in range(start, start + 500))
                )
                right += sum(result.text == str(start + place + 1) for place, result in enumerate(results))
            assert right == 10_000
            assert not client.connection.link._pending
            assert not client._watched_requests

    asyncio.run(asyncio.wait_for(test(), 600))


def test_progress_is_reported():
    heard = []

    async def test():
        async with McpClient(workshop(), watch=lambda tool, progress: heard.append((tool, progress.message))) as client:
            await client.call(tool_call("nap", seconds=0.01))

    run(test())
    assert heard == [("nap", "half asleep")]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_cancellation_reaches_the_server(effects, version):
    async def test():
        heard = []
        spec = workshop(effects=effects, protocol=version)
        async with McpClient(spec, watch=lambda *progress: heard.append(progress)) as client:
            await cancel_once(lambda: heard, client.call(tool_call("nap", seconds=3600)))
            await until(lambda: effects_in(effects) == ["woken"])
            assert (await client.call(tool_call("add", a=1, b=1))).text == "2"

    run(test())


def test_timed_out_call_is_cancelled_on_the_server(effects):
    async def test():
        async with toolbox_of(misbehaving(effects=effects, timeout=5.0)) as (_, box):
            (result,) = await Runner(box).run([tool_call("slow")])
            assert result_code(result) == "outcome_unknown"
            await until(lambda: len(effects_in(effects)) == 2)
        began, cancelled = effects_in(effects)[:2]
        assert began.replace("began", "cancelled") == cancelled

    run(test())


@pytest.mark.parametrize(
    ("tool", "words"),
    [("deep", "nested more than 200 levels deep"), ("babble", "ends in the middle")],
)
def test_unreadable_answer_fails_only_its_own_call(tool, words):
    async def test():
        async with McpClient(misbehaving()) as client:
            sibling = asyncio.create_task(client.call(tool_call("slow")))
            with pytest.raises(ProtocolError, match=words):
                await client.call(tool_call(tool))
            assert (await client.call(tool_call("echo", text="still here"))).text == "still here"
            assert not sibling.done()
            sibling.cancel()

    run(test())


@pytest.mark.parametrize(("tool", "words"), [("unreadable", "cannot read a message"), ("huge", "line exceeds")])
def test_unattributable_output_breaks_the_connection(tool, words):
    async def test():
        async with McpClient(misbehaving(reconnects=0)) as client:
            with pytest.raises(ServerGone, match=words) as gone:
                await client.call(tool_call(tool))
            assert gone.value.sent
            assert words in client.unavailable_reason

    run(test())


def test_output_that_looks_like_a_batch_breaks_the_connection():
    async def test():
        async with McpClient(misbehaving()) as client:
            with pytest.raises(ServerGone):  # "[1, 2" begins like a batch, and is none
                await client.call(tool_call("noise"))

    run(test())


def test_server_death_during_a_call_reports_its_standard_error(monkeypatch):
    monkeypatch.setattr(stdio, "_EXIT_GRACE", SAFETY)

    async def test():
        async with McpClient(misbehaving(reconnects=0)) as client:
            waiting = [asyncio.create_task(client.call(tool_call("silent"))) for _ in range(3)]
            await until(lambda: len(client.connection.link._pending) == 3)
            with pytest.raises(
                ServerGone, match=r"m \(.*\) has ended with exit code \d+; its standard error: I have had enough"
            ):
                await client.call(tool_call("die"))
            gone = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(one) for one in gone] == [ServerGone] * 3

    run(test())


def test_dead_server_is_restarted():
    async def test():
        changes = []
        async with McpClient(misbehaving(), changed=lambda: changes.append(1)) as client:
            with pytest.raises(ServerGone):
                await client.call(tool_call("die"))
            assert client.unavailable_reason is not None
            await until(lambda: client.unavailable_reason is None)
            assert (await client.call(tool_call("echo", text="again"))).text == "again"
            assert len(changes) >= 2

    run(test())


def test_calls_during_a_restart_wait_for_initialization():
    async def test():
        async with McpClient(misbehaving()) as client:
            with pytest.raises(ServerGone):
                await client.call(tool_call("die"))
            calls = []
            while client.unavailable_reason is not None or len(calls) < 5:
                calls.append(asyncio.create_task(client.call(tool_call("echo", text=str(len(calls))))))
                await asyncio.sleep(0.002)
            results = await asyncio.gather(*calls)
            assert [result.text for result in results] == [str(number) for number in range(len(calls))]

    run(test())


def test_no_call_hangs_while_the_server_dies_and_restarts():
    async def test():
        async with McpClient(misbehaving()) as client:
            calls = [asyncio.create_task(client.call(tool_call("die")))]
            for _ in range(
                40
            ):  # one of them finds the server gone before its last words are heard, and opens another one
                await asyncio.sleep(0.005)
                calls.append(asyncio.create_task(client.call(tool_call("echo", text="?"))))
            _, waiting = await asyncio.wait(calls, timeout=SAFETY)
            assert not waiting
            assert isinstance(calls[0].exception(), ServerGone)

    run(test())


def test_write_with_a_lost_answer_is_not_resent(effects):
    async def test():
        async with toolbox_of(misbehaving(effects=effects)) as (servers, box):
            (result,) = await Runner(box).run([tool_call("die_before")])
            assert result_code(result) == "outcome_unknown"
            assert "may have taken effect" in result.text
            await until(lambda: servers.clients["m"].unavailable_reason is None)
        assert effects_in(effects).count("paid, and nobody will know") == 1

    run(test())


def test_read_with_a_lost_answer_is_resent(effects):
    """`die_before` is no read, but says that it is: what a trusted server says is believed."""

    async def test():
        async with toolbox_of(misbehaving(effects=effects)) as (_, box):
            from msgspec.structs import replace

            entry = box.find("die_before")
            reading = replace(entry, tool=replace(entry.tool, effect="read"))
            (result,) = await Runner(reading).run([tool_call("die_before")])
            assert result_code(result) in ("failed", "withdrawn")
        assert effects_in(effects).count("paid, and nobody will know") > 1

    run(test())


def test_idempotency_key_is_sent_to_the_server(effects):
    async def test():
        from toolwire.net.stores import open_store

        async with toolbox_of(misbehaving(effects=effects)) as (_, box):
            await Runner(box).run([tool_call("pay")])
            await Runner(box, store=open_store("memory:")).run([tool_call("pay")])
        assert effects_in(effects)[:2] == ["pay false", "pay true"]

    run(test())


def test_trace_context_is_included_in_the_metadata():
    from toolwire.mcp.protocol.meta import TraceContext

    async def test():
        spec = misbehaving()
        client = McpClient(spec, trace=lambda: TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
        async with client:
            assert client._meta().trace.parent.startswith("00-0af7")

    run(test())


def test_server_request_is_answered_with_or_without_a_handler():
    async def test():
        async with McpClient(misbehaving()) as client:
            assert "Method not found" in (await client.call(tool_call("ask"))).text
        async with McpClient(misbehaving(), handlers=Handlers(sample=lambda _: {"role": "assistant"})) as client:
            assert (await client.call(tool_call("ask"))).text == '{"role": "assistant"}'

    run(test())


def test_plain_handler_does_not_block_the_event_loop():
    asked, loop_ran = threading.Event(), threading.Event()

    def sample(_):
        asked.set()
        return {"loop_ran": loop_ran.wait(SAFETY)}

    async def test():
        async with McpClient(misbehaving(), handlers=Handlers(sample=sample)) as client:
            calling = asyncio.create_task(client.call(tool_call("ask")))
            await until(asked.is_set)
            loop_ran.set()
            return (await calling).text

    assert run(test()) == '{"loop_ran": true}'


def test_handler_that_returns_no_object_is_an_error_answer():
    async def test():
        async with McpClient(misbehaving(), handlers=Handlers(sample=lambda _: "yes")) as client:
            return (await client.call(tool_call("ask"))).text

    assert "the handler must return a dict, got str" in run(test())


def test_answer_goes_to_the_process_that_sent_the_request(effects):
    asked_for, may_answer = [], [asyncio.Event(), asyncio.Event()]

    async def sample(_):
        number = len(asked_for)
        asked_for.append(number)
        await may_answer[number].wait()
        return {"answer": number}

    async def test():
        async with McpClient(misbehaving(effects=effects), handlers=Handlers(sample=sample)) as client:
            first = asyncio.create_task(client.call(tool_call("ask")))
            await until(lambda: asked_for == [0])
            with pytest.raises(ServerGone):
                await client.call(tool_call("die"))
            with pytest.raises(ServerGone):
                await first
            await until(lambda: client.unavailable_reason is None)
            second = asyncio.create_task(client.call(tool_call("ask")))  # the new process numbers its questions alike
            await until(lambda: asked_for == [0, 1])
            may_answer[0].set()
            await asyncio.wait({second}, timeout=0.5)
            may_answer[1].set()
            return await second

    assert run(test()).text == '{"answer": 1}'


def test_too_many_unanswered_server_requests_break_the_connection():
    async def test():
        async def never(_):
            await asyncio.sleep(3600)

        async with McpClient(misbehaving(reconnects=0), handlers=Handlers(sample=never)) as client:
            with pytest.raises(ServerGone, match="unanswered requests by the server"):
                await client.call(tool_call("nag"))
            assert len(client.connection.tasks) < 2000

    run(test())


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_call_that_elicits_input_receives_it(effects, version):
    def colour(params):
        assert params["message"] == "Which colour?"
        return {"action": "accept", "content": {"colour": "red"}}

    async def test():
        spec = workshop(effects=effects, protocol=version)
        async with McpClient(spec, handlers=Handlers(elicit=colour)) as client:
            return await client.call(tool_call("order", item="car"))

    assert run(test()).text == "ordered a red car"
    assert effects_in(effects) == ["order car red"]


def test_changed_tool_list_is_fetched_again():
    async def test():
        changes = []
        async with McpClient(misbehaving(), changed=lambda: changes.append(1)) as client:
            before, seen = set(client.tools), len(changes)
            await client.call(tool_call("grow"))
            await until(lambda: len(changes) > seen)
            assert len(set(client.tools) - before) == 1

    run(test())


def test_removed_or_changed_tool_is_withdrawn():
    async def test():
        async with toolbox_of(misbehaving()) as (_, box):
            echo = box.find("echo")
            assert echo.withdrawn is None
            await Runner(box).run([tool_call("change")])
            await until(lambda: echo.withdrawn is not None)
            assert "has changed since it was offered" in echo.withdrawn
            await Runner(box).run([tool_call("shrink")])
            await until(lambda: "no longer offers it" in echo.withdrawn)
            (result,) = await Runner(box).run([tool_call("echo", text="x")])
            assert result_code(result) == "withdrawn"

    run(test())


def test_closing_the_client_leaves_no_process(effects, monkeypatch):
    monkeypatch.setattr(stdio, "_GRACE", SAFETY)

    async def test():
        async with McpClient(misbehaving(effects=effects)) as client:
            return client.connection.link._process

    process = run(test())
    assert process.returncode == 0  # it saw the end of its input
    assert effects_in(effects)[-1] == "input ended"
    listed = subprocess.run(["ps", "-o", "pid=", "-g", str(process.pid)], capture_output=True, text=True, check=False)
    assert listed.stdout.strip() == ""


def test_server_that_ignores_termination_is_killed(tmp_path):
    stubborn = tmp_path / "stubborn.sh"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\nsleep 1000 &\nexec sleep 1000\n", encoding="utf-8")
    stubborn.chmod(0o700)

    async def test():
        client = McpClient(ServerSpec("stubborn", command=str(stubborn), timeout=0.3, start_timeout=0.3))
        with pytest.raises(ServerGone):
            await client.connect()
        return client

    run(test())
    assert subprocess.run(["pgrep", "-f", str(stubborn)], capture_output=True, check=False).stdout == b""


def test_server_does_not_inherit_secret_environment_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    shows = tmp_path / "shows.sh"
    shows.write_text('#!/bin/sh\nenv > "$OUT"\n', encoding="utf-8")
    shows.chmod(0o700)
    out = tmp_path / "out"
    with pytest.raises(ServerGone):
        run(McpClient(ServerSpec("s", command=str(shows), env={"OUT": str(out)}, protocol="2025-11-25")).connect())
    assert "PATH=" in out.read_text()
    assert "sk-secret" not in out.read_text()


def test_unstartable_server_does_not_affect_the_others():
    async def test():
        dead = ServerSpec("dead", command="no-such-command")
        async with McpServers([dead, misbehaving()]) as servers:
            assert next(str(problem) for problem in servers.problems).startswith("dead: cannot start dead")
            assert servers.toolbox().find("echo") is not None
        with pytest.raises(ServerGone):
            async with McpServers([dead, misbehaving()], strict=True):
                pass

    run(test())


def test_slow_starting_server_still_negotiates_the_latest_version(monkeypatch):
    """By then it was asked the older question, too, and refuses that."""
    from toolwire.mcp.client import connection as negotiate_link

    monkeypatch.setattr(negotiate_link, "_PROBE_TIMEOUT", 0.05)

    async def test():
        async with McpClient(workshop()) as client:
            assert client.greeting.version == "2026-07-28"
            assert (await client.call(tool_call("add", a=1, b=2))).text == "3"

    run(test())


def test_call_timeout_applies_without_a_runner(effects):
    async def test():
        async with McpClient(misbehaving(effects=effects, timeout=5.0)) as client:
            with pytest.raises(ServerGone, match="did not answer in 5 seconds"):
                await client.call(tool_call("slow"))
            await until(lambda: len(effects_in(effects)) == 2)  # and the server was told
            assert (await client.call(tool_call("echo", text="hi"))).text == "hi"

    run(test())


def test_progress_callback_exception_does_not_affect_the_call():
    def watch(*_):
        raise RuntimeError("oops")

    async def test():
        async with McpClient(workshop(), watch=watch) as client:
            assert (await client.call(tool_call("nap", seconds=0.01))).text == "rested"

    run(test())
