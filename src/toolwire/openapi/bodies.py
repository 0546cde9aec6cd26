"""Encode request bodies: JSON, forms, multipart, text and bytes.

Bytes are base64 text in arguments, because JSON has no bytes.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from ..ir.errors import EncodeError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps, to_bytes
from ..ir.value import Value
from .styles import plain_text, query_pairs

__all__ = ["ApiBody", "EncodedBody", "FieldEncoding", "body_kind", "encode_body"]


class FieldEncoding(Value, frozen=True):
    """The encoding of one field of a form. `style` is None if the document does not choose one."""

    content_type: str | None = None
    style: str | None = None
    explode: bool = True
    is_binary: bool = False


class ApiBody(Value, frozen=True):
    """The media type of a body, and the encodings of the fields of a form."""

    media_type: str
    fields: dict[str, FieldEncoding] = {}


class EncodedBody(NamedTuple):
    content_type: str
    data: bytes


def body_kind(media_type: str) -> str:
    """Return the way to encode a media type: json, form, multipart, text or bytes."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")) or kind in ("*/*", "application/*"):
        return "json"
    if kind == "application/x-www-form-urlencoded":
        return "form"
    if kind == "multipart/form-data":
        return "multipart"
    is_text = kind.startswith("text/") or kind.endswith(
        ("/xml", "+xml", "/yaml", "+yaml", "graphql", "ndjson", "jsonl")
    )
    return "text" if is_text else "bytes"


def encode_body(body: ApiBody, value: JSON) -> EncodedBody:
    """Encode a body; EncodeError if the value does not fit its media type."""
    kind = body_kind(body.media_type)
    if kind == "json":
        return EncodedBody(body.media_type, to_bytes(value))
    if kind in ("form", "multipart"):
        if type(value) is not dict:
            raise EncodeError("the body of a form must be an object")
        return _encode_multipart(body, value) if kind == "multipart" else _encode_form(body, value)
    if kind == "text":
        return EncodedBody(f"{body.media_type}; charset=utf-8", plain_text(value).encode(errors="replace"))
    return EncodedBody(body.media_type, _decode_base64(value))


def _encode_form(body: ApiBody, value: Object) -> EncodedBody:
    pairs = [pair for name, inner in value.items() if inner is not None for pair in _form_pairs(body, name, inner)]
    text = "&".join(f"{key}={encoded}" for key, encoded in pairs)
    return EncodedBody(body.media_type, text.encode("ascii"))


def _form_pairs(body: ApiBody, name: str, value: JSON) -> Iterator[tuple[str, str]]:
    """Yield the pairs of one field. Without a declared style, nested values are JSON text, as OpenAPI specifies."""
    field = body.fields.get(name, FieldEncoding())
    if field.style is not None:
        yield from query_pairs(name, value, field.style, explode=field.explode)
        return
    for element in value if type(value) is list else [value]:
        text = dumps(element) if type(element) in (dict, list) else plain_text(element)
        yield from query_pairs(name, text, "form", explode=True)


def _encode_multipart(body: ApiBody, value: Object) -> EncodedBody:
    """Encode multipart/form-data. The boundary is a hash of the content, so that the content cannot contain it."""
    parts = [part for name, inner in value.items() if inner is not None for part in _multipart_parts(body, name, inner)]
    digest = sha256()
    for head, data in parts:
        digest.update(b"%d:%d:" % (len(head), len(data)) + head + data)
    boundary = f"toolwire-{digest.hexdigest()[:40]}"
    mark = boundary.encode()
    data = b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (mark, head, data) for head, data in parts)
    return EncodedBody(f"multipart/form-data; boundary={boundary}", data + b"--%s--\r\n" % mark)


def _multipart_parts(body: ApiBody, name: str, value: JSON) -> Iterator[tuple[bytes, bytes]]:
    """Yield the head and the content of each part of a field; a list becomes one part per element."""
    field = body.fields.get(name, FieldEncoding())
    for element in value if type(value) is list else [value]:
        if element is None:
            continue
        if field.is_binary:
            data, default, filename = _decode_base64(element), "application/octet-stream", name
        elif type(element) in (dict, list):
            data, default, filename = to_bytes(element), "application/json", None
        else:
            data, default, filename = plain_text(element).encode(errors="replace"), None, None
        yield _part_head(name, filename, field.content_type or default), data


def _part_head(name: str, filename: str | None, content_type: str | None) -> bytes:
    lines = [f'content-disposition: form-data; name="{_escape_name(name)}"']
    if filename is not None:
        lines[0] += f'; filename="{_escape_name(filename)}"'
    if content_type is not None:
        lines.append(f"content-type: {content_type}")
    return "\r\n".join(lines).encode(errors="replace")


_NAME_ESCAPES: Mapping[int, str] = {ord('"'): "%22", ord("\r"): "%0D", ord("\n"): "%0A"}


def _escape_name(name: str) -> str:
    """Escape a field name as browsers do (WHATWG HTML, multipart/form-data encoding algorithm)."""
    return name.translate(_NAME_ESCAPES)


def _decode_base64(value: JSON) -> bytes:
    if type(value) is not str:
        raise EncodeError("the content of a file must be base64 text")
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise EncodeError("the content of a file must be base64 text") from None
