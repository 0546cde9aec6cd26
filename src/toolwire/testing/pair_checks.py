"""Checks between two wires: after a round trip, every change is covered by a loss."""

from __future__ import annotations

from msgspec.structs import replace

from ..bridge.exchange import Exchange
from ..bridge.prepare import prepare
from ..bridge.stored import without_stored
from ..ir.errors import ToolwireError
from ..ir.fold import fold
from ..ir.parts import Part, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .pairs import unexplained_in_request, unexplained_in_response
from .stream_checks import decode_stream
from .vectors import Vector

__all__ = ["PAIR_CHECKS", "request_pair"]


def request_pair(wire: Wire, body: Object, other: Wire) -> None:
    """Send a request to `other` and back; every change must be in the losses."""
    request = without_stored(wire.decode_request(body), other.name)
    try:
        prepared = prepare(request, other)
    except ToolwireError:
        return  # refused with a reason before sending
    written, losses = other.encode_request(prepared.request)
    back = other.decode_request(written)
    differing = unexplained_in_request(prepared.request, back, list(losses))
    assert not differing, f"{other.name} decodes a different value at {differing}, without a loss"
    original = _with_old_names(back, prepared.exchange)
    explained = [*prepared.losses, *(replace(loss, path=prepared.origin(loss.path)) for loss in losses)]
    differing = unexplained_in_request(request, original, explained)
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in explained]}"


def _request_pair(wire: Wire, vector: Vector, other: Wire) -> None:
    request_pair(wire, vector.body, other)


def _response_pair(wire: Wire, vector: Vector, other: Wire) -> None:
    response = Exchange().restore(wire.decode_response(vector.body))
    if response.fault is not None:
        return
    written, losses = other.encode_response(response)
    back = other.decode_response(written)
    differing = unexplained_in_response(response, back, list(losses))
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in losses]}\n{written}"


def _stream_pair(wire: Wire, vector: Vector, other: Wire) -> None:
    response = Exchange().restore(fold(decode_stream(wire, [vector.data])))
    restorer = Exchange().restorer()
    encoder = other.stream_encoder()
    written = b"".join(
        [encoder.feed(restored) for event in decode_stream(wire, [vector.data]) for restored in restorer.feed(event)]
    )
    back = fold(decode_stream(other, [written]))
    if response.fault is not None:
        assert back.fault is not None, "the error did not arrive"
        return
    differing = unexplained_in_response(response, back, list(encoder.losses))
    assert not differing, (
        f"changed without a loss: {differing}\nlosses: {[str(x) for x in encoder.losses]}\n{written!r}"
    )


def _with_old_names(fitted: Request, exchange: Exchange) -> Request:
    """Restore the original names in a fitted request."""
    back = exchange.original_name

    def part_of(part: Part) -> Part:
        if isinstance(part, (ToolCall, ToolResult)) and part.name is not None:
            namespace, name = back(part.namespace, part.name)
            return replace(part, name=name, namespace=namespace)
        return part

    messages = tuple(replace(m, parts=tuple(part_of(part) for part in m.parts)) for m in fitted.messages)
    tools = tuple(
        tool if tool.kind == "builtin" else _renamed(tool, back(tool.namespace, tool.name)) for tool in fitted.tools
    )
    choice = fitted.choice
    if choice is not None:
        choice = replace(choice, names=tuple(back(None, name)[1] for name in choice.names))
    return replace(fitted, messages=messages, tools=tools, choice=choice)


def _renamed(tool: Tool, original: tuple[str | None, str]) -> Tool:
    return replace(tool, namespace=original[0], name=original[1])


PAIR_CHECKS = {"request": _request_pair, "response": _response_pair, "stream": _stream_pair}
