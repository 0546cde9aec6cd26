"""Content blocks of Messages. A message is one ordered list of blocks.

text  image  document  thinking  redacted_thinking  tool_use  tool_result      any other block stays Opaque
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from operator import attrgetter

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
from ...stream.strict import parse_arguments
from ..codec import report_search_call
from ..content import media_placeholder, structured_as_text
from ..fields import (
    decode_list,
    is_empty,
    odd_values,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    require_object,
    type_error,
    write_extra,
)
from .tools import NAME, add_references, is_reference, read_cache, read_references, write_cache
from .typed_tools import write_member

PROVIDER = "anthropic"
_FORM = "anthropic~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours

_TEXT = frozenset({"type", "text", "cache_control"})
_MEDIA = frozenset({"type", "source", "title", "cache_control"})
_SOURCE = frozenset({"type", "media_type", "data", "url", "file_id"})
_CALL = frozenset({"type", "id", "name", "input", "cache_control"})
_CALL_FIELD_TYPES = {"input": (dict,)}
_CALL_TYPES = [str, str, dict]  # of id, name and input
_RESULT = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_CONTENT = (Text, Media, Opaque)
_WRITABLE_TYPES = {"image": _IMAGES, "document": frozenset({"application/pdf"})}


def read_blocks(raw: Object, form: Object, read: Callable[[JSON], Part] | None = None) -> list[Part]:
    """Read the content of a message or a result; put its spelling into `form`, raise ProtocolError if it is invalid."""
    value = raw.get("content")
    if type(value) is str:
        if value:
            return [Text(value)]
        form["content"] = ""
        return []
    if value is None:
        form[":content"] = "null" if "content" in raw else "absent"
        return []
    if type(value) is not list:
        raise type_error("a string or an array of blocks", value, "content")
    parts = decode_list(raw, "content", read or read_block)
    if len(parts) < 2 and not (parts and needs_list(parts[0])):
        form[":content"] = "list"
    return parts


def needs_list(part: Part) -> bool:
    """Return whether a part cannot be written as a bare string."""
    return type(part) is not Text or bool(part.extra) or part.cache is not None


def read_block(raw: JSON) -> Part:
    """Read a content block as a part; a block of an unknown type stays Opaque. Raise ProtocolError if it is invalid."""
    if type(raw) is not dict:
        raise type_error("an object", raw)
    kind = raw.get("type")
    if kind == "tool_use":
        return _read_call(raw)
    if kind == "tool_result":
        return _read_result(raw)
    if kind == "text":
        if len(raw) == 2:  # only type and text
            return Text(read_string(raw, "text"))
        extra = read_extra(raw, _TEXT, NAME)
        return Text(read_string(raw, "text"), read_cache(raw, extra), extra=extra)
    if kind == "thinking":
        return _read_thinking(raw)
    if kind == "redacted_thinking":
        artefact = Artefact(PROVIDER, "redacted", read_string(raw, "data"))
        return Reasoning(artefacts=(artefact,), extra=read_extra(raw, ("type", "data"), NAME))
    if kind == "image" or kind == "document":
        return _read_media(raw, kind)
    return Opaque(NAME, read_string(raw, "type"), raw)


def _read_thinking(raw: Object) -> Reasoning:
    """Read a thinking block. A missing signature is recorded as form, so that the block can be written back."""
    signature = read_optional_string(raw, "signature")
    artefacts = (Artefact(PROVIDER, "signature", signature),) if signature else ()
    extra = read_extra(raw, ("type", "thinking", "signature"), NAME)
    if not signature:  # servers that only imitate this wire may not sign
        extra[_FORM] = {**extra.get(_FORM, {}), ":signature": "absent"}
    return Reasoning(read_string(raw, "thinking"), (), artefacts, extra)


def _read_call(raw: Object) -> ToolCall:
    """Read a `tool_use` block; one with exactly the four usual fields takes the fast path."""
    if len(raw) == 4 and "id" in raw and "name" in raw and "input" in raw:
        values = raw["id"], raw["name"], raw["input"]
        if [*map(type, values)] == _CALL_TYPES:
            return ToolCall(*values)
    return _read_any_call(raw)


def _read_any_call(raw: Object) -> ToolCall:
    """Read a `tool_use` block with any fields; an absent or odd input is recorded in `extra`."""
    value = raw.get("input")
    arguments: Object | None = {}
    text: str | None = None
    state: CallState = "complete"
    if type(value) is str:  # a server that copies OpenAI's arguments
        arguments, state = parse_arguments(value)
        text = None if state == "complete" else value
    elif not is_empty(value):
        arguments = require_object(value, "input")
    extra = read_extra(raw, _CALL, NAME) | odd_values(raw, _CALL_FIELD_TYPES, NAME)
    if value is None:
        extra[_FORM] = {**extra.get(_FORM, {}), ":input": "absent"}  # or null, which stays in the form
    cache = read_cache(raw, extra)
    return ToolCall(read_string(raw, "id"), read_string(raw, "name"), arguments, text, state, cache=cache, extra=extra)


def _read_result(raw: Object) -> ToolResult:
    """Read a `tool_result` block; text content with at most `is_error` besides takes the fast path."""
    content, call_id = raw.get("content"), raw.get("tool_use_id")
    if type(content) is str and content and type(call_id) is str:
        if len(raw) == 3:
            return ToolResult(call_id, None, (Text(content),))
        if len(raw) == 4 and type(is_error := raw.get("is_error")) is bool:
            extra: Extra = {} if is_error else {_FORM: {"is_error": False}}
            return ToolResult(call_id, None, (Text(content),), None, is_error, extra=extra)
    return _read_any_result(raw)


def _read_any_result(raw: Object) -> ToolResult:
    """Read a `tool_result` block with any content and fields; raise ProtocolError if the content is invalid."""
    form: Object = {}
    try:
        parts = read_blocks(raw, form, _read_result_block)
    except ProtocolError as error:
        raise error if "/content" in error.pointer else error.within("content") from None
    is_error = read_boolean(raw, "is_error")
    extra = read_extra(raw, _RESULT, NAME) if len(raw) > 3 or not parts else {}
    cache = read_cache(raw, extra)
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    found = read_references(parts, extra)
    content = tuple(part for part in parts if isinstance(part, _CONTENT) and not is_reference(part))
    return ToolResult(
        read_string(raw, "tool_use_id"), None, content, None, bool(is_error), cache=cache, extra=extra, found=found
    )


def _read_result_block(raw: JSON) -> Text | Media | Opaque:
    """Read a block of a tool result. Block types that are parsed only in messages stay opaque."""
    if require_object(raw).get("type") in ("text", "image", "document"):
        part = read_block(raw)
        assert isinstance(part, _CONTENT)
        return part
    return Opaque(NAME, read_string(raw, "type"), raw)


def _read_media(raw: Object, kind: str) -> Part:
    """Read an image or a document; if its source is unknown or without content, it stays Opaque."""
    source = require_object(raw.get("source"), "source")
    source_type = source.get("type")
    if source_type not in ("base64", "url", "file", "text"):
        return Opaque(NAME, kind, raw)
    data, form = read_optional_string(source, "data"), {}
    media_type = read_optional_string(source, "media_type")
    if data is None and not source.get("url") and not source.get("file_id"):
        return Opaque(NAME, kind, raw)
    if source_type == "text":  # a plain-text document: Media holds base64
        data, form = b64encode((data or "").encode()).decode(), {":source": "text"}
    elif source_type == "base64" and media_type not in _WRITABLE_TYPES[kind]:
        form = {":source": "base64"}
    extra = read_extra(source, _SOURCE, f"{NAME}/source", read_extra(raw, _MEDIA, NAME))
    cache = read_cache(raw, extra)
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return Media(
        "image" if kind == "image" else "file",
        media_type,
        data,
        read_optional_string(source, "url"),
        read_optional_string(source, "file_id"),
        read_optional_string(raw, "title"),
        cache=cache,
        owner=PROVIDER if source_type == "file" else None,
        extra=extra,
    )


def write_blocks(parts: Sequence[Part], form: Object, losses: Losses, path: str) -> JSON:
    """Return a string or a list of blocks, or None if the field is to be left out; add losses."""
    if len(parts) == 1:
        only = parts[0]
        if type(only) is Text and not only.extra and only.cache is None and ":content" not in form:
            return only.text
    elif not parts:
        return [] if form.get(":content") == "list" else form.get("content")
    blocks = list(map(write_plain_block, parts))
    if None in blocks:
        for number, part in enumerate(parts):
            blocks[number] = blocks[number] or write_block(part, losses, f"{path}/parts/{number}")
        return [block for block in blocks if block is not None]
    return blocks


# One look-up for all fields that a plain part does not have.
_call_options = attrgetter("namespace", "cache", "extra")
_result_options = attrgetter("structured", "cache", "found", "extra")


def write_plain_block(part: Part) -> Object | None:
    """Write a text, call or result with only the usual fields, which causes no loss; return None for any other part."""
    if type(part) is ToolCall:
        if part.arguments is None or part.kind in ("search", "typed") or _call_options(part) != (None, None, {}):
            return None
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
    if type(part) is ToolResult:
        return _write_plain_result(part)
    is_plain = type(part) is Text and not part.extra and part.cache is None
    return {"type": "text", "text": part.text} if is_plain else None  # type: ignore[union-attr]


def _write_plain_result(result: ToolResult) -> Object | None:
    """Write a result of one plain text, or return None."""
    if len(result.parts) != 1 or _result_options(result) != (None, None, (), {}):
        return None
    only = result.parts[0]
    if type(only) is not Text or only.extra or only.cache is not None:
        return None
    if result.is_error:
        return {"type": "tool_result", "tool_use_id": result.call_id, "content": only.text, "is_error": True}
    return {"type": "tool_result", "tool_use_id": result.call_id, "content": only.text}


def write_block(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a part as a content block; return None and report the loss if Anthropic has no such block."""
    if isinstance(part, ToolCall):
        return _write_call(part, losses, path)
    if isinstance(part, ToolResult):
        return _write_result(part, losses, path)
    if isinstance(part, Text):
        out: Object = {"type": "text", "text": part.text}
        if part.extra or part.cache is not None:
            write_cache(part.cache, part.extra, out)
            return write_extra(out, part.extra, NAME)
        return out
    if isinstance(part, Reasoning):
        return write_thinking(part, losses, path)
    if isinstance(part, Media):
        return _write_media(part, losses, path)
    if isinstance(part, Refusal):
        losses.add(path, "refusal", "rewritten", "Anthropic has no refusal block; sent as text", "info")
        return {"type": "text", "text": part.text}
    if part.wire == NAME:
        return part.value
    losses.add(path, part_label(part), "dropped", "Anthropic has no equivalent block", "error")
    return None


def _write_call(call: ToolCall, losses: Losses, path: str) -> Object:
    """Write a `tool_use` block; a namespace is a loss, and an input that was absent when read is left out again."""
    if call.kind == "typed":
        return write_extra(write_member(call), call.extra, NAME)
    out: Object = {"type": "tool_use", "id": call.id, "name": call.name, "input": call_arguments(call, losses, path)}
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "Anthropic calls have no namespace")
    report_search_call(call, path, losses)
    if call.cache is None and not call.extra:
        return out
    if ":input" in call.extra.get(_FORM, {}) and not call.arguments:
        del out["input"]
    write_cache(call.cache, call.extra, out)
    return write_extra(out, call.extra, NAME)


def call_arguments(call: ToolCall, losses: Losses, path: str) -> Object:
    """Return the arguments as an object, which the wire requires; any other input is wrapped, with a loss."""
    if call.arguments is not None:
        return call.arguments
    if call.kind == "freeform":
        losses.add(path, "freeform call", "rewritten", "sent as a call with one argument, `input`", "info")
        return {"input": call.raw or ""}
    if not call.raw:
        return {}  # truncated before its arguments
    detail = "not a JSON object; sent as text under `raw_arguments`"
    losses.add(f"{path}/arguments", "arguments", "rewritten", detail)
    return {"raw_arguments": call.raw}


def _write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a `tool_result` block with any parts, form and cache mark."""
    out: Object = {"type": "tool_result", "tool_use_id": result.call_id}
    form = result.extra.get(_FORM, {})
    content = write_blocks(structured_as_text(result, path, losses), form, losses, path)
    if result.found:
        out["content"] = add_references(content, result.found, form)
    elif content is not None:
        out["content"] = content
    elif form.get(":content") == "null":
        out["content"] = None
    if result.is_error:
        out["is_error"] = True
    write_cache(result.cache, result.extra, out)
    return write_extra(out, result.extra, NAME)


def write_thinking(part: Reasoning, losses: Losses, path: str) -> Object | None:
    """Write a thinking block, or return None with a loss: Anthropic accepts only thinking that it signed."""
    for artefact in part.artefacts:
        if artefact.provider == PROVIDER and artefact.kind == "signature":
            out = {"type": "thinking", "thinking": part.text, "signature": artefact.data}
            return write_extra(out, part.extra, NAME)
        if artefact.provider == PROVIDER and artefact.kind == "redacted":
            return write_extra({"type": "redacted_thinking", "data": artefact.data}, part.extra, NAME)
    if ":signature" in part.extra.get(_FORM, {}):  # this wire sent it without a signature
        return write_extra({"type": "thinking", "thinking": part.text}, part.extra, NAME)
    losses.add(path, "reasoning", "dropped", "Anthropic accepts only thinking that it signed")
    return None


def _write_media(part: Media, losses: Losses, path: str) -> Object | None:
    """Write an image or document block with its losses, or a placeholder for media that Anthropic does not accept."""
    source = _write_source(part)
    if source is None or part.kind not in ("image", "file"):
        description = part.media_type or part.kind
        losses.add(
            path,
            part.kind,
            "dropped",
            f"Anthropic accepts images and PDF or text documents, not {description}",
            "error",
        )
        return {"type": "text", "text": media_placeholder(part).text}
    out: Object = {"type": "image" if part.kind == "image" else "document"}
    out["source"] = write_extra(source, part.extra, f"{NAME}/source")
    if part.name is not None and part.kind == "file":
        out["title"] = part.name
    elif part.name is not None:
        losses.add(f"{path}/name", "name of an image", "dropped", "Anthropic has names for documents only", "info")
    if part.detail is not None:
        losses.add(f"{path}/detail", "image detail", "dropped", "Anthropic has no detail setting", "info")
    if part.url is not None and part.media_type is not None:
        losses.add(f"{path}/media_type", "media type", "dropped", "a URL source has no media type", "info")
    write_cache(part.cache, part.extra, out)
    return write_extra(out, part.extra, NAME)


def _write_source(part: Media) -> Object | None:
    """Return the `source` of a media block, or None if Anthropic does not accept this media type."""
    if part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.data is None:
        return None
    if part.extra.get(_FORM, {}).get(":source") == "base64":  # a media type that only this wire sent
        source: Object = {} if part.media_type is None else {"media_type": part.media_type}
        return {"type": "base64", "data": part.data, **source}
    if part.kind == "image":
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
        return source if part.media_type in _IMAGES else None
    if part.media_type == "application/pdf":
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.media_type == "text/plain" or part.extra.get(_FORM, {}).get(":source") == "text":
        text_type: Object = {} if part.media_type is None else {"media_type": part.media_type}
        try:
            return {"type": "text", **text_type, "data": b64decode(part.data, validate=True).decode()}
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None
