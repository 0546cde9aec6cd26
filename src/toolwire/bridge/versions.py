"""Choose the version of a wire that loses least of a request.

Separate because it needs no endpoint: a program that sends requests itself calls it after `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir.losses import Loss
from ..ir.request import Request
from ..wire.codec import WireCodec
from ..wire.protocol import Encoded, Wire

__all__ = ["encode_best_version"]


def encode_best_version(
    request: Request, wire: Wire, encode: Callable[[Wire], Encoded] | None = None
) -> tuple[Wire, Encoded]:
    """Encode a fitted request on the newest version of `wire`, or on an older one on which less is lost.

    `encode` encodes the request on a version; by default, the version's own `encode_request`. Anthropic's version 2026-10-21 has no sampling parameters; models that accept them do so on 2023-06-01.
    """
    best: tuple[Wire, Encoded] = (wire, wire.encode_request(request) if encode is None else encode(wire))
    lost = _count_lost(best[1].losses)
    for older in reversed(wire.older) if lost and isinstance(wire, WireCodec) else ():
        encoded = older.encode_request(request) if encode is None else encode(older)
        if (fewer := _count_lost(encoded.losses)) < lost:
            best, lost = (older, encoded), fewer
    return best


def _count_lost(losses: Iterable[Loss]) -> int:
    return sum(loss.severity != "info" for loss in losses)
