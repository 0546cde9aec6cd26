"""Checks between two wires: after a round trip, every change is covered by a loss."""

from __future__ import annotations

from msgspec.structs import replace

from ..bridge.conversation.provider_state import drop_stored
from ..bridge.translation.exchange import Exchange
from ..bridge.translation.preparation import prepare
from ..ir.errors import ToolwireError
from ..ir.folding import fold
from ..ir.parts import Part, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .pairs import unexplained_in_request, unexplained_in_response
from .stream_checks import decode_stream
from .vectors import Vector

__all__ = ["PAIR_CHECKS", "request_pair"]


def request_pair(wire: Wire, body: Object, other_wire: Wire) -> None:
    """Send a request to `other_wire` and back; every change must be in the losses."""
    request = drop_stored(wire.decode_request(body), other_wire.name)
    try:
        prepared = prepare(request, other_wire)
    except ToolwireError:
        return  # refused with a reason before sending
    written, losses = other_wire.encode_request(prepared.request)
    returned = other_wire.decode_request(written)
    differing = unexplained_in_request(prepared.request, returned, list(losses))
    assert not differing, f"{other_wire.name} decodes a different value at {differing}, without a loss"
    original = _restore_names(returned, prepared.exchange)
    explained = [*prepared.losses, *(replace(loss, path=prepared.origin(loss.path)) for loss in losses)]
    differing = unexplained_in_request(request, original, explained)
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in explained]}"


def _request_pair(wire: Wire, vector: Vector, other_wire: Wire) -> None:
    request_pair(wire, vector.body, other_wire)


def _response_pair(wire: Wire, vector: Vector, other_wire: Wire) -> None:
    """Encode a response for another wire and decode it again; every change must be in the losses."""
    response = Exchange().restore(wire.decode_response(vector.body))
    if response.fault is not None:
        return
    written, losses = other_wire.encode_response(response)
    returned = other_wire.decode_response(written)
    differing = unexplained_in_response(response, returned, list(losses))
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in losses]}\n{written}"


def _stream_pair(wire: Wire, vector: Vector, other_wire: Wire) -> None:
    """Translate a stream to another wire event by event; every change must be in the losses."""
    response = Exchange().restore(fold(decode_stream(wire, [vector.data])))
    restorer = Exchange().make_restorer()
    encoder = other_wire.stream_encoder()
    written = b"".join(
        [encoder.feed(restored) for event in decode_stream(wire, [vector.data]) for restored in restorer.feed(event)]
    )
    returned = fold(decode_stream(other_wire, [written]))
    if response.fault is not None:
        assert returned.fault is not None, "the error did not arrive"
        return
    differing = unexplained_in_response(response, returned, list(encoder.losses))
    assert not differing, (
        f"changed without a loss: {differing}\nlosses: {[str(x) for x in encoder.losses]}\n{written!r}"
    )


def _restore_names(fitted: Request, exchange: Exchange) -> Request:
    """Restore the original names in a fitted request."""
    returned = exchange.original_name

    def restore_part(part: Part) -> Part:
        if isinstance(part, (ToolCall, ToolResult)) and part.name is not None:
            namespace, name = returned(part.namespace, part.name)
            return replace(part, name=name, namespace=namespace)
        return part

    messages = tuple(replace(m, parts=tuple(restore_part(part) for part in m.parts)) for m in fitted.messages)
    tools = tuple(
        tool if tool.kind == "builtin" else _rename_tool(tool, returned(tool.namespace, tool.name))
        for tool in fitted.tools
    )
    choice = fitted.choice
    if choice is not None:
        choice = replace(choice, names=tuple(returned(None, name)[1] for name in choice.names))
    return replace(fitted, messages=messages, tools=tools, choice=choice)


def _rename_tool(tool: Tool, original: tuple[str | None, str]) -> Tool:
    return replace(tool, namespace=original[0], name=original[1])


PAIR_CHECKS = {"request": _request_pair, "response": _response_pair, "stream": _stream_pair}
