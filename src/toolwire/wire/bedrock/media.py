"""Images, documents, videos and sounds of Converse: inline bytes, objects in S3, and plain text for documents.

{"image": {"format": "png", "source": {"bytes": base64}}}
{"document": {"format": "pdf", "name": "…", "source": {"bytes" | "s3Location": {"uri", "bucketOwner"} | "text" | "content"}}}
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode

from ...ir.losses import Losses
from ...ir.parts import Media, MediaKind, Opaque
from ...ir.pointer import JSON, Object
from ..content import media_placeholder
from ..fields import read_extra, read_optional_string, require_object, write_extra

NAME = PROVIDER = "bedrock"
_FORM = "bedrock~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_MEDIA, _SOURCE, _S3 = f"{NAME}/media", f"{NAME}/source", f"{NAME}/s3Location"
_OFFICE = "application/vnd.openxmlformats-officedocument"
# The formats of botocore 1.44.5 (ImageFormat, DocumentFormat, VideoFormat, AudioFormat). Of several formats with one type,
# the first is written.
_TYPES: dict[str, dict[str, str]] = {
    "image": {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"},
    "document": {
        "pdf": "application/pdf",
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": f"{_OFFICE}.wordprocessingml.document",
        "xls": "application/vnd.ms-excel",
        "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        "html": "text/html",
        "txt": "text/plain",
        "md": "text/markdown",
    },
    "video": {
        "mp4": "video/mp4",
        "mov": "video/quicktime",
        "mkv": "video/x-matroska",
        "webm": "video/webm",
        "flv": "video/x-flv",
        "mpeg": "video/mpeg",
        "mpg": "video/mpeg",
        "wmv": "video/x-ms-wmv",
        "three_gp": "video/3gpp",
    },
    "audio": {
        "mp3": "audio/mpeg",
        "wav": "audio/wav",
        "ogg": "audio/ogg",
        "flac": "audio/flac",
        "aac": "audio/aac",
        "opus": "audio/opus",
        "mp4": "audio/mp4",
        "m4a": "audio/x-m4a",
        "mkv": "audio/x-matroska",
        "mka": "audio/x-matroska",
        "webm": "audio/webm",
        "pcm": "audio/pcm",
        "x-aac": "audio/x-aac",
        "mpeg": "audio/mpeg",
        "mpga": "audio/mpeg",
    },
}
_ALIASES = {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "audio/mp3": "audio/mpeg"}
_FORMATS = {
    member: {media_type: name for name, media_type in reversed(types.items())} for member, types in _TYPES.items()
}
_KINDS: dict[str, MediaKind] = {"image": "image", "document": "file", "video": "video", "audio": "audio"}
_MEMBERS: dict[MediaKind, str] = {kind: member for member, kind in _KINDS.items()}
_FIELDS = frozenset({"format", "name", "source"})
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9\s()\[\]-]")  # DocumentBlock.name in botocore 1.44.5
MEDIA_MEMBERS = frozenset(_TYPES)


def read_media(raw: Object, member: str) -> Media | Opaque:
    """Read a media block; one with an unknown source or format stays Opaque. Raise ProtocolError if it is invalid."""
    fields = require_object(raw[member], member)
    source = require_object(fields.get("source"), member, "source")
    kind = next((kind for kind in ("bytes", "s3Location", "text", "content") if source.get(kind)), None)
    extra = read_extra(raw, (member,), NAME)
    read_extra(fields, _FIELDS, _MEDIA, extra)
    form: Object = {}
    data = file_id = None
    if kind == "bytes":
        data = read_optional_string(source, "bytes")
    elif kind == "s3Location":
        place = require_object(source["s3Location"], member, "source", "s3Location")
        file_id = read_optional_string(place, "uri")
        read_extra(place, ("uri",), _S3, extra)
    elif kind is not None and (text := _read_text(source[kind])) is not None:
        data, form[":text"] = b64encode(text.encode("utf-8", "surrogatepass")).decode(), source[kind]
    name, spelled = read_optional_string(fields, "name"), read_optional_string(fields, "format")
    media_type = _TYPES[member].get(spelled or "")
    if media_type is None and spelled is None and ":text" in form:
        media_type = "text/plain"
    if (data is None and file_id is None) or media_type is None:
        return Opaque(NAME, member, raw)
    read_extra(source, (str(kind),), _SOURCE, extra)
    if spelled is None or _FORMATS[member].get(media_type or "") != spelled:
        form[":format"] = spelled
    if name is not None and name != _clean_name(name):
        form[":name"] = name
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    owner = None if file_id is None else PROVIDER
    return Media(_KINDS[member], media_type, data, None, file_id, name, owner=owner, extra=extra)


def _read_text(value: JSON) -> str | None:
    """Return the text of a document: a string, or a list of blocks. None if it is neither."""
    if type(value) is str:
        return value
    texts = [block.get("text") if type(block) is dict else None for block in value] if type(value) is list else [None]
    return None if None in texts or not all(type(text) is str for text in texts) else "\n\n".join(texts)  # type: ignore[arg-type]


def write_media(part: Media, losses: Losses, path: str) -> Object:
    """Write a media block with its losses, or a placeholder for media that Converse does not accept."""
    member = _MEMBERS[part.kind]
    source, name = _write_source(part, member), _format_of(part, member)
    if source is None or (name is None and "text" not in source and "content" not in source):
        reason = "Bedrock reads inline bytes and objects in S3, not URLs" if part.url else _unknown_type(part)
        losses.add(path, part.kind, "dropped", reason, "error")
        return {"text": media_placeholder(part).text}
    if name is not None and _TYPES[member][name] != part.media_type:
        losses.add(f"{path}/media_type", "media type", "rewritten", f"{part.media_type} is sent as {name}", "info")
    fields: Object = {} if name is None else {"format": name}
    if member == "document":
        fields["name"] = _write_name(part, losses, path)
    elif part.name is not None:
        losses.add(f"{path}/name", f"name of {part.kind}", "dropped", "Bedrock has names for documents only", "info")
    if part.detail is not None:
        losses.add(f"{path}/detail", "image detail", "dropped", "Bedrock has no detail setting", "info")
    fields["source"] = write_extra(source, part.extra, _SOURCE)
    return write_extra({member: write_extra(fields, part.extra, _MEDIA)}, part.extra, NAME)


def _unknown_type(part: Media) -> str:
    return f"Bedrock does not accept {part.media_type or 'media without a type'}"


def _type_of(part: Media) -> str:
    media_type = (part.media_type or "").partition(";")[0].strip().lower()
    return _ALIASES.get(media_type, media_type)


def _format_of(part: Media, member: str) -> str | None:
    """Return the format of a media type, or None; any other text is a document of the format `txt`."""
    form = part.extra.get(_FORM, {})
    if ":format" in form and ((spelled := form[":format"]) is None or _TYPES[member].get(spelled) == part.media_type):
        return spelled  # type: ignore[no-any-return]
    media_type = _type_of(part)
    found = _FORMATS[member].get(media_type)
    is_text = member == "document" and (media_type.startswith("text/") or media_type == "application/json")
    return "txt" if found is None and is_text else found


def _write_source(part: Media, member: str) -> Object | None:
    """Return the source, or None for media at a URL outside S3, or stored by another provider."""
    place = part.file_id if part.owner in (None, PROVIDER) else None
    place = part.url if place is None and (part.url or "").startswith("s3://") else place
    if place is not None:
        return {"s3Location": write_extra({"uri": place}, part.extra, _S3)}
    if part.data is None:
        return None
    original = part.extra.get(_FORM, {}).get(":text")
    if member == "document" and original is not None and _decode_text(part.data) == _read_text(original):
        return {"text" if type(original) is str else "content": original}
    return {"bytes": part.data}


def _decode_text(data: str) -> str | None:
    try:
        return b64decode(data, validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None


def _write_name(part: Media, losses: Losses, path: str) -> str:
    """Return the name of a document, which is required; a part without one is named after its position."""
    if part.name is None:
        name = "document" + re.sub(r"\D+", "-", path)
        losses.add(f"{path}/name", "document name", "rewritten", f"Bedrock requires one; sent as {name!r}", "info")
        return name
    if part.extra.get(_FORM, {}).get(":name") == part.name:
        return part.name
    name = _clean_name(part.name)
    if name != part.name:
        detail = f"names have letters, digits, spaces, hyphens and brackets only; sent as {name!r}"
        losses.add(f"{path}/name", "document name", "rewritten", detail, "info")
    return name


def _clean_name(name: str) -> str:
    cleaned = " ".join(_NOT_IN_NAMES.sub("-", name).split())[:200]  # DocumentBlock.name has at most 200 characters
    return cleaned or "document"
