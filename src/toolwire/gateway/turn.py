"""What happened with one request: what the log, the metrics, the accounts and the live view are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from ..bridge.repair import CallRepair
from ..ir.losses import Loss
from ..ir.response import Usage
from .asked import Asked

__all__ = ["Opening", "Sink", "Turn"]


class Turn(Struct):
    """Filled while the request is answered. Times are seconds."""

    id: str
    started: float  # seconds since 1970
    front: str
    action: str = ""  # what the path is for; empty where nothing is there
    caller: str = ""  # the name of the client's key
    model: str = ""  # as the client calls it
    upstream: str = ""
    upstream_model: str = ""
    provider: str = ""
    wire: str = ""
    stream: bool = False
    passed: bool = False  # bytes went through as they were
    status: int = 0
    error: str | None = None  # the kind of fault
    attempts: int = 0
    failures: tuple[tuple[str, str], ...] = ()  # upstreams that failed before anything was said, and how
    seconds: float = 0.0
    first: float | None = None  # until the first chunk of a stream
    overhead: float = 0.0  # our own part, up to the first chunk
    usage: Usage | None = None
    estimated: bool = False  # by us: the upstream did not say what it used
    stop: str | None = None
    answer_id: str = ""
    answer_model: str = ""  # who the answer says that it is from
    calls: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    repairs: tuple[CallRepair, ...] = ()
    begun: bool = False  # sinks were told of its beginning
    forward: Mapping[str, str] = {}  # headers that the upstream is to get besides its own
    span: object = None  # the tracer's


class Sink(Protocol):
    """Who is told of a request when it is over. It must not wait; what it raises is logged and changes nothing."""

    def __call__(self, turn: Turn, /) -> None: ...


@runtime_checkable
class Opening(Protocol):
    """A sink that also wants to know when a request for a model is there."""

    def begin(self, turn: Turn, asked: Asked, headers: Mapping[str, str], /) -> None: ...
