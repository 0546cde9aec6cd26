"""A span for each request to a model, below the client's span and above the upstream's.

    gateway = Gateway(settings, sinks=[OtelSink()])

Prompts and answers are never recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..ir.errors import MissingExtra, ToolwireError
from ..ir.request import Request
from ..net.otel import Instruments, OtelObserver, asked_for, spent
from .asked import Asked
from .turn import Turn

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["OtelSink", "from_environment"]


class OtelSink:
    def __init__(
        self,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        *,
        clean: Callable[[str], str] = str,
    ) -> None:
        self._instruments = Instruments(tracers, meters)
        self._clean = clean

    def begin(self, turn: Turn, asked: Asked, headers: Mapping[str, str], /) -> None:
        from opentelemetry.context import Context as Nothing
        from opentelemetry.context import attach
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        model = self._clean(asked.model[:200])
        span = self._instruments.tracer.start_span(
            f"chat {model}",
            propagator.extract(headers, Nothing()),
            SpanKind.CLIENT,
            {"gen_ai.operation.name": "chat", **asked_for(_readable(asked), ""), "gen_ai.request.model": model},
            start_time=round(turn.started * 1e9),
        )
        forward: dict[str, str] = {}
        around = set_span_in_context(span)
        propagator.inject(forward, around)
        # work for this request, such as running tools, belongs below its span
        turn.forward, turn.span = forward, (span, attach(around))

    def __call__(self, turn: Turn, /) -> None:
        from opentelemetry.context import detach

        if turn.span is None:
            return
        span, token = cast("tuple[Span, Token[Context]]", turn.span)
        detach(token)
        model = self._clean(turn.model[:200])
        about = asked_for(Request(model if turn.upstream else ""), turn.provider)
        about["gen_ai.operation.name"] = "chat"
        if turn.error is not None:
            about["error.type"] = turn.error
        self._close(span, turn, about)
        self._instruments.answered(about, turn.seconds, turn.usage, turn.first)

    def _close(self, span: Span, turn: Turn, about: Mapping[str, Any]) -> None:
        from opentelemetry.trace import Status, StatusCode

        if not span.is_recording():  # dropped by the sampler
            return
        span.set_attributes(
            {
                **about,
                "gen_ai.request.model": self._clean(turn.model[:200]),
                **spent(turn.usage),
                "toolwire.ingress": turn.front,
                "toolwire.upstream": turn.upstream,
                "toolwire.request.id": self._clean(turn.id),
                "toolwire.attempts": turn.attempts,
                "toolwire.losses": len(turn.losses),
                "http.response.status_code": turn.status,
            }
        )
        for name, value in (("id", turn.answer_id), ("model", turn.answer_model)):
            if value:
                span.set_attribute(f"gen_ai.response.{name}", self._clean(value[:200]))
        if turn.stop is not None:
            span.set_attribute("gen_ai.response.finish_reasons", (turn.stop,))
        if turn.first is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", turn.first)
        if turn.error is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(round((turn.started + turn.seconds) * 1e9))


def _readable(asked: Asked) -> Request:
    """Decode a request if possible; its errors are reported elsewhere."""
    try:
        return asked.request
    except ToolwireError:
        return Request(asked.model, stream=asked.stream or None)


def from_environment(clean: Callable[[str], str]) -> tuple[OtelSink, OtelObserver, Callable[[], None]]:
    """Create a sink and an observer that export over OTLP as the OTEL_* variables configure.

    The last item flushes and closes them.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtra("OpenTelemetry is not installed", hint="pip install 'toolwire[otel]'") from None
    resource = Resource.create({SERVICE_NAME: "toolwire"}).merge(OTELResourceDetector().detect())
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)

    def close() -> None:
        tracers.shutdown()
        meters.shutdown()

    return OtelSink(tracers, meters, clean=clean), OtelObserver(tracers, meters), close
