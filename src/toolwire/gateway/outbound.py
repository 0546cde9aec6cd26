"""A client's request to one target, and the conversion of the answer: bytes in, bytes out. No I/O here.

`Passing` if client and upstream use the same wire and nothing has to be adapted: bytes are forwarded and observed.
`Translating` for everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from ..bridge.emulate import Emulation
from ..bridge.repair import CallMender, CallRepair, repair_calls
from ..bridge.report_answer import AnswerReporter
from ..ir.errors import ProtocolError, UpstreamError
from ..ir.fold import unfold
from ..ir.losses import Losses, refuse
from ..ir.parts import ToolCall, ToolResult
from ..ir.pointer import JSON
from ..ir.request import Request
from ..ir.response import Fault, Response, Usage
from ..ir.text import finite_to_bytes
from ..net.endpoint import Endpoint
from ..net.question import Question, without
from ..stream.strict import parse_object
from ..wire.protocol import StreamEncoder
from .asked import Asked
from .hosting import Hosting, TurnEvents, add_usage
from .routing import Target
from .seen import Seen
from .splice import with_model
from .streams import PassingStream, Stream, TranslatingStream, choices_of

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

    def fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault: ...

    def again(self, data: bytes) -> Outbound | None:
        """Return the request to send instead of accepting this whole answer, at most once."""
        ...

    def take(self, data: bytes) -> None:
        """Accept a whole answer."""
        ...

    async def following(self) -> Outbound | None:
        """Return the request to send after this answer, whole or streamed, before the client's answer ends."""
        ...

    def written(self) -> bytes:
        """Encode the accepted answer for the client."""
        ...

    def unfolded(self) -> bytes:
        """Encode the accepted answer as the stream that the client requested."""
        ...

    def stream(self) -> Stream:
        """Convert the upstream's stream to the client's."""
        ...


def outbound(asked: Asked, changed: Request | None, target: Target, hosting: Hosting | None = None) -> Outbound:
    """Prepare a request. `changed` is the request with additions of the gateway; `hosting` runs the gateway's tools."""
    endpoint = target.upstream.endpoint(target.model)
    if changed is None and _passes(asked, target, endpoint):
        return Passing(asked, endpoint)
    return Translating(asked, asked.request if changed is None else changed, target, hosting)


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
    """A request between equal wires, forwarded unchanged."""

    def __init__(self, asked: Asked, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.body = with_model(asked.body, asked.document, endpoint.model)
        self.headers = {**endpoint.headers, **asked.headers}
        self.losses = Losses()
        self.seen = Seen()
        self.repairs: list[CallRepair] = []
        self._asked = asked

    def fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        return without(self.endpoint.key, self.endpoint.wire.decode_error(status, _document(data), headers))

    def again(self, data: bytes) -> Outbound | None:
        return None

    def take(self, data: bytes) -> None:
        self._data = data
        self._response = self.endpoint.wire.decode_response(parse_object(data))
        if self._response.fault is not None:
            raise UpstreamError(without(self.endpoint.key, self._response.fault))
        self.seen.whole(self._response)

    async def following(self) -> Outbound | None:
        return None

    def written(self) -> bytes:
        return self._data

    def unfolded(self) -> bytes:
        encoder = self.endpoint.wire.stream_encoder(self._asked.readable)
        return b"".join([encoder.feed(event) for event in unfold(self._response)])

    def stream(self) -> Stream:
        endpoint, asked = self.endpoint, self._asked
        return PassingStream(endpoint.wire, asked.readable, self.seen, asked.front, endpoint.key)


class Translating:
    """A request to another wire, or to the same one with adaptations. `before` is the previous turn."""

    def __init__(
        self,
        asked: Asked,
        request: Request,
        target: Target,
        hosting: Hosting | None = None,
        *,
        emulation: Emulation | None = None,
        before: Translating | None = None,
    ) -> None:
        self.endpoint = target.upstream.endpoint(target.model)
        self.losses: Losses = Losses() if before is None else before.losses
        self.seen: Seen = Seen() if before is None else before.seen
        self.repairs: list[CallRepair] = [] if before is None else before.repairs
        self._asked = asked
        self._request = request
        self._target = target
        self._hosting = hosting
        self._events = None if hosting is None else TurnEvents(hosting)
        self._question = Question(
            request,
            self.endpoint,
            stream=asked.stream,
            text=_format(target, request) if emulation is None else None,
            losses=self.losses,
            emulation=emulation,
            client=asked.wire.capabilities,
            is_alias=True,
        )
        if asked.strict:
            refuse(self.losses)
        self.body = self._question.body
        self.headers = self.endpoint.headers
        self._spent: Usage | None = (
            None if emulation is None or before is None else before._spent
        )  # on rejected answers
        self._written_by: StreamEncoder | None = None if before is None else before._written_by

    @property
    def _encoder(self) -> StreamEncoder:
        if self._written_by is None:
            self._written_by = self._asked.wire.stream_encoder(self._request)
            self._written_by.losses = self.losses
        return self._written_by

    def fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        return self._question.fault(status, data, headers)

    def again(self, data: bytes) -> Outbound | None:
        emulation = self._question.emulation
        if emulation is None:
            return None
        said = self._question.whole(data)
        retry = emulation.retry(said)
        if retry is None:
            return None
        self._spent = add_usage(self._spent, said.usage)
        self.seen.usage = add_usage(None if self._hosting is None else self._hosting.usage, self._spent)
        return Translating(self._asked, self._request, self._target, self._hosting, emulation=retry, before=self)

    def take(self, data: bytes) -> None:
        question = self._question
        response = question.restored(question.whole(data))
        if response.fault is not None:
            raise UpstreamError(question.own(response.fault))
        if self._target.row.repair is not None:
            mended = repair_calls(response, self._request.tools, policy=self._target.row.repair)
            response = mended.response
            self.repairs += mended.repairs
        if self._spent is not None:
            response = replace(response, usage=add_usage(self._spent, response.usage))
        self._response = response
        self.seen.usage = response.usage if self._hosting is None else self._hosting.counted(response)

    async def following(self) -> Outbound | None:
        hosting = self._hosting
        if hosting is None:
            return None
        response = self._response if self._events is None or self._events.response is None else self._events.response
        if not await hosting.run(response):
            self.seen.also(hosting.kept)
            return None
        return Translating(self._asked, hosting.request, self._target, hosting, before=self)

    def written(self) -> bytes:
        written, more = self._asked.wire.encode_response(self._for_the_client())
        self.losses.extend(more)
        return finite_to_bytes(written)

    def unfolded(self) -> bytes:
        return b"".join([self._encoder.feed(event) for event in unfold(self._for_the_client())])

    def _for_the_client(self) -> Response:
        response = self._response if self._hosting is None else self._hosting.whole(self._response)
        AnswerReporter(self._asked.wire.name, self.losses).whole(response)
        self.seen.whole(response)
        return response

    def stream(self) -> Stream:
        mender = None
        if self._target.row.repair is not None:
            mender = CallMender(self._request.tools, policy=self._target.row.repair)
            mender.repairs = self.repairs
        steps = [step.feed for step in (mender, self._events) if step is not None]
        is_first = self._hosting is None or self._hosting.turns == 0
        return TranslatingStream(
            self._question,
            self._asked.wire.name,
            self._encoder,
            self.seen,
            steps,
            is_first=is_first,
            choices=choices_of(self._request, self.endpoint.wire),
        )


def _format(target: Target, request: Request) -> str | None:
    """Return the text format for a model without native tool calls, if the request has tools or earlier calls."""
    if target.row.emulate is None or request.tools:
        return target.row.emulate
    said = (part for message in request.messages for part in message.parts)
    return target.row.emulate if any(isinstance(part, (ToolCall, ToolResult)) for part in said) else None


def _document(data: bytes) -> JSON:
    try:
        return parse_object(data)
    except ProtocolError:
        return data
