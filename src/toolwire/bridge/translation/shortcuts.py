"""Shortcuts for agents on any wire: read the calls of an answer, and send results back."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.errors import EncodeError, ProtocolError
from ...ir.folding import fold
from ...ir.losses import Losses, check_losses
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.response import Response, UpstreamError
from ...ir.tools import Tool
from ...stream.strict import as_bytes, parse
from ...wire import get, mcp
from ...wire.protocol import Wire
from ..fitting.history import fit_results
from .detection import NAME_THE_WIRE, detect, is_stream, read_message, to_document
from .exchange import Exchange
from .tool_lists import decode_readable_tools


def calls(body: JSON | bytes | str, wire: str | None = None) -> tuple[ToolCall, ...]:
    """Return the calls of an answer on any wire: a response, its message, or the bytes of a complete stream.

    A response or message may also be the object that an official SDK returns.

    Each call has an id, even if the wire gave none. Run only calls whose `state` is "complete". Raise UpstreamError for
    an error or a failed stream, ProtocolError for a document that is no answer.
    """
    data = as_bytes(body) if isinstance(body, (bytes, str)) else to_document(body)
    kind = "stream" if isinstance(data, bytes) and is_stream(data) else "response"
    if wire is None:
        try:
            wire, kind = (found := detect(data)).wire, found.kind
        except ProtocolError as error:
            error.hint = error.hint.replace(NAME_THE_WIRE, 'pass wire=…, such as wire="openai_chat"')
            raise
    if kind == "stream":
        decoder = get(wire).stream_decoder()
        response = fold([*decoder.feed(data), *decoder.close()])
    elif kind in ("response", "error", "message"):
        response = _decode_answer(parse(data) if isinstance(data, bytes) else data, get(wire))
    else:
        raise ProtocolError(
            f"expected an answer, got a {kind} of {wire}", hint="pass the response, or the complete stream"
        )
    if response.fault is not None:
        raise UpstreamError(response.fault)
    return Exchange().restore(response).calls


def _decode_answer(document: JSON, wire: Wire) -> Response:
    """Decode a response, or the assistant's message of one."""
    try:
        return wire.decode_response(document)
    except ProtocolError:
        response = read_message(document, wire)
        if response is None:
            raise
        return response


def results(answers: Iterable[ToolResult], wire: str) -> list[Object]:
    """Return the messages (items, contents) with the results on `wire`, to be appended to the conversation.

    Raise EncodeError for a value that is not a ToolResult, and for a result without the tool name that `wire` requires.
    """
    codec = get(wire)
    answers = tuple(answers)
    for index, answer in enumerate(answers):
        if not isinstance(answer, ToolResult):
            raise EncodeError(
                f"expected a ToolResult, got {answer!r}", pointer=join(index), hint="create it with call.result(…)"
            )
    if codec.capabilities.named_results:
        for index, answer in enumerate(answers):
            if answer.name is None:
                hint = "create the result with call.result(…), which sets it"
                raise EncodeError(
                    f"a result on {wire} requires the name of its tool", pointer=join(index, "name"), hint=hint
                )
    messages = fit_results(answers, codec)
    conversation: list[Object] = codec.encode_request(Request(messages=messages)).body[codec.conversation]
    return conversation


def list_tools(body: JSON | bytes | str, wire: str, *, losses: Losses | None = None) -> tuple[Tool, ...]:
    """Return the tools of a discovery reply: MCP's `tools/list`, or a provider's tool search. Other wires raise.

    An unreadable MCP declaration raises an error; with `losses`, it is skipped and reported there.
    """
    check_losses(losses)
    document = parse(body) if isinstance(body, (bytes, str)) else body
    if wire != mcp.NAME:
        return get(wire).list_tools(document)
    if losses is None:
        return mcp.list_tools(document)
    return decode_readable_tools(mcp.declarations(document), wire, losses)[0]
