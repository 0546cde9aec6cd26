"""The two things an agent needs from any wire: the calls of an answer, and the way to give results back."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.errors import EncodeError, ProtocolError, UpstreamError
from ..ir.fold import fold
from ..ir.losses import Losses
from ..ir.parts import ToolCall, ToolResult
from ..ir.pointer import JSON, Object, join
from ..ir.request import Request
from ..ir.tools import Tool
from ..stream.strict import as_bytes, parse
from ..wire import get, mcp
from .detect import detect, is_stream
from .exchange import Exchange
from .fit_history import fit_results
from .readable import readable_tools

__all__ = ["calls", "list_tools", "results"]


def calls(body: JSON | bytes | str, wire: str | None = None) -> tuple[ToolCall, ...]:
    """The calls of an answer on any wire: a response, or the bytes of a whole stream.

    Each has an id, also where the wire gave none. Run only those whose `state` is "complete".
    """
    data = as_bytes(body) if isinstance(body, (bytes, str)) else body
    kind = "stream" if isinstance(data, bytes) and is_stream(data) else "response"
    if wire is None:
        wire, kind = (found := detect(data)).wire, found.kind
    if kind == "stream":
        decoder = get(wire).stream_decoder()
        response = fold([*decoder.feed(data), *decoder.close()])
    elif kind in ("response", "error"):
        response = get(wire).decode_response(parse(data) if isinstance(data, bytes) else data)
    else:
        raise ProtocolError(f"a {kind} of {wire}, not an answer", hint="give the response, or the whole stream")
    if response.fault is not None:
        raise UpstreamError(response.fault)
    return Exchange().restore(response).calls


def results(answers: Iterable[ToolResult], wire: str) -> list[Object]:
    """The messages (items, contents) that give results back on `wire`, to be appended to the conversation."""
    codec = get(wire)
    answers = tuple(answers)
    for index, answer in enumerate(answers):
        if not isinstance(answer, ToolResult):
            raise EncodeError(
                f"expected a ToolResult, got {answer!r}", pointer=join(index), hint="call.result(…) makes one"
            )
    if codec.capabilities.named_results:
        for index, answer in enumerate(answers):
            if answer.name is None:
                hint = "call.result(…) fills it in"
                raise EncodeError(f"a result on {wire} names its tool", pointer=join(index, "name"), hint=hint)
    messages = fit_results(answers, codec)
    conversation: list[Object] = codec.encode_request(Request(messages=messages)).body[codec.conversation]
    return conversation


def list_tools(body: JSON | bytes | str, wire: str, *, losses: Losses | None = None) -> tuple[Tool, ...]:
    """The tools of a discovery reply: MCP's `tools/list`, or a provider's tool search. Wires without one say so.

    One MCP declaration that cannot be read refuses the reply; with `losses`, it is left out and told there.
    """
    document = parse(body) if isinstance(body, (bytes, str)) else body
    if wire != mcp.NAME:
        return get(wire).list_tools(document)
    if losses is None:
        return mcp.list_tools(document)
    return readable_tools(mcp.declarations(document), wire, losses)[0]
