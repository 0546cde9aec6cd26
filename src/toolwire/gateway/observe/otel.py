"""A span for each request to a model, below the client's span and above the upstream's.

    gateway = Gateway(settings, sinks=[OtelSink()])

Prompts and answers are never recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..._extras import install_command
from ...ir.errors import MissingExtra
from ...ir.request import Request
from ...net.trace import otel_names as names
from ...net.trace.otel import Instruments, OtelObserver, request_attributes, usage_attributes
from ..request.client_request import ClientRequest
from .request_log import RequestLog

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider


class OtelSink:
    """A sink that creates a span and metrics for each request to a model. `clean` removes secrets from names."""

    reads_requests = True

    def __init__(
        self,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        *,
        clean: Callable[[str], str] = str,
    ) -> None:
        self._instruments = Instruments(tracers, meters)
        self._clean = clean

    def begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str], /) -> None:
        """Start the span below the client's `traceparent`, make it the current span, and keep it in the request log.

        `forward_headers` pass its context on to the upstream.
        """
        from opentelemetry.context import Context as Nothing
        from opentelemetry.context import attach
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        model = self._clean(client_request.model[:200])
        span = self._instruments.tracer.start_span(
            f"chat {model}",
            propagator.extract(headers, Nothing()),
            SpanKind.CLIENT,
            {
                names.OPERATION: "chat",
                **request_attributes(_request_or_fallback(client_request), ""),
                names.REQUEST_MODEL: model,
            },
            start_time=round(request_log.started * 1e9),
        )
        forward_headers: dict[str, str] = {}
        span_context = set_span_in_context(span)
        propagator.inject(forward_headers, span_context)
        # work for this request, such as running tools, belongs below its span
        request_log.forward_headers, request_log.span = forward_headers, (span, attach(span_context))

    def __call__(self, request_log: RequestLog, /) -> None:
        """End the span that `begin` started, and record the metrics.

        A model that no upstream has is not used as an attribute of metrics, because a client may invent any number.
        """
        from opentelemetry.context import detach

        if request_log.span is None:
            return
        span, token = cast("tuple[Span, Token[Context]]", request_log.span)
        detach(token)
        model = self._clean(request_log.model[:200])
        attributes = request_attributes(Request(model if request_log.upstream else ""), request_log.provider)
        attributes[names.OPERATION] = "chat"
        if request_log.error is not None:
            attributes[names.ERROR_TYPE] = request_log.error
        self._end_span(span, request_log, attributes)
        self._instruments.record(attributes, request_log.seconds, request_log.usage, request_log.first_chunk_seconds)

    def _end_span(self, span: Span, request_log: RequestLog, attributes: Mapping[str, Any]) -> None:
        """Add the outcome of the request to the span, without secrets, and end it at the time of the request's end."""
        from opentelemetry.trace import Status, StatusCode

        if not span.is_recording():  # dropped by the sampler
            return
        span.set_attributes(
            {
                **attributes,
                names.REQUEST_MODEL: self._clean(request_log.model[:200]),
                **usage_attributes(request_log.usage),
                names.INGRESS: request_log.ingress,
                names.UPSTREAM: request_log.upstream,
                names.REQUEST_ID: self._clean(request_log.id),
                names.ATTEMPTS: request_log.attempts,
                names.LOSSES: len(request_log.losses),
                names.HTTP_STATUS: request_log.status,
            }
        )
        for name, value in (
            (names.RESPONSE_ID, request_log.answer_id),
            (names.RESPONSE_MODEL, request_log.answer_model),
        ):
            if value:
                span.set_attribute(name, self._clean(value[:200]))
        if request_log.stop is not None:
            span.set_attribute(names.FINISH_REASONS, (request_log.stop,))
        if request_log.first_chunk_seconds is not None:
            span.set_attribute(names.TIME_TO_FIRST_CHUNK, request_log.first_chunk_seconds)
        if request_log.error is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(round((request_log.started + request_log.seconds) * 1e9))


def _request_or_fallback(client_request: ClientRequest) -> Request:
    """Return the decoded request, if it can be decoded; its errors are reported elsewhere."""
    return client_request.request_or_none or Request(client_request.model, stream=client_request.stream or None)


def from_environment(clean: Callable[[str], str]) -> tuple[OtelSink, OtelObserver, Callable[[], None]]:
    """Create a sink and an observer that export over OTLP as the OTEL_* variables configure.

    The last item flushes and closes them. Raise MissingExtra if OpenTelemetry is not installed.
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
        raise MissingExtra("OpenTelemetry is not installed", hint=install_command("otel")) from None
    resource = Resource.create({SERVICE_NAME: "toolwire"}).merge(OTELResourceDetector().detect())
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)

    def close() -> None:
        tracers.shutdown()
        meters.shutdown()

    return OtelSink(tracers, meters, clean=clean), OtelObserver(tracers, meters), close
