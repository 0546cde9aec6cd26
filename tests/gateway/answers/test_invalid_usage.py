"""Upstreams whose counts of tokens cannot be: nobody's account has to carry them."""

from __future__ import annotations

import pytest

from hostile import ask, gateway_to, run
from toolwire import Response, Text
from toolwire.ir.response import Stop, Usage


@pytest.mark.parametrize("count", [-5_000, 10**30], ids=["negative", "endless"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
@run
async def test_impossible_token_count_is_replaced_by_an_estimate(wire, stream, count):
    odd = Response(parts=(Text("It will rain."),), stop=Stop("stop"), usage=Usage(count, count))
    async with gateway_to(odd) as (gateway, _):
        answer = await ask(gateway, "openai_chat", wire=wire, stream=stream)
        assert answer.status == 200
    [turn] = gateway.turns
    assert turn.is_estimated
    assert turn.usage.output == 4
    assert 0 < turn.usage.total < 1000
