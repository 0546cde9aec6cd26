"""Spans and histograms of the runtime, judged by the SDK's own exporters in memory."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from toolwire import Request, ToolCall, tool
from toolwire.ir.request import Params
from toolwire.ir.response import Fault, Response, Usage
from toolwire.net.agent import Agent
from toolwire.net.otel import OtelObserver, is_content_captured
from toolwire.testing import ScriptedModel, says

CONTENT = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")


class Backend:
    def __init__(self):
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))

    @property
    def spans(self):
        return self._spans.get_finished_spans()

    def points(self, name):
        found = self._reader.get_metrics_data()
        return [
            point
            for resource in found.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@tool(effect="read")
def weather(city: str) -> str:
    """The weather."""
    if city == "Atlantis":
        raise LookupError("under water")
    return f"sun in {city}"


def run(backend, **options):
    calls = ToolCall("c1", "weather", {"city": "Paris"}), ToolCall("c2", "weather", {"city": "Atlantis"})
    model = ScriptedModel([says("Looking.", *calls), says("Sun.")])
    observer = OtelObserver(backend.tracers, backend.meters, provider="openai", **options)
    with backend.tracers.get_tracer("app").start_as_current_span("the program"):
        Agent(model, [weather], observers=[observer]).run_sync("Weather?")


def test_agent_spans_are_children_of_the_program_span():
    backend = Backend()
    run(backend)
    program = backend.spans[-1]
    inner = backend.spans[:-1]
    assert sorted(span.name.split()[0] for span in inner) == ["chat", "chat", "execute_tool", "execute_tool"]
    assert {span.parent.span_id for span in inner} == {program.context.span_id}
    assert all(program.start_time <= span.start_time <= span.end_time <= program.end_time for span in inner)


def test_tool_call_spans_follow_the_semantic_conventions():
    backend = Backend()
    run(backend)
    good, bad = sorted(
        (span for span in backend.spans if span.name == "execute_tool weather"),
        key=lambda span: span.attributes["gen_ai.tool.call.id"],
    )
    assert good.kind is SpanKind.INTERNAL
    assert dict(good.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }
    assert (bad.attributes["error.type"], bad.status.status_code) == ("tool_error", StatusCode.ERROR)
    assert sum(point.count for point in backend.points("gen_ai.execute_tool.duration")) == 2


def test_response_spans_follow_the_semantic_conventions():
    backend = Backend()
    observer = OtelObserver(backend.tracers, backend.meters)
    request = Request("gemini/gemini-3", params=Params(temperature=0.5, max_tokens=9))
    response = Response("r1", "gemini-3-pro", (), usage=Usage(10, 5, cached=3, reasoning=2))
    observer.asked(request, response, 0.3)
    observer.asked(request, Response(fault=Fault("overloaded", "busy")), 0.1)
    good, bad = backend.spans
    assert (good.name, good.kind) == ("chat gemini/gemini-3", SpanKind.CLIENT)
    assert dict(good.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini/gemini-3",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "gemini-3-pro",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    assert good.end_time - good.start_time == pytest.approx(0.3e9, rel=0.01)
    assert bad.attributes["error.type"] == "overloaded"
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in backend.points("gen_ai.client.token.usage")}
    assert tokens == {"input": 10, "output": 5}
    (first, second) = backend.points("gen_ai.client.operation.duration")
    assert first.explicit_bounds[:3] == (0.01, 0.02, 0.04)
    assert {first.attributes.get("error.type"), second.attributes.get("error.type")} == {None, "overloaded"}


@pytest.mark.parametrize("content", [False, True])
def test_content_is_recorded_only_on_request(content):
    backend = Backend()
    run(backend, content=content)
    there = {name for span in backend.spans for name in span.attributes if name in CONTENT}
    assert there == (set(CONTENT) if content else set())
    assert ("Paris" in repr([dict(span.attributes) for span in backend.spans])) is content


@pytest.mark.parametrize(("said", "means"), [("", False), ("false", False), ("true", True), ("SPAN_ONLY", True)])
def test_environment_variable_enables_content(said, means):
    assert is_content_captured({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": said}) is means
