"""Spans of a gateway: under the client's, over the upstream's, without a word of what was said."""

import asyncio
import json

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway_client import CHAT_REQUEST, HELLO, post
from serving import serving, upstream_rows
from toolwire import Response, Text, tool
from toolwire.gateway.observe.otel import OtelSink
from toolwire.ir.response import Fault, Stop
from toolwire.net.tools.runner import Runner
from toolwire.net.trace.otel import OtelObserver
from toolwire.testing import Upstream

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class OtelCapture:
    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sink = OtelSink(self.tracers, MeterProvider([self.reader]))

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    @property
    def histograms(self):
        found = self.reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: metric.data.data_points for metric in found}


def ask(*script, body=CHAT_REQUEST, headers=None):
    async def scene():
        seen = OtelCapture()
        async with (
            Upstream(*script) as upstream,
            serving({"upstreams": upstream_rows(upstream.url)}, sinks=[seen.sink]) as it,
        ):
            await post(it.url, body=body, headers=headers)
        return seen, upstream.requests

    return asyncio.run(scene())


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"], ids=["the same wire", "another wire"])
def test_request_is_one_span_following_the_conventions(wire):
    how = {"temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}}
    seen, _ = ask(HELLO, body={**CHAT_REQUEST, "model": f"{wire}/m", **how})
    (span,) = seen.spans
    assert (span.name, span.kind, span.parent) == (f"chat {wire}/m", SpanKind.CLIENT, None)
    found = dict(span.attributes)
    assert 0 < found.pop("gen_ai.response.time_to_first_chunk") < 60
    assert len(found.pop("toolwire.request.id")) == 24
    losses = found.pop("toolwire.losses")
    assert (losses > 0) is (wire == "anthropic")  # max_tokens is made up for Anthropic
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai" if wire == "openai_chat" else "anthropic",
        "gen_ai.request.model": f"{wire}/m",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "big",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "toolwire.ingress": "openai_chat",
        "toolwire.upstream": wire,
        "toolwire.attempts": 1,
        "http.response.status_code": 200,
    }
    names = {"gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"}
    assert names | {"gen_ai.client.token.usage"} == set(seen.histograms)


def test_trace_context_is_propagated():
    seen, heard = ask(HELLO, headers={"traceparent": PARENT, "tracestate": "vendor=1"})
    (span,) = seen.spans
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert heard[0].headers["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert heard[0].headers["tracestate"] == "vendor=1"


def test_trace_starts_at_the_gateway_without_a_valid_parent():
    seen, heard = ask(HELLO, headers={"traceparent": "nonsense"})
    (span,) = seen.spans
    assert heard[0].headers["traceparent"].split("-")[1:3] == [
        f"{span.context.trace_id:032x}",
        f"{span.context.span_id:016x}",
    ]


def test_failure_sets_the_error_type_and_status():
    seen, _ = ask(Fault("rate_limit", "slow down, sk-0123456789", 429))
    (span,) = seen.spans
    assert (span.attributes["error.type"], span.status.status_code) == ("rate_limit", StatusCode.ERROR)
    assert span.attributes["http.response.status_code"] == 429
    (point,) = seen.histograms["gen_ai.client.operation.duration"]
    assert point.attributes["error.type"] == "rate_limit"
    assert "sk-0123456789" not in span.to_json()


def test_span_contains_no_message_text(monkeypatch):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    body = {**CHAT_REQUEST, "messages": [{"role": "user", "content": "the words of a prompt"}], "stop": ["words too"]}
    seen, _ = ask(HELLO, body=body)
    assert "words" not in json.dumps(json.loads(seen.spans[0].to_json()))


def test_gateway_tool_span_is_a_child_of_the_request_span():
    def look(a: int) -> str:
        """Look."""
        return f"seen {a}"

    async def scene():
        seen = OtelCapture()
        runner = Runner(tool(look, effect="read"), observers=[OtelObserver(seen.tracers)])
        script = (HELLO, Response(parts=(Text("Done"),), stop=Stop("stop")))
        async with (
            Upstream(*script) as upstream,
            serving({"upstreams": upstream_rows(upstream.url)}, sinks=[seen.sink], runners={"*": runner}) as it,
        ):
            await post(it.url)
        runner.close()
        return seen

    call, request = asyncio.run(scene()).spans
    assert (call.name, request.name) == ("execute_tool look", "chat openai_chat/m")
    assert call.parent.span_id == request.context.span_id
