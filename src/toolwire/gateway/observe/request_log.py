"""The record of one request, for the log, the metrics, the usage accounts and the live view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count, islice
from operator import attrgetter
from secrets import token_hex
from typing import Protocol, runtime_checkable

from msgspec import Struct

from ...asgi.http_exchange import HttpExchange
from ...bridge.repair import CallRepair
from ...ir.losses import Loss
from ...ir.response import Usage
from ..answer.client_request import ClientRequest

__all__ = ["OTHER", "BeginSink", "RequestLog", "Sink", "choose_request_id"]

OTHER = "other"
"""The name of everything beyond a maximum number of names."""
_MAX_CONCEPTS = 200  # of losses
_PROCESS = token_hex(8)
_request_numbers = count()
_concept = attrgetter("concept")


class RequestLog(Struct):
    """A record that is filled while the request is answered. Times are in seconds."""

    id: str
    started: float  # seconds since 1970
    ingress: str
    action: str = ""  # the meaning of the path; empty for an unknown path
    method: str = ""
    path: str = ""  # without the query, which may contain a key
    caller: str = ""  # the name of the client's key
    model: str = ""  # the client's name for it
    upstream: str = ""
    upstream_model: str = ""
    provider: str = ""
    wire: str = ""
    stream: bool = False
    passed_through: bool = False  # bytes were forwarded unchanged
    status: int = 0
    error: str | None = None  # the kind of fault
    attempts: int = 0
    failures: tuple[tuple[str, str], ...] = ()  # upstreams that failed before any output, and the kind of fault
    seconds: float = 0.0
    first_chunk_seconds: float | None = None  # until the first chunk of a stream
    overhead: float = 0.0  # time of the gateway itself, up to the first chunk
    usage: Usage | None = None
    is_estimated: bool = False  # by us: the upstream reported no usage
    stop: str | None = None
    answer_id: str = ""
    answer_model: str = ""  # the model that the answer names
    calls: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    loss_counts: Mapping[str, int] | None = None  # see `count_losses`
    repairs: tuple[CallRepair, ...] = ()
    declared_tools: int = 0  # of a request whose tools were selected; 0 if all were offered
    offered_tools: int = 0
    tool_searches: int = 0  # calls of `search_tools`
    has_begun: bool = False  # sinks were notified of its start
    forward_headers: Mapping[str, str] = {}  # additional headers for the upstream
    span: object = None  # the tracer's

    def count_failures(self) -> Mapping[tuple[str, str], int]:
        """Count the failed attempts by upstream and kind of fault, in the order of their first occurrence."""
        return Counter(self.failures)

    def count_losses(self) -> Mapping[str, int]:
        """Count the losses by concept; those of further concepts are `other`.

        There may be hundreds of thousands, each of its own concept, so they are counted once and for all sinks, in a
        thread.
        """
        if self.loss_counts is None:
            counts = Counter(map(_concept, self.losses))
            found = dict(islice(counts.items(), _MAX_CONCEPTS))
            if len(counts) > len(found):
                found[OTHER] = found.get(OTHER, 0) + len(self.losses) - sum(found.values())
            self.loss_counts = found
        return self.loss_counts


class Sink(Protocol):
    """A callback for the end of a request. It must not wait; its exceptions are logged and have no other effect."""

    def __call__(self, request_log: RequestLog, /) -> None: ...


@runtime_checkable
class BeginSink(Protocol):
    """A sink that is also notified of the start of a request for a model."""

    def begin(self, request_log: RequestLog, client_request: ClientRequest, headers: Mapping[str, str], /) -> None: ...


def choose_request_id(http_exchange: HttpExchange) -> str:
    """Return the client's request id if it is short and plain, otherwise a new one."""
    client_request_id: str = http_exchange.headers.get("x-request-id", "")
    if (
        client_request_id
        and len(client_request_id) <= 64
        and client_request_id.isascii()
        and client_request_id.replace("-", "").replace("_", "").isalnum()
    ):
        return client_request_id
    return f"{_PROCESS}{next(_request_numbers):08x}"
