"""Whole answers that are kept: for the same request, on the settings that it was made on."""

from __future__ import annotations

import asyncio

from hostile import TEXT_ANSWER, body_of, gateway_to, post, run
from serving import upstream_rows
from toolwire import Response, Text
from toolwire.gateway.config.parsing import parse_settings
from toolwire.ir.response import Stop

OTHER = Response(parts=(Text("It will not."),), stop=Stop("stop"))
MODELS = {"m": {"upstream": "anthropic", "cache": 60}}
BODY = body_of("anthropic", model="m")


@run
async def test_answer_from_old_settings_is_not_cached_for_new_ones():
    async with gateway_to(TEXT_ANSWER, OTHER, upstream={"pace": 0.2}, document={"models": MODELS}) as (
        gateway,
        provider,
    ):
        old = asyncio.ensure_future(post(gateway, "/v1/messages", BODY))
        await provider.wait_for_requests()
        rows = upstream_rows(provider.url, key_env="KEY")
        gateway.gateway.apply(parse_settings({"upstreams": rows, "models": MODELS}))
        assert b"will rain" in (await old).body
        fresh = await post(gateway, "/v1/messages", BODY)
        assert b"will not" in fresh.body and "x-toolwire-cache" not in fresh.headers


@run
async def test_cache_distinguishes_beta_headers():
    async with gateway_to(TEXT_ANSWER, OTHER, document={"models": MODELS}) as (gateway, _):
        first = await post(gateway, "/v1/messages", BODY, {"anthropic-beta": "one"})
        second = await post(gateway, "/v1/messages", BODY, {"anthropic-beta": "two"})
        again = await post(gateway, "/v1/messages", BODY, {"anthropic-beta": "one"})
    assert b"will rain" in first.body and b"will not" in second.body
    assert again.headers["x-toolwire-cache"] == "hit" and again.body == first.body
