"""What happened with one request: what the log, the metrics, the accounts and the live view are told."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from ..bridge.repair import CallRepair
from ..ir.losses import Loss
from ..ir.response import Usage

__all__ = ["Sink", "Turn"]


class Turn(Struct):
    """Filled while the request is answered. Times are seconds."""

    id: str
    started: float  # seconds since 1970
    front: str
    caller: str = ""  # the name of the client's key
    model: str = ""  # as the client calls it
    upstream: str = ""
    upstream_model: str = ""
    wire: str = ""
    stream: bool = False
    passed: bool = False  # bytes went through as they were
    status: int = 0
    error: str | None = None  # the kind of fault
    attempts: int = 0
    seconds: float = 0.0
    first: float | None = None  # until the first chunk of a stream
    overhead: float = 0.0  # our own part, up to the first chunk
    usage: Usage | None = None
    estimated: bool = False  # by us: the upstream did not say what it used
    stop: str | None = None
    calls: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    repairs: tuple[CallRepair, ...] = ()


class Sink(Protocol):
    """Who is told of a request when it is over. It must not wait and must not raise."""

    def __call__(self, turn: Turn, /) -> None: ...
