"""Telemetry as the settings say, on a gateway that runs."""

import asyncio
import builtins
import json
import logging
import re
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway_client import CHAT_REQUEST, HELLO, post, send
from serving import listening, upstream_rows
from toolwire._extras import install_command
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.observe.otel import OtelSink
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.ir.errors import ConfigError, MissingExtra
from toolwire.testing import Upstream, load_trace


@asynccontextmanager
async def running(document, environment=None, **options):
    settings = parse_settings(document)
    telemetry = open_telemetry(settings, environment or {}, **options)
    gateway = Gateway(
        settings,
        environment={},
        sinks=telemetry.sinks,
        metrics=telemetry.metrics,
        transports=telemetry.transports(),
    )
    try:
        async with listening(telemetry.wrap(gateway)) as url:
            yield url
    finally:
        await telemetry.aclose()


def ask_once(document, **options):
    async def scene():
        async with (
            Upstream(HELLO) as upstream,
            running({"upstreams": upstream_rows(upstream.url), **document}, **options) as url,
        ):
            await post(url, body={**CHAT_REQUEST, "model": "anthropic/m", "top_logprobs": 2, "logprobs": True})
            for path in ("/health", "/ready", "/metrics"):
                status, _, page = await send("GET", url + path)
                assert status == 200
            return page.decode()

    return asyncio.run(scene())


def test_metrics_page_and_access_log_describe_the_request(capsys):
    page = ask_once({})
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert {name for name in families if name.startswith("toolwire")} >= {
        "toolwire_requests",
        "toolwire_request_duration_seconds",
        "toolwire_time_to_first_chunk_seconds",
        "toolwire_overhead_seconds",
        "toolwire_tool_calls",
        "toolwire_losses",
        "toolwire_repairs",
        "toolwire_requests_in_flight",
        "toolwire_upstream_attempts",
        "toolwire_tokens",
    }
    (sample,) = families["toolwire_requests"].samples
    assert (sample.name, sample.value) == ("toolwire_requests_total", 1)
    assert sample.labels == {
        "ingress": "openai_chat",
        "upstream": "anthropic",
        "model": "anthropic/m",
        "status": "200",
    }
    assert families["toolwire_requests_in_flight"].samples[0].value == 0
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["event"], line["status"], line["calls"], line["tokens"]) == (
        "request",
        200,
        1,
        {"input": 3, "output": 4},
    )
    assert line["losses"] >= 2
    assert "logprobs" in line["lost"]


def test_access_log_goes_to_a_file_or_is_disabled(tmp_path, capsys):
    ask_once({"log": {"file": str(tmp_path / "log")}})
    assert json.loads((tmp_path / "log").read_text())["status"] == 200
    ask_once({"log": {"to": "nowhere"}})
    ask_once({}, lines=False)
    assert capsys.readouterr().err == ""


def test_access_log_goes_to_python_logging(caplog):
    caplog.set_level(logging.INFO, "toolwire.gateway.access")
    ask_once({"log": {"to": "logger"}})
    assert [json.loads(record.message)["status"] for record in caplog.records] == [200]


def test_bodies_are_logged_only_when_enabled(tmp_path):
    ask_once({"log": {"file": str(tmp_path / "log"), "bodies": True, "remove": ["h[i]"]}})
    request, exchange = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (request["event"], exchange["event"]) == ("request", "exchange")
    assert request["request_id"] == exchange["request_id"]
    assert exchange["events"][0]["body"]["messages"] == [{"role": "user", "content": "[removed]"}]
    answer = next(event for event in exchange["events"] if event["event"] == "http_response" and event["span"] == 2)
    assert answer["body"]["content"][0]["text"] == "Hello"


def test_other_log_records_are_written_as_json_lines(capsys):
    async def scene():
        async with running({"upstreams": {"a": {"base_url": "http://127.0.0.1:1"}}}):
            logging.getLogger("toolwire.gateway").warning("mind the %s", "gap")
        logging.getLogger("toolwire.gateway").warning("nobody guards this one")

    asyncio.run(scene())
    lines = capsys.readouterr().err.splitlines()
    assert json.loads(lines[0])["message"] == "mind the gap"
    assert not any("nobody" in line and line.startswith("{") for line in lines)


@pytest.mark.finding("U7")
def test_records_of_the_gateway_go_to_the_given_handler_from_level_info(capsys):
    texts = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("toolwire.gateway")

    async def check():
        telemetry = open_telemetry(parse_settings({}), {}, lines=False, log_handler=handler)
        logger.info("settings reloaded")
        await telemetry.aclose()

    asyncio.run(check())
    logger.info("after the end")
    assert texts == ["settings reloaded"]
    assert logger.level == logging.NOTSET
    assert capsys.readouterr().err == ""


def test_spans_are_enabled_by_the_environment_or_the_settings(monkeypatch):
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    for name, value in there.items():
        monkeypatch.setenv(name, value)

    def has_spans(environment, **trace):
        settings = parse_settings({"upstreams": {"a": {"base_url": "http://127.0.0.1:1"}}, "trace": trace})
        telemetry = open_telemetry(settings, environment)
        asyncio.run(telemetry.aclose())
        return [isinstance(sink, OtelSink) for sink in telemetry.sinks].count(True), len(telemetry.observers)

    assert has_spans(there) == has_spans({}, otel=True) == (1, 1)
    for environment, trace in (({}, {}), (there, {"otel": False}), ({**there, "OTEL_SDK_DISABLED": "true"}, {})):
        assert has_spans(environment, **trace) == (0, 0)


def test_missing_opentelemetry_is_reported(monkeypatch, capsys):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    rows = {"upstreams": {"a": {"base_url": "http://127.0.0.1:1"}}}
    telemetry = open_telemetry(parse_settings(rows), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
    asyncio.run(telemetry.aclose())
    assert install_command("otel") in capsys.readouterr().err
    with pytest.raises(MissingExtra, match=re.escape(install_command("otel"))):
        open_telemetry(parse_settings({**rows, "trace": {"otel": True}}), {})
    assert logging.getLogger("toolwire").handlers == []


def test_secrets_of_new_settings_are_redacted(tmp_path, caplog):
    rows = {"base_url": "http://127.0.0.1:1", "key_env": "A"}
    before = parse_settings({"upstreams": {"a": rows}, "log": {"to": "logger"}})
    environment = {"A": "the-first-key", "B": "the-second-key"}
    telemetry = open_telemetry(before, environment)
    telemetry.add_secrets(
        parse_settings(
            {
                "upstreams": {"a": {**rows, "key_env": "B"}},
                "state": {"url": "redis://:a-pass-word@host/0"},
            }
        )
    )
    logging.getLogger("toolwire.x").warning("the-first-key the-second-key a-pass-word")
    asyncio.run(telemetry.aclose())
    assert caplog.messages == ["[removed] [removed] [removed]"]


def test_invalid_redaction_pattern_is_rejected():
    with pytest.raises(ConfigError, match="not a valid regular expression"):
        parse_settings({"log": {"remove": ["("]}})


def test_recording_uses_the_environment_proxy(tmp_path):
    async def scene():
        seen = []

        async def proxy(reader, writer):
            seen.append(await reader.readline())
            writer.close()

        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        environment = {"HTTPS_PROXY": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        row = {"base_url": "https://model.example.com", "wire": "openai_chat", "retries": 0}
        document = {"upstreams": {"far": row}, "trace": {"record": str(tmp_path)}}
        async with server, running(document, environment) as url:
            status, _, _ = await post(url, body={**CHAT_REQUEST, "model": "far/m"})
        return status, seen

    assert asyncio.run(scene()) == (502, [b"CONNECT model.example.com:443 HTTP/1.1\r\n"])


def test_password_in_an_environment_variable_is_redacted():
    settings = parse_settings({"state": {"url_env": "STATE", "usage_env": "USAGE"}})
    environment = {"STATE": "redis://:in-redis-4711@db/0", "USAGE": "postgresql://me:in-postgres-4711@db/usage"}
    telemetry = open_telemetry(settings, environment, lines=False)
    assert telemetry.redactor("in-redis-4711 and in-postgres-4711") == "[removed] and [removed]"
    asyncio.run(telemetry.aclose())


def test_upstream_added_by_new_settings_is_recorded(tmp_path):
    async def run():
        async with Upstream(HELLO) as upstream:
            rows = upstream_rows(upstream.url)
            record = {"trace": {"record": str(tmp_path)}}
            old = parse_settings({"upstreams": {"anthropic": rows["anthropic"]}, **record})
            telemetry = open_telemetry(old, {}, lines=False)
            gateway = Gateway(old, environment={}, sinks=telemetry.sinks, transports=telemetry.transports())
            async with listening(telemetry.wrap(gateway)) as url:
                new = parse_settings({"upstreams": {"new": rows["openai_chat"]}, **record})
                telemetry.add_secrets(new)
                gateway.apply(new)
                await post(url, "/v1/chat/completions", {**CHAT_REQUEST, "model": "new/m"})
            await telemetry.aclose()

    asyncio.run(run())
    [file] = tmp_path.glob("*.jsonl")
    assert [one.request.upstream for one in load_trace(file).upstreams] == ["new"]
