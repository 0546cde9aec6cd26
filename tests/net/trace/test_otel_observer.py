"""Spans and histograms of the runtime, judged by the SDK's own exporters in memory."""

import asyncio
import re
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import toolwire
from tables import every_case
from toolwire import Policy, Request, Toolbox, ToolCall, tool
from toolwire.ir.events import CallEnd
from toolwire.ir.parts import Refusal
from toolwire.ir.request import Params, ReasoningConfig
from toolwire.ir.response import Fault, Response, Stop, UpstreamError, Usage
from toolwire.ir.text import dumps
from toolwire.net.agent.agent import Agent
from toolwire.net.model.client import ModelClient
from toolwire.net.trace import otel_names
from toolwire.net.trace.otel import OtelObserver, is_content_captured, request_attributes
from toolwire.testing import ScriptedModel, Upstream, says
from toolwire.wire.models import vendors

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
        Agent(model, [weather], name="helper", observers=[observer]).run_sync("Weather?")


def children(backend, parent):
    """Return the sorted names of the spans below `parent`; an agent may have no name."""
    return sorted(
        "invoke_agent" if span.name.startswith("invoke_agent") else span.name
        for span in backend.spans
        if span.parent and span.parent.span_id == parent.context.span_id
    )


def only(backend, name):
    (span,) = [span for span in backend.spans if f"{span.name} ".startswith(f"{name} ")]
    return span


@pytest.mark.finding("X12")
def test_run_is_one_span_with_requests_and_calls_below_it():
    backend = Backend()
    run(backend)
    assert children(backend, only(backend, "the program")) == ["invoke_agent"]
    agent = only(backend, "invoke_agent")
    assert (agent.name, agent.attributes["gen_ai.agent.name"]) == ("invoke_agent helper", "helper")
    assert children(backend, agent) == ["chat scripted"] * 2 + ["execute_tool weather"] * 2
    assert len({span.context.trace_id for span in backend.spans}) == 1
    assert all(agent.start_time <= span.start_time <= span.end_time <= agent.end_time for span in backend.spans[:-2])


@tool(effect="read")
async def waits(name: str) -> str:
    """Wait."""
    with TRACER.get_tracer("tool").start_as_current_span(f"inside {name}"):
        await asyncio.sleep(0)
        return name


@tool(effect="pure")
async def returns(name: str) -> str:
    """Return at once."""
    with TRACER.get_tracer("tool").start_as_current_span(f"inside {name}"):
        return name


@tool(effect="read")
def blocks(name: str) -> str:
    """Run in a thread."""
    with TRACER.get_tracer("tool").start_as_current_span(f"inside {name}"):
        return name


@tool(effect="write")
async def writes(name: str) -> str:
    """Write."""
    with TRACER.get_tracer("tool").start_as_current_span(f"inside {name}"):
        return name


class CurrentTracer:
    """The tracer of the current test, for the tools above."""

    def __init__(self):
        self.provider = None

    def get_tracer(self, name):
        return self.provider.get_tracer(name)


TRACER = CurrentTracer()
TOOLS = [waits, returns, blocks, writes]


async def collect(agent, prompt):
    return [item async for item in agent.stream(prompt)]


@pytest.mark.finding("X12")
@every_case("streamed", [False, True])
@every_case("names", [("waits",), ("returns",), ("blocks",), ("writes",), tuple(t.name for t in TOOLS)])
def test_span_inside_a_tool_is_a_child_of_its_call(names, streamed):
    backend = Backend()
    TRACER.provider = backend.tracers
    calls = [ToolCall(name, name, {"name": name}) for name in names]
    model = ScriptedModel([says(*calls), says("Done.")])
    agent = Agent(model, TOOLS, observers=[OtelObserver(backend.tracers, backend.meters)])
    if streamed:
        asyncio.run(collect(agent, "Go."))
    else:
        agent.run_sync("Go.")
    assert children(backend, only(backend, "invoke_agent")) == sorted(
        ["chat scripted", "chat scripted", *(f"execute_tool {name}" for name in names)]
    )
    for name in names:
        assert children(backend, only(backend, f"execute_tool {name}")) == [f"inside {name}"]


@pytest.mark.finding("X12")
@pytest.mark.parametrize(("arguments", "outcomes"), [({"a": 1}, [None]), ({"a": 1, "b": 2}, ["CancelledError", None])])
def test_call_that_started_on_its_first_argument_is_observed_once_if_it_was_right(arguments, outcomes):
    backend = Backend()
    started = asyncio.Event()

    async def search(a: int, b: int = 0) -> int:
        """Search."""
        started.set()
        if b == 0 and "b" in arguments:  # a wrong guess waits until it is cancelled
            await asyncio.Event().wait()
        return a + b

    class SlowModel(ScriptedModel):
        """Waits in the stream until the tool has started, between its first argument and the end of the call."""

        async def stream(self, request):
            async for event in super().stream(request):
                if isinstance(event, CallEnd):
                    await started.wait()
                yield event

    model = SlowModel([says(ToolCall("c1", "search", arguments, raw=dumps(arguments))), says("Done.")])
    box = Toolbox(tool(effect="read")(search)).with_options(first_argument=True)
    asyncio.run(collect(Agent(model, [box], observers=[OtelObserver(backend.tracers, backend.meters)]), "Go."))
    spans = [span for span in backend.spans if span.name == "execute_tool search"]
    assert sorted((span.attributes.get("error.type") for span in spans), key=str) == sorted(outcomes, key=str)
    assert children(backend, only(backend, "invoke_agent")).count("execute_tool search") == len(outcomes)


@pytest.mark.finding("X12")
def test_agent_inside_a_tool_is_a_child_of_its_call():
    backend = Backend()
    observers = [OtelObserver(backend.tracers, backend.meters)]

    @tool(effect="read")
    async def research(topic: str) -> str:
        """Run another agent."""
        return (await Agent(ScriptedModel([says("Found.")]), observers=observers).run(topic)).text

    model = ScriptedModel([says(ToolCall("c1", "research", {"topic": "x"})), says("Done.")])
    asyncio.run(collect(Agent(model, [research], observers=observers), "Go."))
    assert children(backend, only(backend, "execute_tool research")) == ["invoke_agent"]
    assert len({span.context.trace_id for span in backend.spans}) == 1


@pytest.mark.finding("X12")
@pytest.mark.parametrize("end", ["break", "error", "other tasks"])
def test_stream_does_not_change_the_context_of_its_consumer(end, caplog):
    backend = Backend()

    async def consume():
        model = ScriptedModel([says("One.", ToolCall("c1", "weather", {"city": "Paris"})), says("Two.")])
        agent = Agent(model, [weather], observers=[OtelObserver(backend.tracers, backend.meters)])
        seen = []
        stream = agent.stream("Go.")
        async with aclosing(stream) as items:
            if end == "other tasks":  # each item is awaited in a task and a context of its own
                while (item := await asyncio.create_task(next_item(items))) is not None:
                    seen.append(trace.get_current_span())
                    last = item
                assert last.text == "Two."
            else:
                with suppress(RuntimeError):
                    async for _ in items:
                        seen.append(trace.get_current_span())
                        if end == "break":
                            break
                        raise RuntimeError
        assert {span.get_span_context().is_valid for span in seen} == {False}
        assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(consume())
    assert all(span.end_time for span in backend.spans)
    assert only(backend, "invoke_agent").parent is None
    assert not caplog.records


async def next_item(items):
    return await anext(items, None)


@pytest.mark.finding("X12")
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
        "toolwire.tool.effect": "read",
    }
    assert (bad.attributes["error.type"], bad.status.status_code) == ("failed", StatusCode.ERROR)
    counts = {
        (point.attributes["gen_ai.operation.name"], point.attributes.get("error.type")): point.count
        for point in backend.points("gen_ai.client.operation.duration")
    }
    assert counts == {
        ("invoke_agent", None): 1,
        ("chat", None): 2,
        ("execute_tool", None): 1,
        ("execute_tool", "failed"): 1,
    }


class Responder:
    """A model with one response, or one error."""

    model = "gemini/gemini-3"

    def __init__(self, response):
        self._response = response

    async def ask(self, request):
        if isinstance(self._response, Exception):
            raise self._response
        return self._response


def ask(backend, response):
    request = Request(
        "gemini/gemini-3", params=Params(temperature=0.5, max_tokens=9), reasoning=ReasoningConfig(effort="high")
    )
    agent = Agent(Responder(response), observers=[OtelObserver(backend.tracers, backend.meters)])
    with suppress(UpstreamError, TimeoutError):
        agent.run_sync(request)
    return only(backend, "chat gemini/gemini-3")


def test_response_spans_follow_the_semantic_conventions():
    backend = Backend()
    usage = Usage(10, 5, cached=3, cache_write=1, reasoning=2)
    span = ask(backend, Response("r1", "gemini-3-pro", (), Stop("stop"), usage))
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini/gemini-3",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "gemini-3-pro",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 1,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "toolwire.request.reasoning.effort": "high",
    }
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in backend.points("gen_ai.client.token.usage")}
    assert tokens == {"input": 10, "output": 5}
    assert backend.points("gen_ai.client.operation.duration")[0].explicit_bounds[:3] == (0.01, 0.02, 0.04)


@pytest.mark.parametrize(
    ("response", "error_type"),
    [
        (Response(fault=Fault("overloaded", "busy")), "overloaded"),
        (UpstreamError(Fault("rate_limit", "slow down")), "rate_limit"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_failed_request_has_an_error_type_on_span_and_metric(response, error_type):
    backend = Backend()
    span = ask(backend, response)
    assert (span.attributes["error.type"], span.status.status_code) == (error_type, StatusCode.ERROR)
    assert only(backend, "invoke_agent").status.status_code is StatusCode.ERROR
    points = backend.points("gen_ai.client.operation.duration")
    assert error_type in {point.attributes.get("error.type") for point in points}


@pytest.mark.finding("X12")
def test_every_name_is_in_the_package_of_the_conventions():
    from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes, http_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    def texts(*modules):
        return {value for module in modules for value in vars(module).values() if isinstance(value, str)}

    conventional = texts(error_attributes, gen_ai_attributes, http_attributes, gen_ai_metrics)
    ours = {value for name, value in vars(otel_names).items() if name.isupper()}
    assert {name for name in ours if not name.startswith("toolwire.")} <= conventional
    emitted = (Path(toolwire.__file__).parent).rglob("*.py")
    literals = [path.name for path in emitted if re.search(r"[\"']gen_ai\.", path.read_text(encoding="utf-8"))]
    assert literals == ["otel_names.py"]


@pytest.mark.finding("X12")
def test_operation_names_are_values_of_the_conventions():
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiOperationNameValues

    backend = Backend()
    run(backend)
    used = {span.attributes["gen_ai.operation.name"] for span in backend.spans if span.name != "the program"}
    assert used <= {value.value for value in GenAiOperationNameValues}


@pytest.mark.finding("X12")
def test_providers_of_the_conventions_have_their_names():
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiProviderNameValues

    ours = {request_attributes(Request("m"), vendor)["gen_ai.provider.name"] for vendor in vendors.names()}
    known = {value.value for value in GenAiProviderNameValues}
    absent = {"aws.bedrock", "azure.ai.inference", "gcp.gen_ai", "ibm.watsonx.ai"}  # no such vendor here
    assert known - ours == absent


@pytest.mark.parametrize("streamed", [False, True])
def test_span_of_a_client_has_the_names_of_its_provider(streamed):
    backend = Backend()

    async def converse():
        async with Upstream(says("Hi.")) as upstream:
            client = ModelClient("openai-chat/gpt-5.6", base_url=upstream.url, key="a-key")
            agent = Agent(client, observers=[OtelObserver(backend.tracers, backend.meters)])
            async with client:
                await (collect(agent, "Hi?") if streamed else agent.run("Hi?"))

    asyncio.run(converse())
    span = only(backend, "chat gpt-5.6")
    assert span.attributes["gen_ai.provider.name"] == "openai"
    assert span.attributes["gen_ai.request.model"] == "gpt-5.6"
    assert span.attributes.get("gen_ai.request.stream") is (True if streamed else None)


@pytest.mark.parametrize("content", [False, True])
def test_content_is_recorded_only_on_request(content):
    backend = Backend()
    run(backend, content=content)
    there = {name for span in backend.spans for name in span.attributes if name in CONTENT}
    assert there == (set(CONTENT) if content else set())
    assert ("Paris" in repr([dict(span.attributes) for span in backend.spans])) is content


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_subagents_and_successors_are_a_part_of_the_observed_run(own, streamed):
    backend = Backend()

    def observers():
        return [OtelObserver(backend.tracers, backend.meters)]

    def ask(name, city="Paris"):
        return says(ToolCall(f"c-{name}", name, {"city": city} if name == "weather" else {"prompt": "Go."}))

    successor = Agent(ScriptedModel([ask("weather"), says("Sun.")]), [weather], name="successor")

    @tool(effect="pure")
    def hand_over(prompt: str) -> Agent:
        """Transfer the conversation."""
        return successor

    options = {"observers": observers()} if own else {}
    inner = Agent(ScriptedModel([ask("weather"), says("Sun.")]), [weather], name="inner", **options)
    model = ScriptedModel([ask("inner"), ask("hand_over")])
    outer = Agent(model, [inner.as_tool(description="Ask."), hand_over], name="outer", observers=observers())

    async def consume():
        return [item async for item in outer.stream("Go.")][-1]

    answer = asyncio.run(consume()) if streamed else outer.run_sync("Go.")
    assert answer.text == "Sun."
    root = only(backend, "invoke_agent outer")
    assert root.parent is None
    assert children(backend, root) == ["chat scripted"] * 4 + [
        "execute_tool hand_over",
        "execute_tool inner",
        "execute_tool weather",
    ]
    assert children(backend, only(backend, "invoke_agent inner")) == ["chat scripted"] * 2 + ["execute_tool weather"]
    assert len(backend.spans) == 1 + 7 + 1 + 3


def test_run_that_waits_for_approval_is_not_an_error():
    backend = Backend()

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        ScriptedModel([says(ToolCall("c1", "pay", {}))]),
        [pay],
        name="helper",
        policy=Policy(approve=("write",)),
        approve="suspend",
        observers=[OtelObserver(backend.tracers, backend.meters)],
    )
    assert agent.run_sync("Go.").suspended
    spans = {span.name: span for span in backend.spans}
    assert {"invoke_agent helper", "execute_tool pay", "approve pay"} <= spans.keys()
    assert [span.name for span in spans.values() if span.status.status_code is StatusCode.ERROR] == []
    assert [span.name for span in spans.values() if "error.type" in span.attributes] == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [(False, "the model refused (refusal)"), (True, "the model refused (refusal): not for my-secret")],
)
def test_text_of_a_refusal_is_content(content, reason):
    backend = Backend()
    model = ScriptedModel([Response(parts=(Refusal("not for my-secret"),), stop=Stop("refusal"))])
    observer = OtelObserver(backend.tracers, backend.meters, content=content)
    Agent(model, [], name="helper", output_type=int, observers=[observer]).run_sync("Go.")
    assert only(backend, "invoke_agent helper").attributes[otel_names.GIVE_UP_REASON] == reason


@pytest.mark.parametrize(("said", "means"), [("", False), ("false", False), ("true", True), ("SPAN_ONLY", True)])
def test_environment_variable_enables_content(said, means):
    assert is_content_captured({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": said}) is means
