"""Losses of recorded requests point at existing fields of the request, and of its translation."""

from collections import Counter

import pytest
from recorded_traffic import require_recordings, wire_exchanges

import toolwire
from loss_pointers import unresolved
from toolwire.ir import ToolwireError
from toolwire.wire import names

WIRES = [name for name in names() if "@" not in name]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", WIRES)
def test_pointers_of_losses_resolve(source, target):
    require_recordings()
    if source == target:
        return
    outcomes = Counter()
    for exchange in wire_exchanges():
        if exchange.wire.partition("@")[0] != source or not exchange.accepted or not isinstance(exchange.request, dict):
            continue
        try:
            translation = toolwire.translate_request(exchange.request, source=exchange.wire, target=target, model="m")
        except ToolwireError:
            outcomes["refused"] += 1
            continue
        outcomes["translated"] += 1
        assert unresolved(exchange.request, translation) == []
    assert outcomes["translated"] >= outcomes["refused"]
