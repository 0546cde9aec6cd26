"""Content of Responses items: texts, images, files, audio and refusals, and reasoning items."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import TypeGuard

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Artefact, Extra, Media, Opaque, Part, Reasoning, Refusal, Text, part_label
from ...ir.pointer import JSON, Object
from ..content import data_url, media_placeholder, split_data_url
from ..fields import decode_list, read_extra, read_optional_string, read_string, require_object, type_error, write_extra

NAME = "openai_responses"
_FORM = "openai_responses~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
CONTENT = "content/"
"""Prefix of the type of an opaque part inside a message."""

_TEXT = frozenset({"type", "text", "prompt_cache_breakpoint"})
_IMAGE = frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"})
_FILE = frozenset({"type", "file_data", "file_id", "file_url", "filename", "prompt_cache_breakpoint"})
_AUDIO = frozenset({"type", "input_audio", "prompt_cache_breakpoint"})
_AUDIO_EXTRA = "openai_responses/input_audio"
_CACHE = "openai_responses/prompt_cache_breakpoint"


def read_content(raw: Object, key: str, form: Object) -> list[Part]:
    """Read a string or a list of parts under `key`; put its spelling into `form`.

    Raise ProtocolError if it is invalid.
    """
    value = raw.get(key)
    if type(value) is str:
        if value:
            return [Text(value)]
        form[key] = ""
        return []
    if value is None:
        form[":content"] = "null" if key in raw else "absent"
        return []
    if type(value) is not list:
        raise type_error("a string or an array", value, key)
    parts = decode_list(raw, key, read_part)
    if len(parts) < 2:
        form[":content"] = "list"
    return parts


def read_part(raw: JSON) -> Part:
    """Read one content of an item; form `:type` records the type of other texts than `input_text`.

    An unknown type stays Opaque. Raise ProtocolError if it is invalid.
    """
    kind = require_object(raw).get("type")
    if kind == "input_text" or kind == "text":
        extra = read_extra(raw, _TEXT, NAME) if len(raw) > 2 else {}
        if kind == "text":
            extra[_FORM] = {**extra.get(_FORM, {}), ":type": "text"}
        return Text(read_string(raw, "text"), _read_cache(raw, extra), extra=extra)
    if kind == "output_text":
        return Text(read_string(raw, "text"), extra=read_extra(raw, ("type", "text"), NAME, {_FORM: {":type": kind}}))
    if kind == "refusal":
        return Refusal(
            read_string(raw, "refusal"), read_extra(raw, ("type", "refusal"), NAME, {_FORM: {":type": kind}})
        )
    if kind == "input_image":
        media_type, data, url = split_data_url(read_optional_string(raw, "image_url") or "")
        return _make_media("image", raw, _IMAGE, media_type, data, url or None)
    if kind == "input_file":
        media_type, data, bare = split_data_url(read_optional_string(raw, "file_data") or "")
        url = read_optional_string(raw, "file_url")
        return _make_media("file", raw, _FILE, media_type, data if data is not None else bare or None, url)
    if kind == "input_audio":
        return _read_audio(raw)
    return Opaque(NAME, f"{CONTENT}{read_string(raw, 'type')}", raw)


def is_content(part: Part) -> TypeGuard[Opaque]:
    """Return whether an opaque part is inside a message; others are items by themselves."""
    return isinstance(part, Opaque) and part.wire == NAME and part.type.startswith(CONTENT)


def _read_audio(raw: Object) -> Media | Opaque:
    """Read inline audio; an absent format is read as WAV and recorded as form."""
    audio = require_object(raw.get("input_audio"), "input_audio")
    encoding = read_optional_string(audio, "format")
    extra: Extra = {} if encoding else {_FORM: {":format": "absent"}}
    read_extra(audio, ("data", "format"), _AUDIO_EXTRA, extra)
    data = read_optional_string(audio, "data")
    return _make_media("audio", raw, _AUDIO, f"audio/{encoding or 'wav'}", data, None, extra)


def _make_media(
    kind: str,
    raw: Object,
    known: frozenset[str],
    media_type: str | None,
    data: str | None,
    url: str | None,
    extra: Extra | None = None,
) -> Media | Opaque:
    """Build media from the content `raw`; content without data, URL or file id stays Opaque.

    `known` are its fields that the other arguments and the result hold; others go into `extra`.
    """
    if not data and not url and not raw.get("file_id"):
        return Opaque(NAME, f"{CONTENT}{raw['type']}", raw)
    extra = read_extra(raw, known, NAME, extra)
    if not raw.get("detail"):
        extra[_FORM] = {**extra.get(_FORM, {}), ":detail": "absent"}
    return Media(
        kind,  # type: ignore[arg-type]
        media_type,
        data,
        url,
        read_optional_string(raw, "file_id"),
        read_optional_string(raw, "filename"),
        detail=_read_detail(raw) if kind == "image" else None,
        cache=_read_cache(raw, extra),
        owner="openai" if raw.get("file_id") else None,
        extra=extra,
    )


def _read_detail(raw: Object) -> str | None:
    """Read `detail`. `auto` becomes None, because on other wires an absent field means the same."""
    detail = read_optional_string(raw, "detail")
    return None if detail == "auto" else detail or None


def _read_cache(raw: Object, extra: Extra) -> str | None:
    """Read the time to live of a cache breakpoint; its other fields go into `extra`.

    Return None if there is no breakpoint.
    """
    mark = raw.get("prompt_cache_breakpoint")
    if mark is None:
        return None
    ttl = read_optional_string(require_object(mark, "prompt_cache_breakpoint"), "ttl")
    explicit = mark.get("mode") == "explicit"
    read_extra(mark, ("mode", "ttl") if explicit else ("ttl",), _CACHE, extra)
    if not explicit:
        extra[_FORM] = {**extra.get(_FORM, {}), ":mode": "other"}
    return ttl or "default"


def _write_cache(ttl: str, extra: Extra) -> Object:
    mark: Object = {} if ":mode" in extra.get(_FORM, {}) else {"mode": "explicit"}
    if ttl != "default":
        mark["ttl"] = ttl
    return write_extra(mark, extra, _CACHE)


def write_content(parts: list[Part], form: Object, losses: Losses, path: str) -> JSON:
    """Write a string or a list of input parts, or return None for no parts."""
    if len(parts) == 1 and type(parts[0]) is Text and ":content" not in form:
        only = parts[0]
        if only.cache is None and not only.extra:
            return only.text
    if not parts:
        return [] if form.get(":content") == "list" else None
    written = [write_part(part, losses, f"{path}/parts/{number}") for number, part in enumerate(parts)]
    return [item for item in written if item is not None]


def write_part(part: Part, losses: Losses, path: str) -> Object | None:
    """Write one content of an item; media that Responses does not accept become a placeholder text.

    Return None for any other part that it lacks. Both, and fields without an equivalent, are losses.
    """
    out: Object | None = None
    if isinstance(part, Text):
        kind = part.extra.get(_FORM, {}).get(":type", "input_text")
        out = {"type": kind, "text": part.text}
    elif isinstance(part, Refusal):
        return write_extra({"type": "refusal", "refusal": part.text}, part.extra, NAME)
    elif isinstance(part, Media):
        out = _write_media(part)
        if part.name is not None and part.kind != "file":
            losses.add(
                f"{path}/name", f"name of an {part.kind}", "dropped", "on Responses only files have a name", "info"
            )
        if part.url is not None and part.media_type is not None:
            losses.add(f"{path}/media_type", "media type", "dropped", "a URL is sent without a media type", "info")
        if part.kind == "image" and part.data is not None and part.media_type is None:
            losses.add(
                f"{path}/media_type", "media type", "rewritten", "no media type given: sent as image/png", "info"
            )
    elif isinstance(part, Opaque) and part.wire == NAME:
        return part.value
    if out is None:
        losses.add(path, part_label(part), "dropped", "Responses content has no type for it", "error")
        return {"type": "input_text", "text": media_placeholder(part).text} if isinstance(part, Media) else None
    extra: Extra = getattr(part, "extra", {})
    if (cache := getattr(part, "cache", None)) is not None:
        out["prompt_cache_breakpoint"] = _write_cache(cache, extra)
    return write_extra(out, extra, NAME)


def _write_media(part: Media) -> Object | None:
    """Return the content for media, or None if Responses does not accept it."""
    if part.kind == "audio" and part.data is not None:
        audio: Object = {"data": part.data}
        if ":format" not in part.extra.get(_FORM, {}):
            audio["format"] = (part.media_type or "audio/wav").removeprefix("audio/")
        return {"type": "input_audio", "input_audio": write_extra(audio, part.extra, _AUDIO_EXTRA)}
    if part.kind not in ("image", "file") or not (part.data is not None or part.url or part.file_id):
        return None
    field = "image_url" if part.kind == "image" else "file_data"
    out: Object = {"type": f"input_{part.kind}"}
    if part.data is not None:
        default = "image/png" if part.kind == "image" else None
        media_type = part.media_type or default
        out[field] = data_url(media_type, part.data) if media_type else part.data
    elif part.url:
        out["image_url" if part.kind == "image" else "file_url"] = part.url
    if part.file_id:
        out["file_id"] = part.file_id
    if part.name is not None and part.kind == "file":
        out["filename"] = part.name
    if part.kind == "image" and (part.detail is not None or ":detail" not in part.extra.get(_FORM, {})):
        out["detail"] = part.detail or "auto"
    return out


PROVIDER = "openai"
_REASONING = frozenset({"type", "summary", "content", "encrypted_content"})


def read_reasoning(raw: Object) -> Reasoning:
    """Read a reasoning item; entries with more than their text are kept whole as fields of this wire."""
    encrypted = read_optional_string(raw, "encrypted_content")
    contents, summary = decode_list(raw, "content", _entry_text), decode_list(raw, "summary", _entry_text)
    extra = read_extra(raw, _REASONING, NAME)
    form: Object = {} if NAME in extra else {":item": "reasoning"}  # either marks it as this wire's own
    if raw.get("summary") is None:
        form[":summary"] = "absent"  # or null, which is then in the form
    if len(contents) > 1 or not _is_plain(raw.get("content"), "reasoning_text"):
        extra.setdefault(NAME, {})["content"] = raw["content"]
    if not _is_plain(raw.get("summary"), "summary_text"):
        extra.setdefault(NAME, {})["summary"] = raw["summary"]
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    artefacts = (Artefact(PROVIDER, "encrypted", encrypted),) if encrypted else ()
    return Reasoning("".join(contents), tuple(summary), artefacts, extra)


def _entry_text(entry: JSON) -> str:
    return read_optional_string(require_object(entry), "text") or ""


def _is_plain(entries: list[Object] | None, kind: str) -> bool:
    """Return whether the entries hold nothing but their texts."""
    return not entries or all(len(entry) == 2 and entry.get("type") == kind and entry.get("text") for entry in entries)


def is_own(part: Reasoning) -> bool:
    """Return whether the reasoning came from this wire, so that it can be sent back."""
    if NAME in part.extra or _FORM in part.extra:
        return True
    return any(artefact.provider == PROVIDER for artefact in part.artefacts)


def write_reasoning(part: Reasoning) -> Object:
    """Write a reasoning item, without the encrypted content of other providers."""
    out: Object = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in part.summary]}
    if not part.summary and ":summary" in part.extra.get(_FORM, {}):
        del out["summary"]
    if part.text:
        out["content"] = [{"type": "reasoning_text", "text": part.text}]
    for artefact in part.artefacts:
        if artefact.provider == PROVIDER:
            out["encrypted_content"] = artefact.data
    return write_extra(out, part.extra, NAME)


SUMMARY_MARK = "TOOLWIRE-SUMMARY~"
"""Begins the content of a compaction item that the gateway has made; content of OpenAI is base64, which has no tilde."""


def write_summary(summary: str, item_id: str) -> Object:
    """Return a compaction item with a summary. Its client knows the conversation, so it is not encrypted."""
    content = SUMMARY_MARK + urlsafe_b64encode(summary.encode()).decode()
    return {"id": item_id, "type": "compaction", "encrypted_content": content}


def read_summary(raw: Object) -> Text | None:
    """Return the summary of a compaction item as text, or None if another server has encrypted it."""
    content = raw.get("encrypted_content")
    if type(content) is not str or not content.startswith(SUMMARY_MARK):
        return None
    try:
        summary = b64decode(content.removeprefix(SUMMARY_MARK), b"-_", validate=True).decode()
    except ValueError:
        raise ProtocolError("the summary was changed", pointer="/encrypted_content", hint="send it unchanged") from None
    return Text(f"[summary of the conversation so far]\n{summary}")
