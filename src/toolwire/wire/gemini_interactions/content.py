"""Contents of Interactions steps: texts, images, audio, documents and videos.

    {"type": "text", "text", "annotations"?}    {"type": "image", "data" | "uri", "mime_type", "resolution"?}

The API adds kinds of contents without a new version, and google-genai parses them as open unions (google-genai 3.3.0,
_gaos/types/interactions/content.py). A content of an unknown kind stays Opaque.
"""

from __future__ import annotations

from typing import TypeGuard

from ...ir.losses import Losses
from ...ir.parts import Extra, Media, MediaKind, Opaque, Part, Text, part_label
from ...ir.pointer import JSON, Object
from ..content import guess_media_type
from ..fields import is_empty, read_extra, read_optional_string, read_string, require_object, write_extra

NAME = "gemini_interactions"
PROVIDER = "google"
FORM = "gemini_interactions~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
CONTENT = "content/"
"""Prefix of the type of an opaque part inside a step."""
FOREIGN = "it belongs to another provider"
LABEL = "Interactions"
"""The name of the wire in details of losses."""

_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video", "document": "file"}
_TYPES = {kind: name for name, kind in _KINDS.items()}
_CONTENT_TYPES = frozenset({"text", *_KINDS})
_TEXT = frozenset({"type", "text"})
_MEDIA = frozenset({"type", "data", "uri", "mime_type", "resolution"})
_DEFAULT_TYPES: dict[MediaKind, str] = {
    "image": "image/jpeg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "file": "application/pdf",
}
_DETAILS = ("low", "high")  # resolutions that are a `detail` of other wires; the others are only Google's
_OWN_FILES = ("https://generativelanguage.googleapis.com/", "gs://")


def read_content(raw: JSON) -> Text | Media | Opaque:
    """Read one content; one of an unknown kind, or media without data, stays Opaque. Raise ProtocolError if invalid."""
    kind = read_string(require_object(raw), "type")
    if kind == "text":
        text = read_string(raw, "text")
        extra = read_extra(raw, _TEXT, NAME) if len(raw) > 2 else {}
        return Text(text, extra=extra if text else {**extra, FORM: {**extra.get(FORM, {}), ":empty": True}})
    if kind in _KINDS:
        return read_media(raw, _KINDS[kind])
    return Opaque(NAME, f"{CONTENT}{kind}", raw)


def read_media(raw: Object, kind: MediaKind) -> Media | Opaque:
    """Read media; a URI on Google's own storage is a file id that Google owns."""
    data, uri = read_optional_string(raw, "data"), read_optional_string(raw, "uri")
    if not data and not uri:
        return Opaque(NAME, f"{CONTENT}{raw['type']}", raw)
    resolution = read_optional_string(raw, "resolution")
    media_type = read_optional_string(raw, "mime_type")
    extra = read_extra(raw, _MEDIA, NAME)
    if resolution and resolution not in _DETAILS:
        extra.setdefault(NAME, {})["resolution"] = resolution
    form: Object = {}
    if not media_type:
        form[":mime_type"] = "absent"
    if data and uri:
        form["uri"] = uri
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    is_own = not data and uri is not None and uri.startswith(_OWN_FILES)
    return Media(
        kind,
        media_type or None,
        data or None,
        None if is_own or data else uri,
        uri if is_own else None,
        detail=resolution if resolution in _DETAILS else None,
        owner=PROVIDER if is_own else None,
        extra=extra,
    )


def is_content_document(raw: JSON) -> bool:
    """Return whether an object of a list is a content of a known kind; any other one is a step."""
    kind = raw.get("type") if type(raw) is dict else None
    return type(kind) is str and kind in _CONTENT_TYPES


def is_content(part: Part) -> TypeGuard[Opaque]:
    """Return whether an opaque part is inside a step; others are steps by themselves."""
    return isinstance(part, Opaque) and part.wire == NAME and part.type.startswith(CONTENT)


def is_empty_text(part: Part) -> bool:
    """Return whether a part is a text without characters that was not read from this wire."""
    return isinstance(part, Text) and not part.text and not has_own_fields(part.extra)


def has_own_fields(extra: Extra) -> bool:
    return NAME in extra or FORM in extra


def write_content(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a text or media as content; return None and report the loss if there is no such content."""
    if isinstance(part, Text):
        return _write_text(part, losses, path)
    if isinstance(part, Media):
        return _write_media(part, losses, path)
    if is_content(part):
        return part.value
    losses.add(path, part_label(part), "dropped", f"{LABEL} has no such content", "error")
    return None


def _write_text(part: Text, losses: Losses, path: str) -> Object:
    if part.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", f"{LABEL} has no cache marks", "info")
    return write_extra({"type": "text", "text": part.text}, part.extra, NAME)


def _write_media(part: Media, losses: Losses, path: str) -> Object | None:
    """Write media inline or by its URI. A missing media type is guessed, because the API requires one."""
    out: Object = {"type": _TYPES[part.kind]}
    uri = part.url or part.file_id
    if part.data is not None:
        out["data"] = part.data
    elif uri is not None:
        out["uri"] = uri
    else:
        losses.add(path, part.kind, "dropped", "it has no content", "error")
        return None
    if part.media_type is not None:
        out["mime_type"] = part.media_type
    elif ":mime_type" not in part.extra.get(FORM, {}):
        out["mime_type"] = guess_media_type(part.name or uri or "") or _DEFAULT_TYPES[part.kind]
        detail = f"{LABEL} requires it; guessed {out['mime_type']} from the name"
        losses.add(f"{path}/media_type", "media type", "rewritten", detail, "info")
    if part.detail in _DETAILS and part.kind in ("image", "video"):
        out["resolution"] = part.detail
    elif part.detail is not None:
        losses.add(f"{path}/detail", "detail", "dropped", f"{LABEL} has no such resolution", "info")
    if part.name is not None:
        losses.add(f"{path}/name", "name", "dropped", f"{LABEL} media have no name", "info")
    if part.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", f"{LABEL} has no cache marks", "info")
    return write_extra(out, part.extra, NAME)


def read_plain_texts(value: JSON) -> tuple[str, ...] | None:
    """Return the texts of a summary; None if it has other contents than plain texts, which only this wire has."""
    if is_empty(value):
        return ()
    if type(value) is not list or not all(_is_plain_text(entry) for entry in value):
        return None
    return tuple([entry["text"] for entry in value])


def _is_plain_text(value: JSON) -> bool:
    is_text = type(value) is dict and len(value) == 2 and value.get("type") == "text"
    return is_text and type(value.get("text")) is str


def own_fields(extra: Extra) -> Extra:
    """Return an extra without form."""
    return {name: fields for name, fields in extra.items() if not name.endswith("~")}
