"""OpenTelemetry with the conventions for generative AI (extra `otel`).

    agent = Agent("openai/gpt-5.6", [get_weather], observers=[OtelObserver()])

There is one `chat MODEL` span per response, one `execute_tool NAME` span per call, and histograms of both. An
observer is called after the operation, so the span is created then, with the actual start and end time. Message
content is omitted unless OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is `true`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..ir.errors import MissingExtra
from ..ir.parts import ToolCall, ToolResult
from ..ir.request import Request
from ..ir.response import Response, Usage
from ..ir.text import dumps

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Instruments", "OtelObserver", "is_content_captured", "request_attributes", "usage_attributes"]

_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_DURATION_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKEN_BOUNDS = [4.0**power for power in range(14)]
_PROVIDERS = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}

Attributes = dict[str, Any]


class Instruments:
    """A tracer and the histograms. By default they use the providers that the program has set."""

    def __init__(self, tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise MissingExtra(
                "OpenTelemetry is not installed", hint="pip install -e '.[otel]' in a checkout of toolwire"
            ) from None
        self.tracer = trace.get_tracer("toolwire", tracer_provider=tracers)
        meter = metrics.get_meter("toolwire", meter_provider=meters)

        def histogram(name: str, unit: str, about: str, bounds: list[float]) -> metrics.Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=bounds)

        self._duration = histogram("gen_ai.client.operation.duration", "s", "duration of a response", _DURATION_BOUNDS)
        self._first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "time to the first chunk", _DURATION_BOUNDS
        )
        self._tokens = histogram("gen_ai.client.token.usage", "{token}", "tokens by type", _TOKEN_BOUNDS)
        self._tools = histogram("gen_ai.execute_tool.duration", "s", "duration of a tool call", _DURATION_BOUNDS)

    def record_answer(self, about: Attributes, seconds: float, usage: Usage | None, first: float | None = None) -> None:
        """Record a response. `about` must have low cardinality: provider, models, the kind of error."""
        self._duration.record(seconds, about)
        if first is not None:
            self._first_chunk.record(first, about)
        for kind, count in (("input", usage.input), ("output", usage.output)) if usage is not None else ():
            if count is not None:
                self._tokens.record(count, {**about, "gen_ai.token.type": kind})

    def record_tool(self, about: Attributes, seconds: float) -> None:
        self._tools.record(seconds, about)


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
        self._provider = provider
        self._content = is_content_captured(os.environ) if content is None else content

    def called(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Record a tool call. `span_attributes` have high cardinality, so the histogram does not get them."""
        about: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        if result.is_error:
            about["error.type"] = "tool_error"
        span_attributes: Attributes = {"gen_ai.tool.call.id": call.id, "gen_ai.tool.type": "function"}
        if self._content:
            span_attributes["gen_ai.tool.call.arguments"] = dumps(call.arguments)
            span_attributes["gen_ai.tool.call.result"] = result.text
        self._span(f"execute_tool {call.name}", seconds, {**about, **span_attributes}, internal=True)
        self._instruments.record_tool(about, seconds)

    def asked(self, request: Request, response: Response, seconds: float) -> None:
        """Record a response. `span_attributes` have high cardinality, so the histograms do not get them."""
        about: Attributes = {
            "gen_ai.operation.name": "chat",
            **request_attributes(request, self._provider or _provider_of(request)),
        }
        if response.fault is not None:
            about["error.type"] = response.fault.kind
        span_attributes = {
            **usage_attributes(response.usage),
            "gen_ai.response.id": response.id,
            "gen_ai.response.model": response.model,
        }
        if response.stop is not None:
            span_attributes["gen_ai.response.finish_reasons"] = (response.stop.reason,)
        if self._content:
            span_attributes["gen_ai.input.messages"] = _encode_messages(request.messages)
            span_attributes["gen_ai.output.messages"] = _encode_messages(
                [{"role": "assistant", "parts": response.parts}]
            )
        self._span(f"chat {request.model}".rstrip(), seconds, {**about, **span_attributes})
        self._instruments.record_answer(_metric_attributes(about), seconds, response.usage)

    def _span(self, name: str, seconds: float, attributes: Attributes, *, internal: bool = False) -> None:
        """Create a span that ends now and started `seconds` ago."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        end = time.time_ns()
        span = self._instruments.tracer.start_span(
            name,
            kind=SpanKind.INTERNAL if internal else SpanKind.CLIENT,
            attributes={key: value for key, value in attributes.items() if value not in (None, "")},
            start_time=end - round(seconds * 1e9),
        )
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)


def is_content_captured(environment: Mapping[str, str]) -> bool:
    return environment.get(_CAPTURE, "").strip().lower() in ("true", "1", "span_only", "span_and_event")


def request_attributes(request: Request, provider: str) -> Attributes:
    """Return the attributes of a request: model and parameters, but no content."""
    params, reasoning = request.params, request.reasoning
    found: Attributes = {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": request.model,
        "gen_ai.request.stream": request.stream,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k,
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.seed": params.seed,
        "gen_ai.request.choice.count": params.n if params.n != 1 else None,
        "gen_ai.request.reasoning.level": None if reasoning is None else reasoning.effort,
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def usage_attributes(usage: Usage | None) -> Attributes:
    """Return the token counts of a response as attributes."""
    if usage is None:
        return {}
    found = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return {name: value for name, value in found.items() if value is not None}


def _metric_attributes(about: Attributes) -> Attributes:
    """Keep the attributes with low cardinality, for a histogram."""
    names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type")
    return {name: about[name] for name in names if name in about}


def _provider_of(request: Request) -> str:
    head, mark, _ = request.model.partition("/")
    return head if mark else ""


def _encode_messages(messages: Any) -> str:
    return msgspec.json.encode(messages).decode()
