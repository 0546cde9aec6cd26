"""Content of Cohere messages: a string, or a list of elements.

    {"type": "text", "text": "…"}                                       in messages of every role
    {"type": "image_url", "image_url": {"url": "…", "detail": "low"}}   of the user
    {"type": "thinking", "thinking": "…"}                               of the assistant
    {"type": "document", "document": {"data": {…}, "id": "…"}}          in results of tools; the model can cite it

A document is a text for other wires: its data, as JSON if it is an object. Source: cohere 7.3.1, types/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.losses import Losses
from ...ir.parts import Extra, Media, Opaque, Part, Reasoning, Refusal, Text, part_label
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ..content import data_url, media_placeholder, split_data_url
from ..fields import decode_list, read_extra, read_optional_string, read_string, require_object, type_error, write_extra

NAME = "cohere"
FORM = "cohere~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
IMAGE = "cohere/image_url"
DOCUMENT = "cohere/document"


def with_form(extra: Extra, form: Object) -> Extra:
    """Return `extra` with the spelling in `form`."""
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return extra


def read_content(raw: Object, form: Object, read: Callable[[JSON], Part]) -> list[Part]:
    """Read the content of a message; a list of one element and absent content are recorded in `form`.

    Raise ProtocolError if it is neither a string nor a list.
    """
    value = raw.get("content")
    if type(value) is str:
        return [Text(value)] if value else []
    if value is None:
        if "content" not in raw:
            form[":content"] = "absent"
        return []
    if type(value) is not list:
        raise type_error("a string or an array", value, "content")
    parts = decode_list(raw, "content", read)
    if len(parts) == 1:
        form[":content"] = "list"
    return parts


def read_part(raw: JSON) -> Part:
    """Read an element of a user or system message; an unknown kind stays Opaque."""
    kind = read_string(require_object(raw), "type")
    if kind == "text":
        return Text(read_string(raw, "text"), extra=read_extra(raw, ("type", "text"), NAME))
    if kind == "image_url":
        return _read_image(raw)
    return Opaque(NAME, kind, raw)


def read_spoken_part(raw: JSON) -> Part:
    """Read an element of an assistant message, which may be thinking."""
    if require_object(raw).get("type") != "thinking":
        return read_part(raw)
    return Reasoning(read_string(raw, "thinking"), extra=thinking_extra(raw))


def thinking_extra(raw: Object) -> Extra:
    """Return the extra of thinking. Its form marks reasoning of this wire, which is sent back with the history."""
    return with_form(read_extra(raw, ("type", "thinking"), NAME), {":type": "thinking"})


def read_result_part(raw: JSON) -> Text | Media | Opaque:
    """Read an element of a tool result, which may be a document."""
    if require_object(raw).get("type") == "document":
        return _read_document(raw)
    part = read_part(raw)
    assert isinstance(part, (Text, Media, Opaque))
    return part


def _read_image(raw: Object) -> Media | Opaque:
    """Read an image, inline or by URL; one without a URL stays Opaque."""
    image = raw.get("image_url")
    form: Object = {}
    if type(image) is str:  # as some clients of Chat send it
        form[":image_url"] = "string"
        image = {"url": image}
    if type(image) is not dict or not image.get("url") or type(image["url"]) is not str:
        return Opaque(NAME, "image_url", raw)
    media_type, data, url = split_data_url(image["url"])
    extra = read_extra(image, ("url", "detail"), IMAGE, read_extra(raw, ("type", "image_url"), NAME))
    detail = read_optional_string(image, "detail")
    return Media("image", media_type, data, url, detail=detail, extra=with_form(extra, form))


def _read_document(raw: Object) -> Text | Opaque:
    document: JSON = raw.get("document")
    if type(document) is not dict or type(data := document.get("data")) not in (dict, str):
        return Opaque(NAME, "document", raw)
    extra = read_extra(document, ("data",), DOCUMENT, read_extra(raw, ("type", "document"), NAME))
    return Text(_document_text(data), extra=with_form(extra, {":document": data}))


def _document_text(data: JSON) -> str:
    return data if type(data) is str else dumps(data)


def write_content(
    parts: Sequence[tuple[str, Part]], form: Object, losses: Losses, *, is_result: bool = False
) -> Object:
    """Return the field `content`: a string for one plain text, else a list.

    Without parts it is the empty string, unless the message came with other empty content, or without any.
    """
    if not parts:
        return {} if "content" in form or form.get(":content") == "absent" else {"content": ""}
    written = write_parts(parts, losses, is_result=is_result)
    if len(written) == 1 and form.get(":content") != "list" and is_plain_text(written[0]):
        return {"content": written[0]["text"]}
    return {"content": written or ""}


def is_plain_text(element: Object) -> bool:
    return element.keys() == {"type", "text"} and element["type"] == "text"


def write_parts(parts: Sequence[tuple[str, Part]], losses: Losses, *, is_result: bool = False) -> list[Object]:
    """Write parts as elements of a content list; a part that Cohere lacks is left out, with a loss."""
    written = [write_part(part, path, losses, is_result=is_result) for path, part in parts]
    return [element for element in written if element is not None]


def write_part(part: Part, path: str, losses: Losses, *, is_result: bool = False) -> Object | None:
    """Write one part as an element, or return None and report the loss."""
    if isinstance(part, (Text, Refusal)):
        return _write_text(part, path, losses)
    if isinstance(part, Media):
        return _write_media(part, path, losses, is_result=is_result)
    if isinstance(part, Reasoning):
        text = reasoning_text(part, path, losses)
        return write_extra({"type": "thinking", "thinking": text}, part.extra, NAME) if text else None
    if isinstance(part, Opaque) and part.wire == NAME:
        return part.value
    losses.add(path, part_label(part), "dropped", "Cohere messages have no element for it", "error")
    return None


def report_text(part: Text | Refusal, path: str, losses: Losses) -> None:
    """Report the losses of a text on this wire."""
    if isinstance(part, Refusal):
        losses.add(path, "refusal", "rewritten", "Cohere has no refusals; sent as text", "info")
        return
    if part.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Cohere has no field for it")
    if part.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Cohere has no cache marks", "info")


def _write_text(part: Text | Refusal, path: str, losses: Losses) -> Object:
    report_text(part, path, losses)
    data = part.extra.get(FORM, {}).get(":document")
    if data is not None and _document_text(data) == part.text:
        document = write_extra({"data": data}, part.extra, DOCUMENT)
        return write_extra({"type": "document", "document": document}, part.extra, NAME)
    return write_extra({"type": "text", "text": part.text}, part.extra, NAME)


def reasoning_text(part: Reasoning, path: str, losses: Losses) -> str:
    """Return the text of a reasoning part; artefacts, a summary and an empty text are reported as losses."""
    if part.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Cohere has no field for it")
    if part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Cohere thinking is plain text", "info")
    text = part.joined_text
    if not text and FORM not in part.extra:
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
    return text


def _write_media(part: Media, path: str, losses: Losses, *, is_result: bool) -> Object:
    """Write an image; any other medium, and an image in a tool result, becomes a placeholder, with a loss."""
    url = part.url or (data_url(part.media_type or "image/png", part.data) if part.data is not None else None)
    if part.kind != "image" or url is None or is_result:
        where = "tool results" if is_result else "messages"
        losses.add(path, part.kind, "dropped", f"Cohere's {where} cannot hold this {part.kind}", "error")
        return {"type": "text", "text": media_placeholder(part).text}
    for concept in ("name", "cache"):
        if getattr(part, concept) is not None:
            losses.add(f"{path}/{concept}", concept, "dropped", "a Cohere image is only a URL", "info")
    if part.url is not None and part.media_type is not None:
        losses.add(f"{path}/media_type", "media type", "dropped", "a URL is sent without a media type", "info")
    if part.url is None and part.media_type is None:
        detail = "no media type given: sent as image/png"
        losses.add(f"{path}/media_type", "media type", "rewritten", detail, "info")
    if ":image_url" in part.extra.get(FORM, {}):
        return write_extra({"type": "image_url", "image_url": url}, part.extra, NAME)
    image: Object = {"url": url} if part.detail is None else {"url": url, "detail": part.detail}
    image = write_extra(image, part.extra, IMAGE)
    return write_extra({"type": "image_url", "image_url": image}, part.extra, NAME)
