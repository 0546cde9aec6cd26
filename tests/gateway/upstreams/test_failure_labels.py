"""Failed requests in the metrics and in the log: with their model, and with the exact code of the fault."""

import asyncio
import json

from prometheus_client.parser import text_string_to_metric_families

from gateway_client import CHAT_REQUEST, post
from serving import serving, upstream_rows
from toolwire.gateway.keys import hash_key
from toolwire.gateway.observe.log import AccessLog
from toolwire.gateway.observe.metrics import Metrics
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing import RawReply, Upstream

HELLO = Response(stop=Stop("stop"), usage=Usage(1, 1))
CHUNK = b'data: {"id":"r","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'


def counts_of(metrics):
    families = text_string_to_metric_families(metrics.page().decode())
    requests = next(family for family in families if family.name == "toolwire_requests")
    return {
        (sample.labels["model"], sample.labels["upstream"], sample.labels["status"]): sample.value
        for sample in requests.samples
    }


def test_refused_requests_are_counted_by_models_of_the_settings():
    async def scene():
        metrics = Metrics()
        keys = {
            "ann": {"hash": hash_key("ann's"), "requests_per_minute": 1},
            "bob": {"hash": hash_key("bob's"), "models": ["other"]},
        }
        models = {name: {"upstream": "openai_chat", "model": "m"} for name in ("fast", "gpt-*")}
        async with Upstream(HELLO) as upstream:
            document = {"upstreams": upstream_rows(upstream.url), "models": models, "keys": keys}
            async with serving(document, sinks=[metrics]) as gateway:
                for key, model in (
                    ("ann's", "fast"),
                    ("ann's", "fast"),
                    ("ann's", "gpt-anything"),
                    ("ann's", "invented"),
                    ("bob's", "fast"),
                    ("nobody's", "fast"),
                ):
                    headers = {"authorization": f"Bearer {key}"}
                    await post(gateway.url, body={**CHAT_REQUEST, "model": model}, headers=headers)
        return counts_of(metrics)

    assert asyncio.run(scene()) == {
        ("fast", "openai_chat", "200"): 1,
        ("fast", "", "429"): 1,
        ("", "", "429"): 2,  # names that a client chooses are no labels
        ("fast", "", "403"): 1,
        ("", "", "401"): 1,
    }


def test_truncated_stream_has_its_code_in_the_log():
    async def scene():
        lines = []
        reply = RawReply(CHUNK, headers={"content-type": "text/event-stream"})
        async with (
            Upstream(reply) as upstream,
            serving({"upstreams": upstream_rows(upstream.url)}, sinks=[AccessLog(lines.append)]) as gateway,
        ):
            _, _, body = await post(gateway.url, body={**CHAT_REQUEST, "stream": True})
        return body, [json.loads(line) for line in lines]

    body, [line] = asyncio.run(scene())
    assert b"stream_truncated" in body
    assert (line["level"], line["error"], line["error_code"]) == ("error", "server", "stream_truncated")
