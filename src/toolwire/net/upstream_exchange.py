"""One request to an endpoint, until its answer or its fault. No I/O: a driver sends it, and reports what arrives.

exchange = UpstreamExchange(sent, stream)
reply = …                                        # of exchange.url, sent.headers, sent.body
exchange.receive_head(reply.status, reply.headers, secrets)
# "whole" or "stream": an answer   "fault": read the body, and see receive_fault   "redirect"   "resend": with a new key
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from ..ir.response import Fault
from .endpoint import Endpoint
from .retry import resolve_retry_after

__all__ = ["ERROR_LIMIT", "ReplyMeaning", "UpstreamExchange", "UpstreamRequest"]

ReplyMeaning: TypeAlias = Literal["whole", "stream", "fault", "redirect", "resend"]
ERROR_LIMIT = 1024 * 1024
"""The bytes of an error's body that are read."""
_UNAUTHORISED = 401


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
        """Return the meaning of a reply. `secrets` are the headers that were sent, whose key may be refused."""
        self._status, self._headers = status, headers
        if 200 <= status < 300:
            return "stream" if self._stream and not _is_document(headers) else "whole"
        if status == _UNAUTHORISED and self._may_renew_key and self._sent.endpoint.drop_key(secrets):
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
