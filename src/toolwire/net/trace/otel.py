"""OpenTelemetry with the conventions for generative AI (extra `otel`).

    agent = Agent("openai/gpt-5.6", [get_weather], observers=[OtelObserver()])

A run is one `invoke_agent NAME` span. Its children are a `chat MODEL` span per model request and an `execute_tool NAME`
span per call. Each is the current span while its operation runs: a span that a tool creates, or the run of a subagent,
is a child of `execute_tool`. Message content is omitted unless OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is
`true`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..._extras import install_command
from ...ir.errors import MissingExtra
from ...ir.parts import ToolResult
from ...ir.request import Request
from ...ir.response import Response, UpstreamError, Usage
from ...ir.text import dumps
from ...run.calls.observe import (
    AgentOperation,
    ApprovalOperation,
    EndOperation,
    ModelOperation,
    ObservedOperation,
    OperationOutcome,
    ToolOperation,
)
from ...run.values.results import result_code
from . import otel_names as names

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider


_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_DURATION_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKEN_BOUNDS = [4.0**power for power in range(14)]
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
    "vertex": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
    "xai": "x_ai",
}  # vendors whose names differ from the values of the conventions

Attributes = dict[str, Any]


class Instruments:
    """A tracer and the histograms. By default they use the providers that the program has set."""

    def __init__(self, tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
        """Create the tracer and the histograms. Raise MissingExtra if OpenTelemetry is not installed."""
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise MissingExtra("OpenTelemetry is not installed", hint=install_command("otel")) from None
        self.tracer = trace.get_tracer("toolwire", tracer_provider=tracers)
        meter = metrics.get_meter("toolwire", meter_provider=meters)

        def histogram(name: str, unit: str, about: str, bounds: list[float]) -> metrics.Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=bounds)

        self._duration = histogram(names.DURATION_METRIC, "s", "duration of an operation", _DURATION_BOUNDS)
        self._first_chunk = histogram(names.FIRST_CHUNK_METRIC, "s", "time to the first chunk", _DURATION_BOUNDS)
        self._tokens = histogram(names.TOKEN_METRIC, "{token}", "tokens by type", _TOKEN_BOUNDS)

    def record(
        self, about: Attributes, seconds: float, usage: Usage | None = None, first_chunk_seconds: float | None = None
    ) -> None:
        """Record the duration of an operation, its tokens, and the time to its first chunk.

        `about` must have low cardinality: operation, provider, model, tool, error type.
        """
        self._duration.record(seconds, about)
        if first_chunk_seconds is not None:
            self._first_chunk.record(first_chunk_seconds, about)
        for kind, count in (("input", usage.input), ("output", usage.output)) if usage is not None else ():
            if count is not None:
                self._tokens.record(count, {**about, names.TOKEN_TYPE: kind})


class OtelObserver:
    """An observer for a `Runner` or an `Agent`."""

    def __init__(
        self,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        *,
        provider: str = "",
        content: bool | None = None,
    ) -> None:
        """Create the observer.

        `provider` replaces the provider in the model's name; `content` overrides the variable.
        """
        self._instruments = Instruments(tracers, meters)
        self._targets = (tracers, meters)
        self._provider = provider
        self._content = is_content_captured(os.environ) if content is None else content

    def __eq__(self, other: object) -> bool:
        """Return True for an observer with the same providers: of two equal ones, a run inside a run uses one."""
        return isinstance(other, OtelObserver) and self._targets == other._targets

    def __hash__(self) -> int:
        return hash(self._targets)

    def start(self, operation: ObservedOperation, /) -> EndOperation:
        if isinstance(operation, AgentOperation):
            return self._start_agent(operation)
        if isinstance(operation, ModelOperation):
            return self._start_model(operation)
        if isinstance(operation, ToolOperation):
            return self._start_tool(operation)
        return self._start_approval(operation)

    def _start_agent(self, operation: AgentOperation) -> EndOperation:
        """Start the span of a run, and return the function that ends it and records its duration.

        The tokens are counted by the requests, not again here.
        """
        about: Attributes = {names.OPERATION: "invoke_agent", names.AGENT_NAME: operation.agent}
        span = self._open(f"invoke_agent {operation.agent}", {**about, names.RUN_ID: operation.run_id})

        def end(outcome: OperationOutcome) -> None:
            """End the span with the usage, the cost and the reason to give up, and record the duration."""
            gave_up = outcome.reason and outcome.decision != "suspended"  # to wait for a person is not an error
            error_type = "gave_up" if gave_up else _error_type(outcome.error)
            # the text after the colon may come from a refusal or an invalid output
            reason = outcome.reason if self._content else outcome.reason.partition(":")[0]
            span.close(
                {**usage_attributes(outcome.usage), names.COST: outcome.cost, names.GIVE_UP_REASON: reason}, error_type
            )
            self._instruments.record(_metric_attributes(about, error_type), span.seconds)

        return end

    def _start_model(self, operation: ModelOperation) -> EndOperation:
        """Start the span of a request, and return the function that ends it and records duration and tokens.

        The histograms get no attributes with high cardinality, such as ids.
        """
        request, model = operation.request, operation.model or operation.request.model
        about = {
            names.OPERATION: "chat",
            **request_attributes(request, self._provider or operation.provider or _provider_of(request)),
            **({names.REQUEST_MODEL: model} if model else {}),
            **({names.STREAM: True} if operation.stream else {}),
        }
        span = self._open(f"chat {model}", about, is_client=True)

        def end(outcome: OperationOutcome) -> None:
            """End the span with the response or its error, and record the duration and the tokens."""
            response = outcome.response
            error_type = _error_type(outcome.error)
            if response is not None and response.fault is not None:
                error_type = response.fault.kind
            attributes = {names.COST: outcome.cost, names.TIME_TO_FIRST_CHUNK: outcome.first_event_seconds}
            if response is not None:
                attributes |= self._response_attributes(request, response)
            span.close(attributes, error_type)
            usage = None if response is None else response.usage
            self._instruments.record(
                _metric_attributes(about, error_type), span.seconds, usage, outcome.first_event_seconds
            )

        return end

    def _response_attributes(self, request: Request, response: Response) -> Attributes:
        """Return the attributes of a response, with the messages of both sides only if content is captured."""
        found = {
            **usage_attributes(response.usage),
            names.RESPONSE_ID: response.id,
            names.RESPONSE_MODEL: response.model,
        }
        if response.stop is not None:
            found[names.FINISH_REASONS] = (response.stop.reason,)
        if self._content:
            found[names.INPUT_MESSAGES] = _encode_messages(request.messages)
            found[names.OUTPUT_MESSAGES] = _encode_messages([{"role": "assistant", "parts": response.parts}])
        return found

    def _start_tool(self, operation: ToolOperation) -> EndOperation:
        """Start the span of a call, and return the function that ends it and records its duration."""
        call = operation.call
        about: Attributes = {names.OPERATION: "execute_tool", names.TOOL_NAME: call.name}
        more: Attributes = {names.CALL_ID: call.id, names.TOOL_TYPE: "function", names.EFFECT: operation.effect}
        if self._content:
            more[names.CALL_ARGUMENTS] = dumps(call.arguments) if call.arguments is not None else call.raw
        span = self._open(f"execute_tool {call.name}", {**about, **more})

        def end(outcome: OperationOutcome) -> None:
            result = outcome.result
            error_type = _error_type(outcome.error) if result is None else _result_error(result)
            span.close({names.CALL_RESULT: result.text} if self._content and result is not None else {}, error_type)
            # the name of an unknown tool is the model's invention, so it is not an attribute of metrics
            known = about if operation.effect is not None else {names.OPERATION: "execute_tool"}
            self._instruments.record(_metric_attributes(known, error_type), span.seconds)

        return end

    def _start_approval(self, operation: ApprovalOperation) -> EndOperation:
        span = self._open(f"approve {operation.tool}", {names.TOOL_NAME: operation.tool})
        return lambda outcome: span.close({names.DECISION: outcome.decision}, _error_type(outcome.error))

    def _open(self, name: str, attributes: Attributes, *, is_client: bool = False) -> _OpenSpan:
        from opentelemetry.trace import SpanKind

        span = self._instruments.tracer.start_span(
            name.rstrip(), kind=SpanKind.CLIENT if is_client else SpanKind.INTERNAL, attributes=_present(attributes)
        )
        return _OpenSpan(span)


class _OpenSpan:
    """A span that is the current one until it is closed."""

    __slots__ = ("_outer_context", "_span", "_started_at", "seconds")

    def __init__(self, span: Span) -> None:
        from opentelemetry import context, trace

        self._span = span
        self._outer_context = context.get_current()
        self._started_at = time.perf_counter()
        self.seconds = 0.0
        context.attach(trace.set_span_in_context(span))

    def close(self, attributes: Attributes, error_type: str | None) -> None:
        """End the span with attributes and an error, set `seconds`, and restore the context.

        The context stays if another span is current: a generator may end elsewhere.
        """
        from opentelemetry import context, trace

        self.seconds = time.perf_counter() - self._started_at
        self._span.set_attributes(_present(attributes))
        if error_type is not None:
            self._span.set_attribute(names.ERROR_TYPE, error_type)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR))
        self._span.end()
        if trace.get_current_span() is self._span:
            context.attach(self._outer_context)


def _present(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value not in (None, "")}


def _error_type(error: BaseException | None) -> str | None:
    """Return a low-cardinality name of an exception: the kind of a provider's error, or the class."""
    if error is None:
        return None
    return error.fault.kind if isinstance(error, UpstreamError) else type(error).__qualname__


def _result_error(result: ToolResult) -> str | None:
    """Return the runtime's code for a failed call, such as `timeout`, or None for a call that succeeded or waits."""
    code = result_code(result)
    if not result.is_error or code == "suspended":
        return None
    return "tool_error" if code == "ok" else code


def is_content_captured(environment: Mapping[str, str]) -> bool:
    return environment.get(_CAPTURE, "").strip().lower() in ("true", "1", "span_only", "span_and_event")


def request_attributes(request: Request, provider: str) -> Attributes:
    """Return the attributes of a request: model and parameters, but no content."""
    params, reasoning = request.params, request.reasoning
    found: Attributes = {
        names.PROVIDER: _PROVIDERS.get(provider, provider),
        names.REQUEST_MODEL: request.model,
        names.STREAM: request.stream,
        names.TEMPERATURE: params.temperature,
        names.TOP_P: params.top_p,
        names.TOP_K: params.top_k,
        names.MAX_TOKENS: params.max_tokens,
        names.SEED: params.seed,
        names.CHOICE_COUNT: params.n if params.n != 1 else None,
        names.REASONING_EFFORT: None if reasoning is None else reasoning.effort,
    }
    return _present(found)


def usage_attributes(usage: Usage | None) -> Attributes:
    """Return the token counts of a response as attributes."""
    if usage is None:
        return {}
    found = {
        names.USAGE_INPUT: usage.input,
        names.USAGE_OUTPUT: usage.output,
        names.USAGE_CACHE_READ: usage.cached,
        names.USAGE_CACHE_WRITE: usage.cache_write,
        names.USAGE_REASONING: usage.reasoning,
    }
    return {name: value for name, value in found.items() if value is not None}


def _metric_attributes(about: Attributes, error_type: str | None) -> Attributes:
    """Keep the attributes with low cardinality, for a histogram."""
    kept = (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.TOOL_NAME, names.AGENT_NAME)
    error = {} if error_type is None else {names.ERROR_TYPE: error_type}
    return {**{name: about[name] for name in kept if about.get(name)}, **error}


def _provider_of(request: Request) -> str:
    head, mark, _ = request.model.partition("/")
    return head if mark else ""


def _encode_messages(messages: Any) -> str:
    return msgspec.json.encode(messages).decode()
