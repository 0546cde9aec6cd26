"""A request to an endpoint until its answer or its fault, and the decision to retry it.

No I/O: a driver sends the request, and reports the replies. A request is retried after transient faults, before the
first byte of a response, and within the timeout.

exchange = UpstreamExchange(sent, stream)
reply = …                                        # of exchange.url, sent.headers, sent.body
exchange.receive_head(reply.status, reply.headers, secrets)
# "whole" or "stream": an answer   "fault": read the body, and see receive_fault   "redirect"   "resend": with a new key
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...ir.response import Fault, UpstreamError
from .endpoint import Endpoint

_TRANSIENT_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server"})


class RetryPolicy:
    """The number of retries and the waits between them: exponential with jitter, or as the provider demands.

    A provider that demands more than `max_delay` seconds gets no retry: limits per minute are over by then. The delays
    begin with half a second, as in the SDKs of OpenAI and Anthropic.
    """

    __slots__ = ("_initial_delay", "_max_delay", "_max_retries", "_random")

    def __init__(
        self, max_retries: int, *, initial_delay: float = 0.5, max_delay: float = 60.0, random: Random | None = None
    ) -> None:
        self._max_retries = max_retries
        self._initial_delay = initial_delay
        self._max_delay = max_delay
        self._random = random or Random()

    def next_delay(self, fault: Fault, attempt: int, remaining: float) -> float | None:
        """Return the seconds until the next attempt after number `attempt` ended in `fault`, or None for no retry.

        If the provider demands a longer wait than is left, there is no retry: it would be refused as well.
        """
        if not is_transient(fault) or attempt >= self._max_retries:
            return None
        if fault.retry_after is None:
            wait = min(self._initial_delay * 2**attempt, self._max_delay) * self._random.uniform(0.5, 1.0)
        elif fault.retry_after > self._max_delay:
            return None
        else:
            wait = fault.retry_after * self._random.uniform(1.0, 1.1)  # so that not all refused clients retry at once
        return wait if wait < remaining else None


def is_transient(fault: Fault) -> bool:
    """Return whether the same request may succeed later."""
    return fault.kind in _TRANSIENT_KINDS if fault.retryable is None else fault.retryable


class NetworkError(UpstreamError):
    """There is no answer: the connection failed, or a timeout ended the wait. `fault.code` is `connection` or `timeout`."""


def network_fault(error: TimeoutError | ConnectionError, origin: str) -> Fault:
    """Convert a network error to a fault."""
    if isinstance(error, TimeoutError):
        return Fault("timeout", f"no response from {origin} in time: {error}", 504, "timeout")
    return Fault("server", f"no connection to {origin}: {error}", 502, "connection")


def resolve_retry_after(fault: Fault, headers: Mapping[str, str], now: datetime | None = None) -> Fault:
    """Return the fault with the wait of a `retry-after` header that is a date: decoders have no clock to evaluate it."""
    value = headers.get("retry-after")
    if fault.retry_after is not None or value is None:
        return fault
    try:
        retry_at = parsedate_to_datetime(value)
    except ValueError:
        return fault
    retry_at = retry_at if retry_at.tzinfo is not None else retry_at.replace(tzinfo=UTC)
    seconds = (retry_at - (now or datetime.now(UTC))).total_seconds()
    return replace(fault, retry_after=max(seconds, 0.0))


ReplyMeaning: TypeAlias = Literal["whole", "stream", "fault", "redirect", "resend"]
ERROR_LIMIT = 1024 * 1024
"""The bytes of an error's body that are read."""


class UpstreamRequest(Protocol):
    """A request in the form of its endpoint."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault: ...


class UpstreamExchange(Struct, eq=False):
    """The state of one request. `_stream`: it requests a stream."""

    _sent: UpstreamRequest
    _stream: bool
    _may_renew_key: bool = True  # once: a key from a command may have been revoked before its expiry
    _status: int = 0
    _headers: Mapping[str, str] = {}

    @property
    def url(self) -> str:
        """The address of the request."""
        return self._sent.endpoint.url(stream=self._stream)

    def receive_head(self, status: int, headers: Mapping[str, str], secrets: Mapping[str, str]) -> ReplyMeaning:
        """Keep the head of a reply, and return its meaning. `secrets` are the headers that were sent.

        A refused key of a command, or of AWS, is dropped once, and the request is sent again with a new key.
        """
        self._status, self._headers = status, headers
        if 200 <= status < 300:
            return "stream" if self._stream and not _is_document(headers) else "whole"
        if self._may_renew_key and self._sent.endpoint.drop_key(status, secrets):
            self._may_renew_key = False
            return "resend"
        return "redirect" if 300 <= status < 400 else "fault"

    def receive_fault(self, data: bytes) -> Fault:
        """Decode the body of an error."""
        headers = dict(self._headers)
        return resolve_retry_after(self._sent.decode_fault(self._status, data, headers), headers)


def _is_document(headers: Mapping[str, str]) -> bool:
    """Return True for a JSON document, False for a stream."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
