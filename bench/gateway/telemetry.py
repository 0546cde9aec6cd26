"""Measure the cost of telemetry per request: CPU microseconds for each sink, on one core.

    python bench/gateway/telemetry.py

The request has two calls, one loss and token counts, and was streamed. Spans are created and measured, and not exported.
"""

import time
from tempfile import TemporaryFile

from toolwire.gateway.observe.log import AccessLog
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.gateway.request.client_request import ClientRequest
from toolwire.gateway.request.routes import INGRESSES, Route
from toolwire.ir.losses import Loss
from toolwire.ir.response import Usage
from toolwire.run.traces.redact import Redactor

COUNT = 20_000
ROUNDS = 5
BODY = b'{"model": "claude-sonnet-5", "max_tokens": 64, "messages": []}'
INGRESS = INGRESSES["anthropic"]
ASKED = ClientRequest(Route("generate", INGRESS), INGRESS.codec, BODY, {}, {}, len(BODY))
HEADERS = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def turn(number):
    return RequestLog(
        f"{number:024x}",
        time.time(),
        "anthropic",
        "generate",
        model="claude-sonnet-5",
        upstream="openai",
        upstream_model="gpt-5.6",
        wire="openai_chat",
        stream=True,
        status=200,
        attempts=1,
        seconds=0.2,
        first_chunk_seconds=0.1,
        overhead=0.0004,
        usage=Usage(1200, 80),
        stop="tool_calls",
        calls=("read_file", "list_files"),
        losses=(Loss("/top_k", "top_k", "dropped", "warning", "openai_chat has no such parameter"),),
        has_begun=True,
    )


def cost(sink):
    """Return the best of several rounds, in microseconds per request."""
    best = float("inf")
    begin = getattr(sink, "begin", None)
    for _ in range(ROUNDS):
        turns = [turn(number) for number in range(COUNT)]
        began = time.process_time()
        for one in turns:
            if begin is not None:
                begin(one, ASKED, HEADERS)
            sink(one)
        best = min(best, time.process_time() - began)
    return best / COUNT * 1e6


def otel():
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    from toolwire.gateway.observe.otel import OtelSink

    return OtelSink(TracerProvider(), MeterProvider([InMemoryMetricReader()]), clean=Redactor())


def main():
    redactor = Redactor(["sk-of-the-upstream-0123456789"])
    print(f"metrics     {cost(Metrics(clean=redactor)):6.1f} µs a request")
    with TemporaryFile("w", buffering=1) as out:
        print(
            f"access log  {cost(AccessLog(lambda line: out.write(line + chr(10)), redactor)):6.1f} µs a request, the write included"
        )
    print(f"spans       {cost(otel()):6.1f} µs a request, without an exporter")


if __name__ == "__main__":
    main()
