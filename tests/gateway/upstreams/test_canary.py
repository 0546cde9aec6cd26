"""Canaries: keys, and secrets in bodies, that must not be seen in any log, metric, span, recording or error, whatever happens."""

import asyncio
import io
import json
import logging
from contextlib import asynccontextmanager, contextmanager

import pytest
import uvicorn
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway_client import HELLO, post
from serving import upstream_rows
from toolwire import Response, Text, ToolCall
from toolwire.gateway.answer.attempt import Attempt
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.observe.otel import OtelSink
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.ir.response import Fault, Stop
from toolwire.run.traces.redact import Redactor
from toolwire.testing import PartialReply, RawReply, Upstream
from waiting import SAFETY

UPSTREAM = "canary7upstream7key7abcdefgh"  # looks like nothing: it must be known
CLIENT = "canary7client7key7abcdefgh"
WRONG = "canary7wrong7key7abcdefgh"
SECRET = "sk-canary7secret7in7a7body"
PASSWORD = "canary7password"
PROMPT_TEXT = "canary7words7of7a7prompt"  # a recording may have these; nothing else may
MARK = "canary7"
ANSWER = Response(
    id="r1",
    parts=(Text(f"{PROMPT_TEXT} {SECRET}"), ToolCall("c1", "look", {"password": PASSWORD, "note": SECRET})),
    stop=Stop("tool_calls"),
)
TOOL = {"type": "function", "function": {"name": "look", "description": PROMPT_TEXT, "parameters": {"type": "object"}}}
BODY = {
    "model": "WIRE/m",
    "messages": [
        {"role": "system", "content": PROMPT_TEXT},
        {"role": "user", "content": f"{PROMPT_TEXT}; the key is {SECRET}"},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "c0",
                    "type": "function",
                    "function": {"name": "look", "arguments": json.dumps({"password": PASSWORD})},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c0", "content": json.dumps({"token": PASSWORD, "text": SECRET})},
    ],
    "tools": [TOOL],
    "user": f"{MARK}user",
    "metadata": {"a": f"{MARK}user"},
}
ECHO = {"error": {"message": f"Incorrect API key: {UPSTREAM}", "type": "invalid_request_error", "code": UPSTREAM}}
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}
LATE = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\ndata: %b\n\n' % json.dumps(ECHO).encode()
AUTH = {"authorization": f"Bearer {CLIENT}", "cookie": f"a={MARK}cookie", "x-odd": f"{MARK}header"}


class Crash:
    """A sink that fails, with words of a body in its error."""

    def begin(self, turn, asked, headers):
        raise RuntimeError(f"{PROMPT_TEXT} {headers}")

    def __call__(self, turn):
        raise RuntimeError(PROMPT_TEXT)


class ObservedGateway:
    """A gateway that tells everything to everybody, and all that was told."""

    def __init__(self, folder, upstream, timeout):
        key = folder / "key"
        key.write_text(UPSTREAM)
        self.folder = folder
        self.settings = parse_settings(
            {
                "upstreams": upstream_rows(upstream.url, key_file=str(key), timeout=timeout),
                "keys": {"ann": {"hash": hash_key(CLIENT)}},
                "log": {"file": str(folder / "access.log"), "bodies": True},
                "trace": {"record": str(folder / "traces")},
            }
        )
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.requests = io.StringIO()
        self.answers = []
        self.url = ""

    @asynccontextmanager
    async def running(self):
        self.telemetry = telemetry = open_telemetry(self.settings, {})
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        otel = OtelSink(tracers, MeterProvider([self.reader]), clean=telemetry.redactor)
        sinks = [Crash(), otel, *telemetry.sinks]
        gateway = Gateway(
            self.settings,
            environment={},
            sinks=sinks,
            metrics=telemetry.metrics,
            transports=telemetry.transports(),
        )
        config = uvicorn.Config(
            telemetry.wrap(gateway),
            port=0,
            log_config=None,
            log_level="trace",
            timeout_graceful_shutdown=1,
            ws="none",
        )
        server = uvicorn.Server(config)
        task = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110  # it has no event for that
            await asyncio.sleep(0.005)
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.should_exit = True
            await task
            self.page = telemetry.metrics().decode()
            await telemetry.aclose()

    async def ask(self, path="/v1/chat/completions", body=BODY, headers=AUTH, wire="openai_chat"):
        if isinstance(body, dict):
            body = {**body, "model": body["model"].replace("WIRE", wire)}
        self.answers.append(await post(self.url, path, body, headers))
        return self.answers[-1]

    def seen(self):
        """Everything but recordings, by its name."""
        return {
            "logs": self.requests.getvalue(),
            "access log": "\n".join(line for line in self.lines() if '"event":"exchange"' not in line),
            "metrics": self.page,
            "spans": "\n".join(span.to_json() for span in self.spans.get_finished_spans()),
            "histograms": self.reader.get_metrics_data().to_json() if self.reader.get_metrics_data() else "",
            "names of recordings": "\n".join(path.name for path in (self.folder / "traces").iterdir()),
        }

    def recordings(self):
        bodies = "\n".join(line for line in self.lines() if '"event":"exchange"' in line)
        return bodies + "".join(path.read_text() for path in (self.folder / "traces").iterdir())

    def lines(self):
        return (self.folder / "access.log").read_text().splitlines()


@contextmanager
def all_loggers_at_debug(out):
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    servers = [logging.getLogger(f"uvicorn{name}") for name in ("", ".error", ".access", ".asgi")]
    levels = {logger: logger.level for logger in (root, *servers)}  # uvicorn sets its own, and leaves them so
    root.addHandler(handler)
    root.setLevel(1)
    for logger in servers:  # a server without an access log, in another test, has switched it off
        logger.propagate = True
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in levels.items():
            logger.setLevel(level)


def watch(tmp_path, *script, scene, timeout=SAFETY):
    async def play():
        async with Upstream(*script) as upstream:
            watched = ObservedGateway(tmp_path, upstream, timeout)
            with all_loggers_at_debug(watched.requests):
                async with watched.running():
                    await scene(watched)
            return watched, upstream

    return asyncio.run(play())


def check(watched, *, answers=True):
    for name, text in watched.seen().items():
        assert MARK not in text, (name, [line for line in text.splitlines() if MARK in line][:3])
    assert MARK not in watched.recordings().replace(PROMPT_TEXT, ""), "recordings"
    if answers:
        assert MARK not in repr(watched.answers), watched.answers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "gemini"])
def test_successful_exchange_leaks_no_secrets(tmp_path, wire, stream):
    async def scene(watched):
        await watched.ask(body={**BODY, "stream": stream}, wire=wire)

    watched, upstream = watch(tmp_path, ANSWER, scene=scene)
    check(watched, answers=False)  # the client gets what the model said to it
    assert watched.answers[0][0] == 200
    assert UPSTREAM in repr(upstream.requests[0].headers)
    assert PROMPT_TEXT.encode() in upstream.requests[0].body
    for header in ("cookie", "x-odd"):
        assert header not in upstream.requests[0].headers
    assert "toolwire_requests_total{" in watched.page
    assert len(watched.spans.get_finished_spans()) == 1
    assert len(list((tmp_path / "traces").iterdir())) == 1
    assert PROMPT_TEXT in watched.recordings()
    for name in ("request_id", "ms", "upstream"):
        assert name in watched.lines()[-1] or name in watched.lines()[0]
    assert UPSTREAM not in repr(watched.answers)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
def test_upstream_key_echoed_in_an_error_is_not_leaked(tmp_path, wire, stream):
    script = (
        RawReply(json.dumps(ECHO).encode(), 401, JSON),
        RawReply(f"who is {UPSTREAM}?".encode(), 400, {"content-type": "text/plain", "x-key": UPSTREAM}),
        RawReply(LATE, 200, SSE),
        RawReply(json.dumps({**ECHO, "object": "error"}).encode(), 200, JSON),
    )

    async def scene(watched):
        for _ in script:
            await watched.ask(body={**BODY, "stream": stream}, wire=wire)

    watched, upstream = watch(tmp_path, *script, scene=scene)
    check(watched)
    assert len(upstream.requests) == len(script)


BAD = {
    "cut off": b'{"model": "openai_chat/m", "messages": [{"content": "%b %b' % (PROMPT_TEXT.encode(), SECRET.encode()),
    "no JSON": f"{PROMPT_TEXT} {SECRET}".encode(),
    "not UTF-8": PROMPT_TEXT.encode() + b"\xff\xfe" + SECRET.encode(),
    "twice": json.dumps({"model": "openai_chat/m"})[:-1].encode() + b', "x": "%b", "x": 1}' % PROMPT_TEXT.encode(),
    "messages of a wrong kind": {"model": "WIRE/m", "messages": PROMPT_TEXT},
    "content of a wrong kind": {"model": "WIRE/m", "messages": [{"role": "user", "content": {PROMPT_TEXT: SECRET}}]},
    "an unknown part": {
        "model": "WIRE/m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": [PROMPT_TEXT]}]}],
    },
    "tools of a wrong kind": {"model": "WIRE/m", "messages": [], "tools": [PROMPT_TEXT]},
    "a key in the body": {**BODY, "api_key": SECRET},
    "an address in the body": {**BODY, "base_url": f"http://host/{SECRET}"},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_unreadable_bodies_leak_no_secrets(tmp_path, body):
    async def scene(watched):
        status, _, _ = await watched.ask(body=body, wire="anthropic")
        assert 400 <= status < 500

    watched, upstream = watch(tmp_path, scene=scene)
    check(watched)
    assert upstream.requests == []


@pytest.mark.parametrize(
    "script",
    [
        (PartialReply(then="stall"),),
        (PartialReply(then="reset"),),
        (PartialReply(ANSWER, 150),),
        (PartialReply(ANSWER, 150, "stall"),),
        (RawReply(f"<html>{PROMPT_TEXT} {SECRET}</html>".encode(), 200, {"content-type": "text/html"}),),
        (RawReply(b'{"choices": "%b"}' % SECRET.encode(), 200, JSON),),
        (Fault("rate_limit", "slow down", 429),),
    ],
    ids=["silent", "reset", "cut", "silent later", "a page", "garbage", "too many requests"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_failing_upstreams_leak_no_secrets(tmp_path, script, stream):
    async def scene(watched):
        await watched.ask(
            body={**BODY, "stream": stream}, wire="anthropic" if "garbage" in repr(script) else "openai_chat"
        )

    watched, _ = watch(tmp_path, *script, scene=scene, timeout=2.0)
    check(watched, answers=False)
    (status, _, body) = watched.answers[0]
    assert status >= 400 or b"error" in body
    assert not any(one in repr(watched.answers) for one in (UPSTREAM, CLIENT, PASSWORD))


def test_rejected_client_keys_are_not_leaked(tmp_path):
    async def scene(watched):
        for headers in ({"authorization": f"Bearer {WRONG}"}, {"x-api-key": WRONG}, {"x-goog-api-key": WRONG}):
            assert (await watched.ask(headers=headers))[0] == 401
        assert (await watched.ask(f"/v1beta/models/gemini%2Fm:generateContent?key={WRONG}", headers={}))[0] == 401
        assert (await watched.ask(f"/v1/chat/completions?key={CLIENT}", headers={}))[0] == 200

    watched, _ = watch(tmp_path, HELLO, scene=scene)
    check(watched)
    assert "/v1/chat/completions?key=[removed]" in watched.requests.getvalue()  # the server's own log has the line


def test_secrets_in_model_names_and_ids_are_not_logged(tmp_path):
    async def scene(watched):
        await watched.ask(body={**BODY, "model": SECRET})
        await watched.ask(body={**BODY, "model": f"openai_chat/{SECRET}"})
        await watched.ask(headers={**AUTH, "x-request-id": SECRET})
        await watched.ask(body={**BODY, SECRET: SECRET}, wire="anthropic")

    watched, _ = watch(tmp_path, *[HELLO] * 3, scene=scene)
    check(watched, answers=False)


def test_rejected_losses_leak_no_secrets(tmp_path):
    async def scene(watched):
        headers = {**AUTH, "x-toolwire-strict": "1"}
        status, _, _ = await watched.ask(body={**BODY, "logit_bias": {PROMPT_TEXT: 1}}, headers=headers, wire="gemini")
        assert status == 400

    watched, upstream = watch(tmp_path, scene=scene)
    check(watched)
    assert upstream.requests == []


def test_internal_error_leaks_no_secrets(tmp_path, monkeypatch):
    async def broken(self):
        raise RuntimeError(f"{PROMPT_TEXT} {self._context.client_request.body!r} {UPSTREAM} {SECRET}")

    monkeypatch.setattr(Attempt, "run", broken)

    async def scene(watched):
        status, _, _ = await watched.ask()
        assert status == 500

    watched, _ = watch(tmp_path, scene=scene)
    check(watched)
    assert "builtins.RuntimeError" in watched.requests.getvalue()


def test_canaries_are_visible_without_redaction(tmp_path, monkeypatch):
    """The same scene without a guard: the canaries are where they are looked for."""
    monkeypatch.setattr(Redactor, "__call__", lambda self, text: text)
    monkeypatch.setattr(Redactor, "filter", lambda self, record: True)

    async def scene(watched):
        await watched.ask(body={**BODY, "model": f"openai_chat/{SECRET}"})

    watched, _ = watch(tmp_path, ANSWER, scene=scene)
    seen = watched.seen()
    assert {name for name, text in seen.items() if MARK in text} == set(seen) - {"names of recordings"}
    assert SECRET in watched.recordings()
