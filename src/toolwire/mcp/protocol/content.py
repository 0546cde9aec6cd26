"""Content blocks and the corresponding parts.

    text            Text
    image, audio    Media with data
    resource_link   Media with a url
    resource        Text or Media with data, its URI under "mcp/resource"
    anything else   Opaque

Blocks that a version does not support are converted to text for it: audio before 2025-03-26, links before 2025-06-18.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...ir.losses import Losses
from ...ir.parts import Extra, Media, MediaKind, Opaque, Text
from ...ir.pointer import JSON, Object
from ...wire.content import guess_media_type, media_placeholder
from ...wire.fields import decode_list, read_extra, read_optional_string, read_string, require_object, write_extra
from ...wire.mcp.tools import NAME
from ...wire.mcp.versions import LATEST, since

Block: TypeAlias = Text | Media | Opaque
_RESOURCE = f"{NAME}/resource"
_TEXT = frozenset({"type", "text"})
_INLINE = frozenset({"type", "data", "mimeType"})
_LINK = frozenset({"type", "uri", "name", "mimeType"})
_EMBEDDED = frozenset({"type", "resource"})
_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def decode_content(raw: Object, key: str = "content") -> tuple[Block, ...]:
    """Read the blocks under `key`. Raise ProtocolError with a pointer for a malformed block."""
    return tuple(decode_list(raw, key, _read_block))


def _read_block(raw: JSON) -> Block:
    """Convert one content block to a part. An unknown type is kept as Opaque."""
    kind = read_string(require_object(raw), "type")
    if kind == "text":
        return Text(read_string(raw, "text"), extra=read_extra(raw, _TEXT, NAME))
    if kind == "image" or kind == "audio":
        return Media(
            "image" if kind == "image" else "audio",
            read_optional_string(raw, "mimeType"),
            read_string(raw, "data"),
            extra=read_extra(raw, _INLINE, NAME),
        )
    if kind == "resource_link":
        uri, media_type = read_string(raw, "uri"), read_optional_string(raw, "mimeType")
        name = read_optional_string(raw, "name")
        return Media(_media_kind(media_type), media_type, url=uri, name=name, extra=read_extra(raw, _LINK, NAME))
    if kind == "resource":
        return _read_embedded(raw)
    return Opaque(NAME, kind, raw)


def _read_embedded(raw: Object) -> Block:
    """Convert an embedded resource to text or media. Its other fields go to `extra`, to be written back unchanged."""
    resource = require_object(raw.get("resource"), "resource")
    extra: Extra = read_extra(raw, _EMBEDDED, NAME)
    media_type = read_optional_string(resource, "mimeType")
    if type(resource.get("text")) is str:
        extra[_RESOURCE] = {key: value for key, value in resource.items() if key != "text"}
        return Text(resource["text"], extra=extra)
    if type(resource.get("blob")) is str:
        extra[_RESOURCE] = {key: value for key, value in resource.items() if key not in ("blob", "mimeType")}
        return Media(_media_kind(media_type), media_type, resource["blob"], extra=extra)
    return Opaque(NAME, "resource", raw)


def _media_kind(media_type: str | None) -> MediaKind:
    return _KINDS.get((media_type or "").partition("/")[0], "file")


def encode_content(
    parts: Iterable[Block], *, version: str = LATEST, losses: Losses | None = None, path: str = "/content"
) -> list[Object]:
    """Write the parts as blocks that `version` supports."""
    parts = tuple(parts)
    if all(type(part) is Text and not part.extra for part in parts):
        return [{"type": "text", "text": part.text} for part in parts]  # type: ignore[union-attr]
    sink = Losses() if losses is None else losses
    return [encode_block(part, version, sink, f"{path}/{index}") for index, part in enumerate(parts)]


def encode_block(part: Block, version: str, losses: Losses, path: str) -> Object:
    """Write one part as a block. A part of another wire becomes a text placeholder, reported as a loss."""
    if isinstance(part, Text):
        if part.extra and _RESOURCE in part.extra:
            return _encode_embedded({**part.extra[_RESOURCE], "text": part.text}, part.extra)
        return write_extra({"type": "text", "text": part.text}, part.extra, NAME)
    if isinstance(part, Opaque):
        if part.wire == NAME:
            return part.value
        losses.add(path, part.type, "dropped", f"only {part.wire} supports it", "error")
        return {"type": "text", "text": f"[{part.type} left out]"}
    return _encode_media(part, version, losses, path)


def _encode_media(part: Media, version: str, losses: Losses, path: str) -> Object:
    """Write media as an image, audio, embedded resource or link. Media without data or URL becomes a placeholder."""
    if part.data is not None:
        media_type = (
            part.media_type or (guess_media_type(part.name) if part.name else None) or "application/octet-stream"
        )
        if _RESOURCE in part.extra:
            kept = {"mimeType": part.media_type} if part.media_type is not None else {}
            return _encode_embedded({**part.extra[_RESOURCE], **kept, "blob": part.data}, part.extra)
        if part.kind == "image" or (part.kind == "audio" and since(version, "2025-03-26")):
            return write_extra({"type": part.kind, "data": part.data, "mimeType": media_type}, part.extra, NAME)
        address = f"attachment:///{part.name or part.kind}"
        losses.add(path, part.kind, "rewritten", "sent as an embedded resource: MCP has no block for it", "info")
        return _encode_embedded({"uri": address, "mimeType": media_type, "blob": part.data}, part.extra)
    if part.url is not None:
        return _encode_link(part, part.url, version, losses, path)
    losses.add(path, part.kind, "dropped", f"a file of {part.owner or 'another provider'} cannot be read here", "error")
    return {"type": "text", "text": media_placeholder(part).text}


def _encode_link(part: Media, url: str, version: str, losses: Losses, path: str) -> Object:
    """Write a link; as text for versions before 2025-06-18."""
    name = part.name or url.rstrip("/").rpartition("/")[2] or url
    if not since(version, "2025-06-18"):
        losses.add(path, "link", "rewritten", f"{version} has no links: sent as text", "warning")
        return {"type": "text", "text": f"{name}: {url}"}
    out: Object = {"type": "resource_link", "uri": url, "name": name}
    if part.media_type is not None:
        out["mimeType"] = part.media_type
    return write_extra(out, part.extra, NAME)


def _encode_embedded(resource: Object, extra: Extra) -> Object:
    return write_extra({"type": "resource", "resource": resource}, extra, NAME)
