"""A client's request on its way to one target, and the way back of the answer: bytes in, bytes out. No I/O here.

`Passing` where client and upstream speak the same wire and nothing has to be fitted: bytes pass, and are looked at.
`Translating` for everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from ..bridge.emulate import Emulation
from ..bridge.repair import CallRepair, repair_calls
from ..bridge.report_answer import AnswerReporter
from ..ir.errors import ProtocolError, UpstreamError
from ..ir.fold import unfold
from ..ir.losses import Losses, refuse
from ..ir.request import Request
from ..ir.response import Fault, Response
from ..ir.text import to_bytes
from ..net.endpoint import Endpoint
from ..net.question import Question, without_key
from ..stream.strict import parse_object
from .asked import Asked
from .routing import Target
from .seen import Seen
from .splice import with_model
from .streams import PassingStream, Stream, TranslatingStream

__all__ = ["Outbound", "Passing", "Translating", "outbound"]


class Outbound(Protocol):
    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def losses(self) -> Losses: ...
    @property
    def seen(self) -> Seen: ...
    @property
    def repairs(self) -> list[CallRepair]: ...

    def whole(self, data: bytes) -> bytes:
        """A whole answer for the client."""
        ...

    def again(self, data: bytes) -> Outbound | None:
        """The request to make instead of taking this answer, once."""
        ...

    def fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault: ...

    def stream(self) -> Stream:
        """A reader of the upstream's stream that gives the client's."""
        ...

    def unfolded(self, data: bytes) -> bytes:
        """A whole answer as the stream that the client asked for."""
        ...


def outbound(asked: Asked, request: Request, target: Target) -> Outbound:
    """`request` is what was asked, with what the gateway has to add."""
    endpoint = target.upstream.endpoint(target.model)
    if request is asked.request and _passes(asked, target, endpoint):
        return Passing(asked, endpoint)
    return Translating(asked, request, target, endpoint)


def _passes(asked: Asked, target: Target, endpoint: Endpoint) -> bool:
    vendor = endpoint.vendor
    return (
        endpoint.wire.name == asked.wire.name
        and target.row.emulate is None
        and target.row.repair is None
        and vendor.dialect is None
        and vendor.id is None
        and not any(field in asked.document for field in vendor.fields)
    )


class Passing:
    """The same wire on both sides."""

    def __init__(self, asked: Asked, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.body = with_model(asked.body, asked.document, endpoint.model)
        self.headers = {**endpoint.headers, **asked.headers}
        self.losses = Losses()
        self.seen = Seen()
        self.repairs: list[CallRepair] = []
        self._asked = asked

    def whole(self, data: bytes) -> bytes:
        response = self.endpoint.wire.decode_response(parse_object(data))
        if response.fault is not None:
            raise UpstreamError(without_key(self.endpoint.key, response.fault))
        self.seen.whole(response)
        return data

    def again(self, data: bytes) -> Outbound | None:
        return None

    def fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        fault = self.endpoint.wire.decode_error(status, _document(data), headers)
        return without_key(self.endpoint.key, fault)

    def stream(self) -> Stream:
        endpoint, asked = self.endpoint, self._asked
        return PassingStream(endpoint.wire, asked.request, self.seen, asked.front.event_ends, endpoint.key)

    def unfolded(self, data: bytes) -> bytes:
        response = self.endpoint.wire.decode_response(parse_object(data))
        encoder = self.endpoint.wire.stream_encoder(self._asked.request)
        return b"".join([encoder.feed(event) for event in unfold(response)])


class Translating:
    """Another wire, or the same one with something to fit."""

    def __init__(
        self,
        asked: Asked,
        request: Request,
        target: Target,
        endpoint: Endpoint,
        emulation: Emulation | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.losses = Losses()
        self.seen = Seen()
        self.repairs: list[CallRepair] = []
        self._asked = asked
        self._request = request
        self._target = target
        self._question = Question(
            replace(request, model=endpoint.model),
            endpoint,
            stream=asked.stream,
            text=target.row.emulate if request.tools and emulation is None else None,
            losses=self.losses,
            emulation=emulation,
            client=asked.wire.capabilities,
        )
        if asked.strict:
            refuse(self.losses)
        self.body = self._question.body
        self.headers = endpoint.headers

    def whole(self, data: bytes) -> bytes:
        response = self._restored(data)
        written, more = self._asked.wire.encode_response(response)
        self.losses.extend(more)
        return to_bytes(written)

    def unfolded(self, data: bytes) -> bytes:
        encoder = self._asked.wire.stream_encoder(self._request)
        encoder.losses = self.losses
        return b"".join([encoder.feed(event) for event in unfold(self._restored(data))])

    def _restored(self, data: bytes) -> Response:
        question = self._question
        response = question.restored(question.whole(data))
        if response.fault is not None:
            raise UpstreamError(question.own(response.fault))
        if self._target.row.repair is not None:
            mended = repair_calls(response, self._request.tools, policy=self._target.row.repair)
            response = mended.response
            self.repairs += mended.repairs
        AnswerReporter(self._asked.wire.name, self.losses).whole(response)
        self.seen.whole(response)
        return response

    def again(self, data: bytes) -> Outbound | None:
        emulation = self._question.emulation
        retry = None if emulation is None else emulation.retry(self._question.whole(data))
        if retry is None:
            return None
        return Translating(self._asked, self._request, self._target, self.endpoint, retry)

    def fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        return self._question.fault(status, data, headers)

    def stream(self) -> Stream:
        return TranslatingStream(
            self._question, self._asked.wire, self._request, self.seen, self._target.row.repair, self.repairs
        )


def _document(data: bytes) -> object:
    try:
        return parse_object(data)
    except ProtocolError:
        return data
