"""Content blocks of Converse: objects with one member, which names the kind of the block.

text  image  document  video  audio  toolUse  toolResult  reasoningContent  citationsContent  cachePoint

A cache point is a block of its own after the marked one; it is the `cache` of the part before it. Any other block stays Opaque,
such as guardContent, searchResult, toolAddition and toolRemoval, and so do tools that the provider runs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import (
    Artefact,
    CallState,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    part_label,
)
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...stream.strict import parse_arguments
from ..codec import report_search_call
from ..content import found_as_text, placeholder_arguments, structured_as_text
from ..fields import (
    decode_list,
    is_empty,
    read_extra,
    read_optional_string,
    read_string,
    require_object,
    write_extra,
)
from .media import MEDIA_MEMBERS, NAME, PROVIDER, read_media, write_media

_FORM = "bedrock~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
CITATIONS = f"{NAME}/citationsContent"
_CALL, _RESULT, _MARK = f"{NAME}/toolUse", f"{NAME}/toolResult", f"{NAME}/cachePoint"
_REASONING, _REASONING_TEXT = f"{NAME}/reasoningContent", f"{NAME}/reasoningText"
_MARKABLE = (Text, Media, ToolCall, ToolResult)


def read_blocks(raw: Object, key: str, read: Callable[[JSON], Part]) -> tuple[Part, ...]:
    """Read the list of blocks under `key`. Raise ProtocolError with a pointer if one is invalid."""
    return tuple(attach_marks(decode_list(raw, key, read)))


def attach_marks(parts: Iterable[Part]) -> list[Part]:
    """Return the parts with cache points as the marks of the parts before them, where these may have one."""
    marked: list[Part] = []
    for part in parts:
        previous = marked[-1] if marked else None
        if type(part) is Opaque and part.type == "cachePoint" and isinstance(previous, _MARKABLE):
            mark = read_mark(part.value)
            if mark is not None and previous.cache is None:
                marked[-1] = replace(previous, cache=mark[0], extra={**previous.extra, **mark[1]})
                continue
        marked.append(part)
    return marked


def read_mark(block: Object) -> tuple[str, Extra] | None:
    """Return the time to live of a cache point, and its other fields; None if it is unusual."""
    point = block.get("cachePoint")
    if len(block) != 1 or type(point) is not dict or point.get("type") != "default":
        return None
    ttl = point.get("ttl")
    if ttl is not None and (type(ttl) is not str or not ttl or ttl == "default"):
        return None
    return ttl or "default", read_extra(point, ("type", "ttl"), _MARK)


def write_mark(ttl: str, extra: Extra) -> Object:
    point: Object = {"type": "default"} if ttl == "default" else {"type": "default", "ttl": ttl}
    return {"cachePoint": write_extra(point, extra, _MARK)}


def read_block(raw: JSON) -> Part:
    """Read a block of a user or system message. Raise ProtocolError if it is invalid."""
    block = require_object(raw)
    kind = next(filter(_READERS.__contains__, block), None)
    if kind is None:
        return Opaque(NAME, next(iter(block), "block"), block)
    if len(block) == 1 and kind == "text" and type(block["text"]) is str:
        return Text(block["text"])
    return _READERS[kind](block)


def read_answer_block(raw: JSON) -> Part:
    """Read a block of an assistant's message, in which a result belongs to a tool that the provider ran."""
    if type(raw) is dict and "toolResult" in raw:
        return Opaque(NAME, "toolResult", raw)
    return read_block(raw)


def _read_text(raw: Object) -> Text:
    return Text(read_string(raw, "text"), extra=read_extra(raw, ("text",), NAME))


def _read_call(raw: Object) -> Part:
    """Read a call; one of a tool that the provider runs stays Opaque. Arguments as text are accepted."""
    fields = require_object(raw["toolUse"], "toolUse")
    if fields.get("type"):
        return Opaque(NAME, "toolUse", raw)
    value = fields.get("input")
    arguments: Object | None = {}
    text: str | None = None
    state: CallState = "complete"
    if type(value) is str:
        arguments, state = parse_arguments(value)
        text = None if state == "complete" else value
    elif not is_empty(value):
        arguments = require_object(value, "toolUse", "input")
    extra = read_extra(fields, ("toolUseId", "name", "input"), _CALL, read_extra(raw, ("toolUse",), NAME))
    if type(value) is str and value:
        extra[f"{_CALL}?"] = {"input": value}
    if value is None:
        extra[_FORM] = {**extra.get(_FORM, {}), ":input": "absent"}
    try:
        return ToolCall(
            read_string(fields, "toolUseId"), read_string(fields, "name"), arguments, text, state, extra=extra
        )
    except ProtocolError as error:
        raise error.within("toolUse") from None


def _read_result(raw: Object) -> ToolResult:
    """Read a result. A single JSON block is its structured value; beside others, JSON is text."""
    fields = require_object(raw["toolResult"], "toolResult")
    try:
        parts = decode_list(fields, "content", _read_result_block)
        call_id = read_string(fields, "toolUseId")
    except ProtocolError as error:
        raise error.within("toolResult") from None
    extra = read_extra(fields, ("toolUseId", "content", "status"), _RESULT, read_extra(raw, ("toolResult",), NAME))
    status, form = fields.get("status"), extra.get(_FORM, {})
    if status not in (None, "error"):
        form = {**form, ":status": status}
    if not parts and fields.get("content") is None:
        form = {**form, ":content": "absent"}
    content: JSON = fields.get("content")
    structured = None
    if type(content) is list and len(content) == 1 and content[0].keys() == {"json"} and content[0]["json"] is not None:
        structured, parts = content[0]["json"], []
        form = {**form, ":json": "structured"}
    if form:
        extra[_FORM] = form
    return ToolResult(call_id, None, tuple(parts), structured, status == "error", extra=extra)


def _read_result_block(raw: JSON) -> Text | Media | Opaque:
    block = require_object(raw)
    if block.keys() == {"json"}:
        return Text(dumps(block["json"]), extra={_FORM: {":json": block["json"]}})
    part = read_block(block)
    if isinstance(part, (Text, Media, Opaque)) and "citationsContent" not in block:
        return part
    return Opaque(NAME, next(iter(block), "block"), block)


def _read_reasoning(raw: Object) -> Part:
    """Read reasoning: text with its signature, or encrypted text."""
    content = require_object(raw["reasoningContent"], "reasoningContent")
    fields, redacted = content.get("reasoningText"), content.get("redactedContent")
    extra = read_extra(raw, ("reasoningContent",), NAME)
    read_extra(content, ("reasoningText", "redactedContent"), _REASONING, extra)
    if type(redacted) is str and redacted and not fields:
        return Reasoning(artefacts=(Artefact(PROVIDER, "redacted", redacted),), extra=extra)
    if type(fields) is not dict or redacted:
        return Opaque(NAME, "reasoningContent", raw)
    try:
        text, signature = read_string(fields, "text"), read_optional_string(fields, "signature")
    except ProtocolError as error:
        raise error.within("reasoningContent", "reasoningText") from None
    read_extra(fields, ("text", "signature"), _REASONING_TEXT, extra)
    if not signature:  # most models do not sign
        extra[_FORM] = {**extra.get(_FORM, {}), ":signature": "absent"}
    return Reasoning(text, (), (Artefact(PROVIDER, "signature", signature),) if signature else (), extra)


def _read_citations(raw: Object) -> Part:
    """Read generated text with citations. The text in its pieces is form."""
    fields = require_object(raw["citationsContent"], "citationsContent")
    content: JSON = fields.get("content")
    pieces = content if type(content) is list else []
    texts = [piece["text"] for piece in pieces if type(piece) is dict and type(piece.get("text")) is str]
    if not texts or len(texts) != len(pieces):
        return Opaque(NAME, "citationsContent", raw)
    extra = read_extra(raw, ("citationsContent",), NAME)
    read_extra(fields, ("content",), CITATIONS, extra)
    extra[f"{CITATIONS}~"] = {**extra.get(f"{CITATIONS}~", {}), ":content": content}
    return Text("".join(texts), extra=extra)


_READERS: dict[str, Callable[[Object], Part]] = {
    "text": _read_text,
    "toolUse": _read_call,
    "toolResult": _read_result,
    "reasoningContent": _read_reasoning,
    "citationsContent": _read_citations,
    **{member: (lambda raw, member=member: read_media(raw, member)) for member in sorted(MEDIA_MEMBERS)},  # type: ignore[misc]
}


def write_blocks(parts: Sequence[Part], losses: Losses, path: str) -> list[Object]:
    """Write parts as blocks, with cache points after the marked ones; add losses."""
    blocks: list[Object] = []
    for number, part in enumerate(parts):
        block = write_block(part, losses, f"{path}/parts/{number}")
        if block is not None:
            blocks.append(block)
            if isinstance(part, _MARKABLE) and part.cache is not None:
                blocks.append(write_mark(part.cache, part.extra))
    return blocks


def write_block(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a part as a block; return None and report the loss if Converse has no such block."""
    if isinstance(part, Text):
        return write_text(part)
    if isinstance(part, ToolCall):
        return _write_call(part, losses, path)
    if isinstance(part, ToolResult):
        return _write_result(part, losses, path)
    if isinstance(part, Reasoning):
        return _write_reasoning(part, losses, path)
    if isinstance(part, Media):
        return write_media(part, losses, path)
    if isinstance(part, Refusal):
        losses.add(path, "refusal", "rewritten", "Converse has no refusal block; sent as text", "info")
        return {"text": part.text}
    if part.wire == NAME:
        return part.value
    losses.add(path, part_label(part), "dropped", "Converse has no equivalent block", "error")
    return None


def write_text(part: Text) -> Object:
    if not part.extra:
        return {"text": part.text}
    if CITATIONS not in part.extra and f"{CITATIONS}~" not in part.extra:
        return write_extra({"text": part.text}, part.extra, NAME)
    content = part.extra.get(f"{CITATIONS}~", {}).get(":content")
    if content is None or "".join([piece["text"] for piece in content]) != part.text:
        content = [{"text": part.text}]
    fields = write_extra({"content": content}, part.extra, CITATIONS)
    return write_extra({"citationsContent": fields}, part.extra, NAME)


def _write_call(call: ToolCall, losses: Losses, path: str) -> Object:
    """Write a call; a namespace and arguments that are not an object are losses."""
    if call.arguments is not None:
        arguments = call.arguments
    else:
        arguments = placeholder_arguments(call, losses, path) if call.raw or call.kind == "freeform" else {}
    fields: Object = {"toolUseId": call.id, "name": call.name, "input": arguments}
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "calls on Converse have no namespace")
    report_search_call(call, path, losses)
    if not call.extra:
        return {"toolUse": fields}
    if ":input" in call.extra.get(_FORM, {}) and not call.arguments:
        del fields["input"]
    return write_extra({"toolUse": write_extra(fields, call.extra, _CALL)}, call.extra, NAME)


def _write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a result. A structured value is JSON if it is an object ("Provide a json object"), else text."""
    result = found_as_text(result, path, losses)
    is_json = type(result.structured) is dict or ":json" in result.extra.get(_FORM, {})
    if is_json and not result.parts:
        content: list[Object] = [{"json": result.structured}]
    else:
        parts = structured_as_text(result, path, losses)
        content = [block for number, part in enumerate(parts) if (block := _result_block(part, losses, path, number))]
    form = result.extra.get(_FORM, {})
    fields: Object = {"toolUseId": result.call_id, "content": content}
    if not content and ":content" in form:
        del fields["content"]
    if result.is_error:
        fields["status"] = "error"
    elif ":status" in form:
        fields["status"] = form[":status"]
    return write_extra({"toolResult": write_extra(fields, result.extra, _RESULT)}, result.extra, NAME)


def _result_block(part: Text | Media | Opaque, losses: Losses, path: str, number: int) -> Object | None:
    if type(part) is Text and ":json" in (form := part.extra.get(_FORM, {})) and dumps(form[":json"]) == part.text:
        return {"json": form[":json"]}
    return write_block(part, losses, f"{path}/parts/{number}")


def _write_reasoning(part: Reasoning, losses: Losses, path: str) -> Object | None:
    """Write reasoning that a model on Bedrock made; return None with a loss for any other."""
    own = {artefact.kind: artefact.data for artefact in part.artefacts if artefact.provider == PROVIDER}
    is_unsigned = ":signature" in part.extra.get(_FORM, {})
    if not own and not is_unsigned:
        losses.add(path, "reasoning", "dropped", "Bedrock accepts only reasoning of its own models")
        return None
    return write_reasoning(part, own)


def write_reasoning(part: Reasoning, own: dict[str, str]) -> Object:
    """Write reasoning with the artefacts in `own`, by kind."""
    if "redacted" in own:
        content: Object = {"redactedContent": own["redacted"]}
    else:
        fields: Object = {"text": part.text}
        if "signature" in own:
            fields["signature"] = own["signature"]
        content = {"reasoningText": write_extra(fields, part.extra, _REASONING_TEXT)}
    return write_extra({"reasoningContent": write_extra(content, part.extra, _REASONING)}, part.extra, NAME)
