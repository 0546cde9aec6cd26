"""`toolwire with`: settings, receipt, exit codes and the end of the child."""

import argparse
import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys

import pytest
from chat_terminal import CTRL_C, Terminal

from gateway_client import post, send
from serving import listening, serving
from tables import every_case
from toolwire import Response, Text, ToolCall
from toolwire.cli.main import _make_parser
from toolwire.cli.main import main as toolwire
from toolwire.cli.terminal.options import DEFAULT_MODEL
from toolwire.cli.wrapped.command import _Notes, session_settings
from toolwire.cli.wrapped.receipt import Receipt
from toolwire.gateway.app import Gateway
from toolwire.gateway.keys import hash_key
from toolwire.gateway.observe.log import AccessLog
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.run.traces.redact import Redactor
from toolwire.testing import Upstream
from waiting import SAFETY
from warm_command import WARM

KEY = "sk-tw-of-this-run"
ANSWER = Response("r", "m", (Text("Hi"), ToolCall("c1", "look", {})), Stop("tool_calls"), Usage(1000, 50, cached=800))
ASK = """
import json, os, sys, urllib.request
for variable, path in (("OPENAI_BASE_URL", "/chat/completions"), ("ANTHROPIC_BASE_URL", "/v1/messages")):
    body = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["TOOLWIRE_KEY"]}
    request = urllib.request.Request(os.environ[variable] + path, json.dumps(body).encode(), headers)
    print(urllib.request.urlopen(request).status)
print(any(os.environ["TOOLWIRE_KEY"] in word for word in sys.orig_argv), len(os.listdir("/proc/self/fd")))
"""
PYTHON = (sys.executable, "-I", "-S", "-c")


def parsed(*words):
    return _make_parser(["with"]).parse_args(["with", *words])


def settings_of(tmp_path, monkeypatch, *words, config=None):
    """Return the settings and the model for clients, in a folder with this settings file."""
    monkeypatch.chdir(tmp_path)
    if config is not None:
        (tmp_path / "toolwire.toml").write_text(config)
    return session_settings(parsed(*words, "--", "true"), KEY)


# --- settings


def test_every_name_is_answered_by_the_model(tmp_path, monkeypatch):
    settings, model = settings_of(tmp_path, monkeypatch, "-m", "ollama/qwen3:8b")
    assert model == "qwen3:8b"
    assert (settings.models["*"].upstream, settings.models["*"].model) == ("ollama", "qwen3:8b")
    assert settings.models[model] == settings.models["*"]


def test_session_has_its_own_port_key_and_nothing_on_disk(tmp_path, monkeypatch):
    config = """
        [server]
        host = "0.0.0.0"
        port = 4141
        secret = "0123456789abcdef0123456789abcdef"
        [keys.ann]
        hash = "%s"
        [state]
        url = "state.db"
        usage = "usage.db"
        [responses]
        store = "responses.db"
        [log]
        file = "log"
        [trace]
        record = "traces"
        [upstreams.house]
        base_url = "http://localhost:1/v1"
        [models.fast]
        upstream = "house"
        model = "qwen"
        """
    settings, model = settings_of(tmp_path, monkeypatch, config=config % hash_key("ann"))
    assert model == "fast"
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 0)
    assert [row.hash for row in settings.keys.values()] == [hash_key(KEY)]
    assert (settings.state.url, settings.state.usage, settings.trace.record, settings.log.file) == (None,) * 4
    assert settings.responses.store == "memory:"
    assert settings.server.secret == "0123456789abcdef0123456789abcdef"


ROWS = '[upstreams.house]\nbase_url = "http://localhost:1/v1"\n[models.fast]\nupstream = "house"\nmodel = "qwen"\n'
OLLAMA = '[upstreams.ollama]\nbase_url = "https://gpu.house:11434"\n'
EVERY_NAME = '[models."*"]\nupstream = "house"\nmodel = "large"\n'


@every_case(
    "model, more, upstream",
    [
        ("fast", "", ("house", "qwen")),
        ("house/other", "", ("house", "other")),
        ("big-7", '[models."big-*"]\nupstream = "house"\nmodel = "large-*"\n', ("house", "large-7")),
        ("plain", '[models.plain]\nupstream = "house"\n', ("house", "plain")),
        ("local/smollm2", "", ("local", "smollm2")),
        ("local/smollm2", EVERY_NAME, ("local", "smollm2")),
        ("ollama:qwen3", EVERY_NAME, ("ollama", "qwen3")),
        ("house/other", EVERY_NAME, ("house", "other")),
        ("house:other", EVERY_NAME, ("house", "other")),
        ("Ollama/qwen3", EVERY_NAME + OLLAMA, ("ollama", "qwen3")),
        ("ollama:qwen3", EVERY_NAME + OLLAMA, ("ollama", "qwen3")),
        ("local/smollm2", EVERY_NAME.replace("*", "?*"), ("local", "smollm2")),
        ("other", EVERY_NAME, ("house", "large")),
        ("their/other", EVERY_NAME, ("house", "large")),
        ("mistral:7b", EVERY_NAME.replace("large", "*"), ("house", "mistral:7b")),
        ("mistral:latest", EVERY_NAME.replace("large", "*"), ("house", "mistral:latest")),
        ("mistral:7b", EVERY_NAME + '[upstreams.mistral]\nbase_url = "http://localhost:2/v1"\n', ("house", "large")),
        ("mistral/7b", EVERY_NAME + '[upstreams.mistral]\nbase_url = "http://localhost:2/v1"\n', ("mistral", "7b")),
        ("house:v2", EVERY_NAME, ("house", "v2")),
        (
            "local/smollm2",
            EVERY_NAME + '[models."local/*"]\nupstream = "house"\nmodel = "my-*"\n',
            ("house", "my-smollm2"),
        ),
        (
            "local/smollm2",
            EVERY_NAME + '[models."local/smollm2"]\nupstream = "house"\nmodel = "own"\n',
            ("house", "own"),
        ),
    ],
)
def test_model_of_the_settings_file_answers_every_other_name(tmp_path, monkeypatch, model, more, upstream):
    settings, _ = settings_of(tmp_path, monkeypatch, "-m", model, config=ROWS + more)
    assert (settings.models["*"].upstream, settings.models["*"].model) == upstream
    assert settings.models["fast"].model == "qwen"


def test_upstreams_of_the_settings_file_keep_their_addresses(tmp_path, monkeypatch):
    for model in ("Ollama/qwen3", "ollama:qwen3"):
        settings, _ = settings_of(tmp_path, monkeypatch, "-m", model, config=ROWS + EVERY_NAME + OLLAMA)
        assert settings.upstreams["ollama"].base_url == "https://gpu.house:11434"
    words = ("-m", "ollama/qwen3", "--base-url", "http://localhost:9")
    settings, _ = settings_of(tmp_path, monkeypatch, *words, config=ROWS + OLLAMA)
    assert settings.upstreams["ollama"].base_url == "https://gpu.house:11434"
    assert settings.upstreams[settings.models["*"].upstream].base_url == "http://localhost:9"


def test_options_of_a_model_of_the_settings_file_are_used_or_refused(tmp_path, monkeypatch):
    for model in ("house/other", "house:other", "fast"):
        settings, _ = settings_of(tmp_path, monkeypatch, "-m", model, "--text", "hermes", config=ROWS)
        assert settings.models["*"].emulation.format == "hermes"
        with pytest.raises(ConfigError, match="--key-env"):
            settings_of(tmp_path, monkeypatch, "-m", model, "--key-env", "HOME", config=ROWS)


def test_text_format_and_server_are_used(tmp_path, monkeypatch):
    words = ("-m", "llama", "--base-url", "http://localhost:8080/v1", "--text", "hermes")
    settings, model = settings_of(tmp_path, monkeypatch, *words)
    row = settings.models["*"]
    assert (model, settings.upstreams[row.upstream].base_url) == ("llama", "http://localhost:8080/v1")
    assert row.emulation.format == "hermes"


def test_servers_of_hosted_tools_are_added_to_those_of_the_settings(tmp_path, monkeypatch):
    config = '[hosted.web_fetch]\nmcp = "http://localhost:1/mcp"\n[hosted.web_search]\nmcp = "http://localhost:2/mcp"\n'
    words = (
        "-m",
        "local/smollm2",
        "--hosted",
        "web_search=npx -y search",
        "--hosted",
        "code_execution=http://localhost:3/mcp",
    )
    settings, _ = settings_of(tmp_path, monkeypatch, *words, config=config)
    rows = {kind: row.mcp or row.command for kind, row in settings.hosted.rows.items()}
    assert rows == {
        "web_search": "npx -y search",
        "web_fetch": "http://localhost:1/mcp",
        "code_execution": "http://localhost:3/mcp",
    }


def test_model_of_the_other_commands_answers_without_a_model_and_settings(tmp_path, monkeypatch, capsys):
    settings, model = settings_of(tmp_path, monkeypatch)
    assert (model, settings.upstreams[settings.models["*"].upstream].provider) == ("smollm2", "local")
    shown = " ".join(capsys.readouterr().err.split())
    assert f"no model is given: {DEFAULT_MODEL} answers" in shown


def test_models_of_the_settings_precede_the_default_model(tmp_path, monkeypatch, capsys):
    _, model = settings_of(tmp_path, monkeypatch, config=ROWS)
    assert model != DEFAULT_MODEL
    assert capsys.readouterr().err == ""


@every_case(
    "words, message",
    [
        (["--base-url", "http://localhost:8080/v1"], "no model is given"),
        (["-m", "nope/x"], "unknown provider 'nope'"),
        (["-m", "fast"], "'fast' has no provider"),
        (["-m", "openai/gpt-5.6", "--key-env", "NOT_SET"], "NOT_SET is not set"),
        (["--config", "missing.toml"], "missing.toml"),
        (["-m", "local/smollm2", "--hosted", "web_serch=npx search"], "web_serch"),
        (["-m", "local/smollm2", "--hosted", "web_search="], "no tool and server"),
    ],
)
def test_wrong_model_is_an_error_before_the_command_starts(tmp_path, monkeypatch, words, message):
    for name in ("OPENAI_API_KEY", "NOT_SET"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=message):
        settings_of(tmp_path, monkeypatch, *words)


@every_case(
    "words, code, message",
    [
        (["-m", "local/smollm2"], 2, "a command is missing"),
        (["-m", "local/smollm2", "--"], 2, "a command is missing"),
        (["-m", "local/smollm2", "--", "no-such-program"], 127, "no-such-program: command not found"),
        (["-m", "local/smollm2", "--", __file__], 126, "permission denied"),
        (["--price", "cheap", "-m", "local/smollm2", "--", "true"], 2, "invalid price"),
    ],
)
def test_command_that_cannot_be_run_has_the_exit_code_of_a_shell(capfd, words, code, message):
    assert toolwire(["with", *words]) == code
    assert message in capfd.readouterr().err


@pytest.mark.anyio
async def test_gateway_refuses_other_users_and_web_pages(tmp_path, monkeypatch):
    """DNS rebinding: a page makes a browser send requests to this machine under the page's own name."""
    chat = {"model": "x", "messages": [{"role": "user", "content": "hi"}]}
    owned = {"authorization": f"Bearer {KEY}"}
    async with Upstream(ANSWER) as upstream:
        settings, _ = settings_of(tmp_path, monkeypatch, "-m", "any", "--base-url", upstream.url)
        assert settings.limits.loop_delay >= 60  # the only client is not refused on a busy machine
        gateway = Gateway(settings, environment={})
        async with listening(gateway, lambda: gateway.limits) as url:
            statuses = [
                (await post(url, body=chat, headers=headers))[0]
                for headers in (
                    {},
                    {"authorization": f"Bearer {KEY}x"},
                    {**owned, "host": "evil.example"},
                    {**owned, "origin": "https://evil.example"},
                    owned,
                )
            ]
            metrics, _, _ = await send("GET", f"{url}/metrics", headers=owned)
    assert statuses == [401, 401, 403, 403, 200]
    assert metrics == 403


@pytest.mark.anyio
async def test_closed_standard_error_does_not_change_the_exit_code(tmp_path):
    read, write = os.pipe()
    os.close(read)
    process = await asyncio.create_subprocess_exec(
        *WARM, "with", "-m", "any", "--base-url", "http://localhost:1", "--", "sh", "-c", "exit 7",
        cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=write,
    )  # fmt: skip
    os.close(write)
    async with asyncio.timeout(SAFETY):
        assert await process.wait() == 7


# --- the receipt


def sums_of_log(lines):
    """Sum the lines of the access log that the command's requests have."""
    documents = [json.loads(line) for line in lines]
    own = [line for line in documents if line.get("action") == "generate" and line.get("key")]
    return {
        "turns": len(own),
        "failed": sum("error" in line for line in own),
        "calls": sum(line.get("calls", 0) for line in own),
        "in": sum(line.get("tokens", {}).get("input", 0) for line in own),
        "out": sum(line.get("tokens", {}).get("output", 0) for line in own),
        "losses": sum(line.get("losses", 0) for line in own),
    }


def sums_of_receipt(text):
    """Sum the rows of a printed receipt."""
    rows = dict(re.findall(r"^  (\w+) +(.*)$", text.replace(",", ""), re.MULTILINE))
    tokens = re.match(r"(\d+) in.*? (\d+) out", rows["tokens"])
    failed = re.search(r"(\d+) failed", rows["turns"])
    first = {name: int(re.match(r"\d+", rows[name])[0]) for name in ("turns", "calls", "losses")}
    return {**first, "failed": int(failed[1]) if failed else 0, "in": int(tokens[1]), "out": int(tokens[2])}


@pytest.mark.anyio
async def test_receipt_equals_the_access_log(capfd):
    receipt, lines = Receipt(lambda response: response.usage.input * 0.001), []
    document = {
        "upstreams": {"up": {"wire": "anthropic", "retries": 0}},
        "models": {"*": {"upstream": "up", "model": "m"}},
        "keys": {"with": {"hash": hash_key(KEY)}},
    }
    owned, chat = {"authorization": f"Bearer {KEY}"}, {"model": "x", "messages": [{"role": "user", "content": "hi"}]}
    async with Upstream(ANSWER, ANSWER, Fault("rate_limit", "slow down", 429)) as upstream:
        document["upstreams"]["up"]["base_url"] = upstream.url
        async with serving(document, sinks=[receipt, AccessLog(lines.append)]) as gateway:
            await post(gateway.url, body={**chat, "seed": 7, "logit_bias": {"1": 2}}, headers=owned)
            await post(gateway.url, "/v1/responses", {"model": "x", "input": "hi", "stream": True}, owned)
            await post(gateway.url, body=chat, headers=owned)
            await post(gateway.url, body=b"no JSON", headers=owned)
            await post(gateway.url, body=chat)
            await post(gateway.url, body=chat, headers={"authorization": "Bearer sk-tw-another"})
    receipt.print(recording=None, unrecorded=0, clean=str, settings_file="house.toml")
    printed = capfd.readouterr().err
    assert "settings  house.toml" in printed
    assert sums_of_receipt(printed) == sums_of_log(lines)
    assert sums_of_log(lines) | {"losses": 0} == {
        "turns": 4, "failed": 2, "calls": 2, "in": 2000, "out": 100, "losses": 0
    }  # fmt: skip
    assert sums_of_log(lines)["losses"] >= 2
    assert re.search(r"losses +\d+: .*(seed|logit_bias).*; \d+ info: ", printed)
    assert "2,000 in (80% cached)" in printed
    assert re.search("cost +2.0000", printed)
    assert "refused 2 requests without the key" in printed
    assert "up/m" in printed


def test_receipt_of_hostile_names_is_bounded_and_has_no_control_characters(capfd):
    receipt = Receipt(None)
    log = argparse.Namespace(
        action="generate", caller="with", error=None, upstream="up", upstream_model="\x1b[31mred", usage=None,
        is_estimated=False, losses=(), count_losses=dict, info_counts={},
    )  # fmt: skip
    for number in range(2000):
        log.calls = (f"tool\n{number}", "look")
        receipt(log)
    receipt.print(recording=None, unrecorded=0, clean=str)
    printed = capfd.readouterr().err
    assert "\x1b" not in printed
    assert sums_of_receipt(printed.replace("unknown", "0 in, 0 out"))["calls"] == 4000
    assert len(printed.splitlines()) < 10


def test_warnings_of_other_libraries_are_printed_without_keys(capfd):
    notes = _Notes()
    for number in range(7):
        notes.handle(logging.LogRecord("httpx", logging.WARNING, "", 0, "%s failed with %s", (number, KEY), None))
    notes.print(Redactor([KEY]))
    printed = capfd.readouterr().err
    assert "0 failed with [removed]" in printed
    assert "2 more warnings" in printed
    assert KEY not in printed


def test_equal_warnings_are_printed_once_with_their_count(capfd):
    notes = _Notes()
    for number in [1, 1, 2, 1, *range(3, 9), 1]:
        notes.handle(logging.makeLogRecord({"name": "toolwire", "msg": f"warning {number}"}))
    notes.print(str)
    printed = capfd.readouterr().err.splitlines()
    assert [line.strip() for line in printed] == [
        "warning 1 (4 times)", "warning 2", "warning 3", "warning 4", "warning 5", "and 3 more warnings"
    ]  # fmt: skip


# --- the command


async def run_with(tmp_path, *words, command, env=None):
    """Run `toolwire with` in a folder of its own; return the exit code and the output."""
    process = await asyncio.create_subprocess_exec(
        *WARM, "with", *words, "--", *command,
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path), **(env or {})},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(SAFETY):
        printed, errors = await process.communicate()
    return process.returncode, printed.decode(), errors.decode()


@pytest.mark.anyio
async def test_command_is_answered_and_recorded_and_leaves_nothing_else(tmp_path):
    recording = tmp_path / "session.jsonl"
    async with Upstream(ANSWER, ANSWER) as upstream:
        words = ("-m", "any", "--base-url", upstream.url, "--record", str(recording), "--price", "3/15")
        code, printed, errors = await run_with(tmp_path, *words, command=(*PYTHON, ASK))
    assert (code, printed) == (0, "200\n200\nFalse 4\n"), errors  # the fourth file is the listed folder
    assert sums_of_receipt(errors) | {"losses": 0} == {
        "turns": 2, "failed": 0, "calls": 2, "in": 2000, "out": 100, "losses": 0
    }  # fmt: skip
    assert "cost    0.0075" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["session.jsonl"]
    assert recording.stat().st_mode & 0o777 == 0o600
    assert b"sk-tw-" not in recording.read_bytes()
    assert toolwire(["trace", "show", str(recording)]) == 0
    assert toolwire(["trace", "replay", str(recording), "--exchange", "2", "--to", "gemini"]) == 0
    assert toolwire(["trace", "replay", str(recording), "--to", "gemini"]) == 2


@pytest.mark.anyio
async def test_existing_file_is_not_recorded_over(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    code, printed, errors = await run_with(
        tmp_path, "-m", "any", "--base-url", "http://localhost:1", "--record", "notes.txt", command=("echo", "ran")
    )
    assert (code, printed) == (2, "")
    assert "notes.txt exists" in errors
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.anyio
@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -INT $$", 130)])
async def test_exit_code_of_the_command_is_passed_on(tmp_path, script, code):
    words = ("-m", "any", "--base-url", "http://localhost:1")
    found, _, errors = await run_with(tmp_path, *words, command=("sh", "-c", script))
    assert found == code
    assert "turns" in errors


UNTIL_SIGNAL = "trap 'exit 9' TERM INT HUP; echo ready; while :; do sleep 0.1; done"


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
async def test_signal_without_a_terminal_is_forwarded(tmp_path, number):
    process = await started(tmp_path, "sh", "-c", UNTIL_SIGNAL)
    assert await process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    async with asyncio.timeout(SAFETY):
        _, errors = await process.communicate()
    assert (process.returncode, b"turns" in errors) == (9, True)


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the child only on Linux")
async def test_killed_toolwire_leaves_no_process(tmp_path):
    process = await started(tmp_path, "sh", "-c", "echo $$; exec sleep 1000")
    child = os.pidfd_open(int(await process.stdout.readline()))
    try:
        process.kill()
        await process.wait()
        has_ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(child, lambda: has_ended.done() or has_ended.set_result(None))
        async with asyncio.timeout(SAFETY):
            await has_ended
    finally:
        asyncio.get_running_loop().remove_reader(child)
        os.close(child)


async def started(tmp_path, *command):
    return await asyncio.create_subprocess_exec(
        *WARM, "with", "-m", "any", "--base-url", "http://localhost:1", "--", *command,
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


# A shell with job control: it starts the command in the background, and continues it in the foreground when it stops.
SHELL = """
import os, signal, sys
terminal = os.open(sys.argv[1], os.O_RDWR)  # of a new session: its controlling terminal
for number in range(3):
    os.dup2(terminal, number)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    status = os.waitpid(job, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        break
    print("stopped by", signal.Signals(os.WSTOPSIG(status)).name, flush=True)
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
os.tcsetpgrp(0, os.getpgrp())
print("ended with", os.waitstatus_to_exitcode(status), flush=True)
"""
# It starts no process: a stop between the vfork and the exec of a shell's command leaves the shell running, also without
# toolwire, because its parent waits for the stopped child.
JOB = """
import sys, time
try:
    print("got", input(), flush=True)
    while True:
        time.sleep(0.05)  # not signal.pause(), which misses a signal that arrives just before it
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


@pytest.mark.anyio
async def test_job_control_is_that_of_the_bare_command(tmp_path):
    """A background job that reads the terminal stops; it continues in the foreground; Ctrl-Z and Ctrl-C reach it."""
    ours, theirs = os.openpty()
    words = ("-m", "toolwire", "with", "-m", "any", "--base-url", "http://localhost:1", "--", *PYTHON, JOB)
    shell = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", SHELL, os.ttyname(theirs), sys.executable, *words,
        cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    try:
        terminal = Terminal(shell, ours)
        await terminal.expect("stopped by SIGTTIN")
        terminal.type("hello\n")
        await terminal.expect("got hello")
        terminal.type("\x1a")
        await terminal.expect("stopped by SIGTSTP")
        terminal.type(CTRL_C)
        await terminal.expect("interrupted")
        await terminal.expect("turns")
        await terminal.expect("ended with 3")
        await shell.wait()
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        if shell.returncode is None:
            shell.kill()
        await shell.wait()
        os.close(theirs)
        os.close(ours)
