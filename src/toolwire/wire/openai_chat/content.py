"""Content of Chat messages, a string or a list of parts, and prompt-cache marks on it.

Prompt-cache marks of routers on Chat: `cache_control`, as LiteLLM and OpenRouter read it.

    {"type": "text", "text": "…", "cache_control": {"type": "ephemeral", "ttl": "1h"}}

The mark may be on a part, a message or a tool. It becomes the canonical mark; the field itself is kept as form, so that
it is written back on this wire only. OpenAI has `prompt_cache_breakpoint` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.parts import Extra, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, part_label
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ..content import data_url, media_placeholder, split_data_url
from ..fields import decode_list, read_extra, read_optional_string, read_string, require_object, type_error, write_extra

_NAME = "openai_chat"
_FIELD = "cache_control"
MARKED: Object = {":cache": _FIELD}
"""The form of a value whose mark came as `cache_control`, its own or its message's."""


def take_cache_control(extra: Extra, scope: str = _NAME) -> str | None:
    """Return the time to live of a mark among the fields of this wire, and move the field to the form.

    Return None if there is none; a mark of another type is left where it is.
    """
    mark = extra.get(scope, {}).get(_FIELD)
    if type(mark) is not dict or mark.get("type") != "ephemeral" or mark.keys() - {"type", "ttl"}:
        return None
    ttl = mark.get("ttl") or "default"
    if type(ttl) is not str:
        return None
    other_fields = {key: value for key, value in extra[scope].items() if key != _FIELD}
    if other_fields:
        extra[scope] = other_fields
    else:
        del extra[scope]
    extra[f"{scope}~"] = {**extra.get(f"{scope}~", {}), _FIELD: mark}
    extra[f"{_NAME}~"] = {**extra.get(f"{_NAME}~", {}), **MARKED}
    return ttl


def has_cache_control(extra: Extra) -> bool:
    """Return whether the mark of a value came as `cache_control`."""
    return ":cache" in extra.get(f"{_NAME}~", {})


# A single plain text is written as a string, unless it came as a list of one (form `:content`).


NAME = "openai_chat"
_FORM = "openai_chat~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_IN_CONTENT: Object = {":place": "content"}
"""The form of a part that was in the content, although OpenAI's messages have a field for its kind."""


def is_in_content(part: Part) -> bool:
    """Return whether a part of an answer was an element of the content array."""
    return not isinstance(part, (ToolCall, Opaque)) and ":place" in part.extra.get(_FORM, {})


def read_content(raw: Object, form: Object, read: Callable[[JSON], Part] | None = None) -> list[Part]:
    """Read the parts of a message; put its spelling into `form`, raise ProtocolError if it is invalid."""
    value = raw.get("content")
    if type(value) is str:
        if value:
            return [Text(value)]
        form["content"] = ""
        return []
    if value is None:
        return []
    if type(value) is not list:
        raise type_error("a string or an array", value, "content")
    parts = decode_list(raw, "content", read or read_part)
    if len(parts) < 2:
        form[":content"] = "list"
    return parts


def read_part(raw: JSON) -> Part:
    """Read one element of a content array; an unknown kind stays Opaque. Raise ProtocolError if it is invalid."""
    if type(raw) is str:  # some servers accept bare strings in a list
        return Text(raw, extra={_FORM: {":content": "bare"}})
    kind = require_object(raw).get("type")
    if kind == "text":
        if len(raw) == 2:
            return Text(read_string(raw, "text"))
        extra = read_extra(raw, _TEXT, NAME)
        return Text(read_string(raw, "text"), read_cache(raw, extra), extra=extra)
    if kind == "image_url":
        return _read_image(raw)
    if kind == "input_audio":
        return _read_audio(raw)
    if kind == "file":
        return _read_file(raw)
    if kind == "document_url":
        return _read_document(raw)
    if kind == "refusal":
        extra = read_extra(raw, ("type", "refusal"), NAME)
        return Refusal(read_string(raw, "refusal"), {**extra, _FORM: {**extra.get(_FORM, {}), **_IN_CONTENT}})
    return Opaque(NAME, read_string(raw, "type"), raw)


def read_answer_part(raw: JSON) -> Part:
    """Read one element of the content array of an assistant message."""
    if type(raw) is dict and raw.get("type") == "thinking":
        return _read_thinking(raw)
    part = read_part(raw)
    if isinstance(part, Media):
        form = {**part.extra.get(_FORM, {}), **_IN_CONTENT}
        return replace(part, extra={**part.extra, _FORM: form})
    return part


def read_parts(content: JSON) -> list[Part]:
    """Read the content array of an assistant message, or its only element."""
    return decode_list({"content": content if type(content) is list else [content]}, "content", read_answer_part)


def _read_thinking(raw: Object) -> Part:
    """Read reasoning in the content: `thinking` holds text and reference chunks (Mistral's API, ThinkChunk).

    Chunks that are not plain text are kept in `extra`; a `thinking` of another type stays Opaque.
    """
    chunks = raw.get("thinking")
    if type(chunks) is str:
        text, is_plain = chunks, True
    elif type(chunks) is list:
        text = _join_text(chunks)
        is_plain = all(_is_text(chunk) and len(chunk) == 2 for chunk in chunks)
    else:
        return Opaque(NAME, "thinking", raw)
    extra = read_extra(raw, ("type", "thinking"), NAME)
    if not is_plain:
        extra.setdefault(NAME, {})["thinking"] = chunks
    form = {} if chunks == _make_thinking(text) else {":thinking": chunks}
    extra[_FORM] = {**extra.get(_FORM, {}), **form, **_IN_CONTENT}
    return Reasoning(text, extra=extra)


def _is_text(chunk: JSON) -> bool:
    return type(chunk) is dict and chunk.get("type") == "text" and type(chunk.get("text")) is str


def _join_text(chunks: list[JSON]) -> str:
    return "".join([chunk["text"] for chunk in chunks if _is_text(chunk)])


def _make_thinking(text: str) -> list[Object]:
    return [{"type": "text", "text": text}]


def _write_thinking(part: Reasoning) -> Object:
    chunks = part.extra.get(_FORM, {}).get(":thinking")
    said = _join_text(chunks) if type(chunks) is list else chunks
    written = chunks if said == part.text else _make_thinking(part.text)
    return write_extra({"type": "thinking", "thinking": written}, part.extra, NAME)


_MARKED = frozenset({"type", "prompt_cache_breakpoint"})
_TEXT = _MARKED | {"text"}
_CACHE = f"{NAME}/prompt_cache_breakpoint"
_IMAGE = frozenset({"url", "detail"})
_AUDIO = frozenset({"data", "format"})
_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
_AUDIO_ALIASES = {kind: f"audio/{name}" for kind, name in _AUDIO_FORMATS.items() if kind != f"audio/{name}"}
_FILE = frozenset({"file_data", "file_id", "filename"})


def _outer_extra(raw: Object, kind: str, inner: Object, known: frozenset[str]) -> Extra:
    return read_extra(inner, known, f"{NAME}/{kind}", read_extra(raw, _MARKED | {kind}, NAME))


def _read_audio(raw: Object) -> Media:
    """Read inline audio; a format that OpenAI does not have is kept as a field of this wire."""
    audio = require_object(raw.get("input_audio"), "input_audio")
    encoding = read_optional_string(audio, "format")
    known = _AUDIO if encoding in _AUDIO_FORMATS.values() else _AUDIO - {"format"}  # others may support more
    extra = _outer_extra(raw, "input_audio", audio, known)
    if not encoding:
        extra[_FORM] = {**extra.get(_FORM, {}), ":format": "absent"}
    cache = read_cache(raw, extra)
    return Media("audio", f"audio/{encoding or 'wav'}", read_string(audio, "data"), cache=cache, extra=extra)


def _read_image(raw: Object) -> Media | Opaque:
    """Read an image, inline or by URL; one without either stays Opaque."""
    image = raw.get("image_url")
    form: Object = {}
    if type(image) is str:  # liberal: a bare URL
        form[":image_url"] = "string"
        image = {"url": image}
    image = require_object(image, "image_url")
    media_type, data, url = split_data_url(read_string(image, "url"))
    if not data and not url:
        return Opaque(NAME, "image_url", raw)
    extra = _outer_extra(raw, "image_url", image, _IMAGE)
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    detail = read_optional_string(image, "detail")
    return Media("image", media_type, data, url, detail=detail, cache=read_cache(raw, extra), extra=extra)


def _read_document(raw: Object) -> Media | Opaque:
    """Read a document by URL or inline (Mistral's API, DocumentURLChunk)."""
    address, name = raw.get("document_url"), raw.get("document_name")
    if type(address) is not str or not address or type(name) not in (str, type(None)):
        return Opaque(NAME, "document_url", raw)
    media_type, data, url = split_data_url(address)
    extra = read_extra(raw, _MARKED | {"document_url", "document_name"}, NAME)
    extra[_FORM] = {**extra.get(_FORM, {}), ":type": "document_url"}
    return Media("file", media_type, data, url, name=name, cache=read_cache(raw, extra), extra=extra)


def _read_file(raw: Object) -> Media | Opaque:
    """Read a file: inline data, an id, or a URL; one without any of them stays Opaque."""
    file = require_object(raw.get("file"), "file")
    file_data, file_id = read_optional_string(file, "file_data"), read_optional_string(file, "file_id")
    if not file_data and not file_id:
        return Opaque(NAME, "file", raw)
    media_type, data, bare = split_data_url(file_data or "")
    extra, url = _outer_extra(raw, "file", file, _FILE), None
    if bare and bare.startswith(("https://", "http://")):  # OpenRouter accepts a URL as `file_data`
        extra[_FORM] = {**extra.get(_FORM, {}), ":file_data": "url"}
        url, bare = bare, None
    return Media(
        "file",
        media_type,
        bare or None if data is None else data,
        url,
        file_id,
        read_optional_string(file, "filename"),
        cache=read_cache(raw, extra),
        owner="openai" if file_id else None,
        extra=extra,
    )


def read_cache(raw: Object, extra: Extra) -> str | None:
    """Read the time to live of a cache breakpoint or `cache_control`, or None; its other fields go into `extra`."""
    mark = raw.get("prompt_cache_breakpoint")
    if mark is None:
        return take_cache_control(extra)
    ttl = read_optional_string(require_object(mark, "prompt_cache_breakpoint"), "ttl")
    explicit = mark.get("mode") == "explicit"
    read_extra(mark, ("mode", "ttl") if explicit else ("ttl",), _CACHE, extra)
    if not explicit:
        extra[_FORM] = {**extra.get(_FORM, {}), ":mode": "other"}
    return ttl or "default"


def write_content(
    parts: Sequence[Part], form: Object, losses: Losses, path: str, numbers: Sequence[int] | None = None
) -> JSON:
    """Write a string or a list, or return None for no parts. `numbers`: the positions of the parts in the message at `path`."""
    if len(parts) == 1 and type(parts[0]) is Text and ":content" not in form:
        only = parts[0]
        if only.cache is None and not only.extra:
            return only.text
        if only.extra == {_FORM: MARKED}:  # the message has the mark
            return only.text
    if not parts:
        return [] if form.get(":content") == "list" else form.get("content")
    numbers = range(len(parts)) if numbers is None else numbers
    written = [write_part(part, losses, f"{path}/parts/{number}") for part, number in zip(parts, numbers, strict=True)]
    return [item for item in written if item is not None]


def write_part(part: Part, losses: Losses, path: str) -> JSON:
    """Write a part as an element of a content array, with its losses; return None for a part that Chat cannot hold."""
    if isinstance(part, Text):
        if _FORM in part.extra and ":content" in part.extra[_FORM]:
            return part.text
        return write_extra(
            {"type": "text", "text": part.text, **_write_cache(part.cache, part.extra)}, part.extra, NAME
        )
    if isinstance(part, Media):
        out = _write_media(part)
        if out is None:
            source = " by URL" if part.url else " by file id" if part.file_id else ""
            detail = f"Chat does not accept {part.media_type or part.kind}{source}"
            losses.add(path, part.kind, "dropped", detail, "error")
            out = {"type": "text", "text": media_placeholder(part).text}
        else:
            if part.name is not None and part.kind != "file":
                losses.add(
                    f"{path}/name", f"name of an {part.kind}", "dropped", "on Chat only files have a name", "info"
                )
            if part.url is not None and part.media_type is not None:
                losses.add(f"{path}/media_type", "media type", "dropped", "a URL is sent without a media type", "info")
            if part.kind == "audio" and part.media_type in _AUDIO_ALIASES:
                losses.add(
                    f"{path}/media_type", "media type", "rewritten", f"as {_AUDIO_ALIASES[part.media_type]}", "info"
                )
            if part.kind == "image" and part.data is not None and part.media_type is None:
                losses.add(
                    f"{path}/media_type", "media type", "rewritten", "no media type given: sent as image/png", "info"
                )
            out = write_extra({**out, **_write_cache(part.cache, part.extra)}, part.extra, NAME)
        return out
    if isinstance(part, Refusal):
        return write_extra({"type": "refusal", "refusal": part.text}, part.extra, NAME)
    if isinstance(part, Reasoning):
        return _write_thinking(part)
    if isinstance(part, Opaque) and part.wire == NAME:
        return part.value
    losses.add(path, part_label(part), "dropped", "Chat messages have no field for it", "error")
    return None


def _write_cache(ttl: str | None, extra: Extra) -> Object:
    """Return the cache breakpoint as a field, or no field if there is no time to live."""
    if ttl is None or has_cache_control(extra):
        return {}
    mark: Object = {} if ":mode" in extra.get(_FORM, {}) else {"mode": "explicit"}
    if ttl != "default":
        mark["ttl"] = ttl
    return {"prompt_cache_breakpoint": write_extra(mark, extra, _CACHE)}


def _write_media(part: Media) -> Object | None:
    """Return the content element for media, or None if Chat does not accept it."""
    form = part.extra.get(_FORM, {})
    if part.kind == "image" and (part.url or part.data is not None):
        url = part.url or data_url(part.media_type or "image/png", part.data or "")
        if ":image_url" in form:
            return {"type": "image_url", "image_url": url}
        image: Object = {"url": url}
        if part.detail is not None:
            image["detail"] = part.detail
        return {"type": "image_url", "image_url": write_extra(image, part.extra, f"{NAME}/image_url")}
    if part.kind == "audio" and part.data is not None:
        encoding = _AUDIO_FORMATS.get(part.media_type or "audio/wav")
        audio: Object = {"data": part.data} if ":format" in form else {"data": part.data, "format": encoding}
        audio = write_extra(audio, part.extra, f"{NAME}/input_audio")
        return (
            None if audio.get("format", "wav") is None and not form else {"type": "input_audio", "input_audio": audio}
        )
    if form.get(":type") == "document_url" and (part.url or part.data is not None):
        location = part.url or data_url(part.media_type or "application/pdf", part.data or "")
        name = {} if part.name is None else {"document_name": part.name}
        return {"type": "document_url", "document_url": location, **name}
    address = part.url if ":file_data" in form else None
    if part.kind == "file" and (part.data is not None or part.file_id or address):
        file: Object = {}
        if address is not None:
            file["file_data"] = address
        elif part.data is not None:
            file["file_data"] = data_url(part.media_type, part.data) if part.media_type else part.data
        if part.file_id is not None:
            file["file_id"] = part.file_id
        if part.name is not None:
            file["filename"] = part.name
        return {"type": "file", "file": write_extra(file, part.extra, f"{NAME}/file")}
    return None


def read_number_as_text(content: JSON, losses: Losses) -> str:
    """Return a number in place of a text: Workers AI sends digits this way (cloudflare/ai#651). A boolean is no text.

    Raise ProtocolError for any other value. The change is a loss.
    """
    if type(content) is bool:
        losses.add("/parts", "content", "dropped", "a boolean is no text")
        return ""
    if type(content) is not int and type(content) is not float:
        raise type_error("a string", content, "content")
    losses.add("/parts", "content", "rewritten", "a number is read as text")
    return dumps(content)
