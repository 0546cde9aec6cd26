"""`toolwire trace`: recorded by a gateway, shown, replayed; and recordings as scripts for tests."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from gateway_client import HELLO, post
from serving import listening, upstream_rows
from toolwire import Response, Text
from toolwire.cli.main import main
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.observe.record import trace_writer
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault, Stop
from toolwire.testing import PartialReply, Upstream, load_trace, script_of

PATHS = {
    "anthropic": ("/v1/messages", {"model": "MODEL", "max_tokens": 9}),
    "openai_chat": ("/v1/chat/completions", {"model": "MODEL"}),
}
ASK = {"messages": [{"role": "user", "content": "hi"}], "top_k": 3, "metadata": {"user_id": "ann"}}
RESULT = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a door"}]},
]


@asynccontextmanager
async def recording(upstream, folder, **rows):
    document = {
        "upstreams": upstream_rows(upstream.url),
        "trace": {"record": str(folder)},
        "log": {"to": "nowhere"},
        **rows,
    }
    settings = parse_settings(document)
    telemetry = open_telemetry(settings, {})
    gateway = Gateway(settings, environment={}, sinks=telemetry.sinks, transports=telemetry.transports())
    try:
        async with listening(telemetry.wrap(gateway)) as url:
            yield url
    finally:
        await telemetry.aclose()


def record(tmp_path, *script, front="anthropic", wire="openai_chat", upstream_options=None, **more):
    async def scene():
        async with Upstream(*script, **(upstream_options or {})) as upstream, recording(upstream, tmp_path) as url:
            path, body = PATHS[front]
            body = {**body, **ASK, "model": f"{wire}/m", **more}
            return await post(url, path, body, {"anthropic-version": "2023-06-01", "x-request-id": "r-7"})

    answer = asyncio.run(scene())
    (file,) = tmp_path.glob("*.jsonl")
    return answer, file


def test_recording_contains_both_sides_of_the_exchange(tmp_path):
    _, file = record(tmp_path, HELLO)
    trace = load_trace(file)
    assert re.fullmatch(r"[\dT-]+Z-anthropic-openai_chat-r-7\.jsonl", file.name)
    assert file.stat().st_mode & 0o077 == 0
    assert (trace.id, trace.ingress.request.wire, trace.ingress.request.path) == ("r-7", "anthropic", "/v1/messages")
    assert trace.ingress.request.body["metadata"] == {"user_id": "[removed]"}
    (there,) = trace.upstreams
    assert (there.request.upstream, there.request.wire, there.request.path) == (
        "openai_chat",
        "openai_chat",
        "/chat/completions",
    )
    assert there.request.body["messages"] == ASK["messages"]
    assert there.answer.head.body["choices"][0]["message"]["content"] == "Hello"
    assert trace.ingress.answer.head.body["content"][0] == {"type": "text", "text": "Hello"}
    assert trace.outcome.calls == ("look",)
    assert "top_k" in {loss.concept for loss in trace.losses}
    assert 0 <= there.request.ms <= there.answer.head.ms <= trace.ingress.answer.head.ms <= trace.outcome.ms


def test_recorded_stream_keeps_its_pieces_and_times(tmp_path):
    (_, _, body), file = record(tmp_path, HELLO, stream=True, upstream_options={"piece": 50, "pace": 0.001})
    trace = load_trace(file)
    pieces = trace.upstreams[0].answer.pieces
    assert len(pieces) > 5
    assert [piece.ms for piece in pieces] == sorted(piece.ms for piece in pieces)
    assert trace.ingress.answer.data == body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("in_time", [False, True])
def test_recording_can_be_replayed_as_a_script(tmp_path, stream, in_time):
    (status, _, body), file = record(tmp_path / "first", HELLO, stream=stream)
    trace = load_trace(file)
    script = script_of(trace, in_time=in_time)
    (again_status, _, again), _ = record(tmp_path / "again", *script, stream=stream)
    assert (again_status, again) == (status, body)


def test_failures_are_recorded_and_replayed(tmp_path):
    _, file = record(tmp_path / "fault", Fault("rate_limit", "slow down", 429))
    assert load_trace(file).upstreams[0].answer.head.status == 429
    _, file = record(tmp_path / "reset", PartialReply(then="reset"))
    trace = load_trace(file)
    assert trace.upstreams[0].answer.head.error.startswith("ConnectionError")
    assert (trace.outcome.status, trace.outcome.error) == (502, "server")
    (status, _, _), _ = record(tmp_path / "again", *script_of(trace))
    assert status == 502


def test_requests_that_call_no_model_are_not_recorded(tmp_path):
    async def scene():
        async with Upstream() as upstream, recording(upstream, tmp_path) as url:
            await post(url, "/v1/messages/count_tokens", {"model": "anthropic/m", "messages": [], "max_tokens": 1})
            await post(url, "/nowhere", {})

    asyncio.run(scene())
    assert list(tmp_path.iterdir()) == []


def test_every_exchange_is_written_to_its_own_file(tmp_path):
    trace = load_trace(record(tmp_path / "first", HELLO)[1])
    keep = trace_writer(tmp_path / "many")
    for _ in range(3):
        keep(trace)
    assert [load_trace(file) for file in (tmp_path / "many").iterdir()] == [trace] * 3


@pytest.mark.finding("RU8")
def test_gateway_deletes_recordings_beyond_its_limits(tmp_path):
    for name in ("old", "older"):
        file = tmp_path / f"2026-11-18T060000-000Z-anthropic-openai-{name}.jsonl"
        file.write_text("")
        os.utime(file, (0, 0))

    async def scene():
        trace = {"record": str(tmp_path), "keep_days": 1}
        async with Upstream(HELLO) as upstream, recording(upstream, tmp_path, trace=trace) as url:
            await post(url, "/v1/messages", {**PATHS["anthropic"][1], **ASK, "model": "openai_chat/m"})

    asyncio.run(scene())
    (file,) = tmp_path.iterdir()
    assert load_trace(file).outcome.status == 200
    with pytest.raises(ConfigError, match="keep_days"):
        parse_settings({"trace": {"record": str(tmp_path), "keep_days": 0}})


def test_failed_recording_does_not_affect_the_answer(tmp_path, capfd):
    async def scene():
        folder = tmp_path / "gone"
        async with Upstream(HELLO) as upstream, recording(upstream, folder) as url:
            folder.rmdir()
            return await post(url, "/v1/messages", {**PATHS["anthropic"][1], **ASK, "model": "openai_chat/m"})

    assert asyncio.run(scene())[0] == 200
    assert "lost 1 recording" in capfd.readouterr().err


def test_show(tmp_path, capsys):
    said = Response(parts=(*HELLO.parts, Text("\x1b[31mred")), stop=Stop("tool_calls"))
    _, file = record(tmp_path, said, stream=True, messages=RESULT)
    assert main(["trace", "show", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("anthropic openai_chat/m → openai_chat/m   200   tool_calls")
    for words in ("POST /v1/messages", "openai_chat (openai_chat)", "stream, ", "a door", '{"a":1}', "top_k dropped"):
        assert words in out
    assert "\x1b" not in out
    assert main(["trace", "show", str(file), "--bodies"]) == 0
    assert '"tool_call_id": "c1"' in capsys.readouterr().out
    assert main(["trace", "show", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["calls"][0]["arguments"] == {"a": 1}
    assert document["results"][0]["call_id"] == "c1"
    assert document["outcome"]["upstream"] == "openai_chat"


def test_replay_offline(tmp_path, capsys):
    _, file = record(tmp_path, HELLO)
    assert main(["trace", "replay", str(file), "--to", "gemini"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert "anthropic → gemini" in shown.err
    assert main(["trace", "replay", str(file), "--to", "openai_chat", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["body"]["model"] == "openai_chat/m"
    assert "top_k" in {loss["concept"] for loss in document["losses"]}
    assert main(["trace", "replay", str(file), "--to", "gemini", "--run-reads"]) == 2
    assert "are for recorded runs, and this is an exchange" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "keeps"), [("anthropic", False), ("anthropic@2023-06-01", True)])
def test_loss_caused_by_an_api_version_names_the_version_and_the_fix(tmp_path, capsys, target, keeps):
    _, file = record(tmp_path, HELLO, front="openai_chat", temperature=0.5, seed=7)
    assert main(["trace", "replay", str(file), "--to", target, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    why = {loss["concept"]: loss["detail"] for loss in document["losses"]}
    assert why["seed"] == "anthropic has no such parameter"  # in no version
    assert ("temperature" in document["body"]) is keeps
    if not keeps:
        words = "API version 2026-10-21 has no such parameter; use the target anthropic@2023-06-01 to keep it"
        assert why["temperature"] == words


@pytest.mark.parametrize("alike", [True, False])
def test_replay_with_a_url_sends_the_request_and_compares_the_calls(tmp_path, capsys, monkeypatch, alike):
    monkeypatch.setenv("A_KEY", "the-key-of-it")
    _, file = record(tmp_path, HELLO)
    answer = HELLO if alike else Response(parts=(Text("No."),), stop=Stop("stop"))
    heard = []

    async def scene():
        async with Upstream(answer, answer) as upstream:
            command = ["trace", "replay", str(file), "--to", "gemini", "--url", upstream.url, "-m", "openai/x"]
            code = await asyncio.to_thread(main, [*command, "--key-env", "A_KEY"])
            heard.extend(upstream.requests)
            return code, await asyncio.to_thread(main, [*command, "--json"])

    assert asyncio.run(scene()) == ((0, 0) if alike else (1, 1))
    shown = capsys.readouterr()
    assert (heard[0].wire, heard[0].path) == ("gemini", "/v1beta/models/openai%2Fx:generateContent")
    assert "recorded" in shown.out
    assert ("the calls differ" in shown.err) is not alike
    assert "the-key-of-it" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "nowhere.json"], "cannot read nowhere.json"),
        (["show", "other.json"], "is not a trace: line 1"),
        (["record", "--to", "x"], "give either --config or --upstream"),
        (["record", "--to", "x", "--upstream", "nobody"], "unknown upstream 'nobody'"),
        (
            ["record", "--to", "x", "--upstream", "http://localhost:1", "--remove", "("],
            "is not a valid regular expression",
        ),
    ],
)
def test_wrong_usage(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert main(["trace", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_newer_trace_version_is_rejected(tmp_path):
    _, file = record(tmp_path, HELLO)
    file.write_text(file.read_text().replace('"toolwire_trace":2', '"toolwire_trace":3'))
    with pytest.raises(ConfigError, match="version 3"):
        load_trace(file)


def test_the_command_records_until_it_is_stopped(tmp_path):
    async def scene():
        async with Upstream(HELLO) as upstream:
            command = [
                sys.executable,
                "-m",
                "toolwire",
                "trace",
                "record",
                "--to",
                str(tmp_path / "traces"),
                "--port",
                "0",
            ]
            command += ["--upstream", f"openai_chat={upstream.url}", "--remove", "hi+", "--key-env", "A_KEY"]
            child = await asyncio.create_subprocess_exec(
                *command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "A_KEY": "sk-canary-0123456789"},
            )
            try:
                line = (await child.stdout.readline()).decode()
                url = re.search(r"http://\S+", line)[0]
                await post(url, "/v1/messages", {**PATHS["anthropic"][1], **ASK, "model": "gpt"})
            finally:
                child.send_signal(signal.SIGINT)
                _, errors = await child.communicate()
            return child.returncode, errors.decode(), upstream.requests

    code, errors, heard = asyncio.run(scene())
    assert code == 0, errors
    assert heard[0].headers["authorization"] == "Bearer sk-canary-0123456789"
    (file,) = (tmp_path / "traces").glob("*.jsonl")
    assert "sk-canary" not in file.read_text() + errors
    trace = load_trace(file)
    assert trace.upstreams[0].request.body["messages"] == [{"role": "user", "content": "[removed]"}]
    assert json.loads(errors.splitlines()[-1])["model"] == "gpt"
