"""The calls of Python functions that a request costs. They do not depend on the machine, as times do.

A change that needs more of them is either worth it, and raises the budget, or repeats work that was done before.
`bench/gateway/run.py --count` shows the functions.
"""

import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from hostile import TEXT_ANSWER, body_of, connect, gateway_to, path_of, read_answer, request_bytes, run

REQUESTS = 20
# client, wire of the upstream, calls of each request
# Translated answers get an id of the client's wire and their log probabilities; those for Anthropic clients also a
# sealer for reasoning (9 calls). Admission is one call, the waits in which an upstream may hang are three, and fields
# that choose another model two; a whole Chat answer may have objects in place of lists (two). Plain paths in place of
# batched metrics and of short paths for usual messages are 11, 4 and 14 calls; the times stayed within 3 %.
BUDGETS = [("openai_chat", "openai_chat", 200), ("openai_chat", "anthropic", 392), ("anthropic", "openai_chat", 413)]


@contextmanager
def counted_calls():
    """Count the calls of functions of the package by module and name."""
    calls = Counter()

    def count(frame, event, _argument):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("toolwire.") and not module.startswith("toolwire.testing"):
            calls[f"{module}.{frame.f_code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("front", "wire", "budget"), BUDGETS)
@run
async def test_request_needs_no_more_calls_than_its_budget(front, wire, budget):
    model = f"{wire}/m"
    data = request_bytes(path_of(front, model), body_of(front, model=model))
    async with gateway_to(*[TEXT_ANSWER] * (2 * REQUESTS)) as (gateway, _):
        reader, writer = await connect(gateway)
        for _ in range(REQUESTS):  # the first requests fill caches
            writer.write(data)
            assert (await read_answer(reader)).status == 200
        with counted_calls() as calls:
            for _ in range(REQUESTS):
                writer.write(data)
                assert (await read_answer(reader)).status == 200
        writer.close()
    # whole calls of each request: a timer of the server may add a few to one of them
    assert sum(calls.values()) // REQUESTS <= budget, calls.most_common(40)
