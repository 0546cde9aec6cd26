"""Encode arguments for a request: parameters in OpenAPI's styles, and bodies as JSON, forms, text or bytes.

Each value is percent-encoded on its own, so that only the delimiters of its style are left as delimiters: a comma, a
slash or an ampersand in an argument cannot become another argument or path segment. Bytes are base64 text in arguments,
because JSON has no bytes.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote

from ..ir.errors import EncodeError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps, to_bytes
from ..ir.value import Value

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Reserved characters that do not end a value in a query. The others (`&=+#[]`) are encoded with `allowReserved`, too.
_HARMLESS_RESERVED = frozenset(b":/?@!$'()*,;")
has_dot_segment = re.compile(r"(?:^|[/\\])\.\.?(?:$|[/\\;])").search  # servers in Java read `..;x` as `..`
_is_header_text = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?").fullmatch
_MAX_NESTING = 20  # levels; `qs` reads 5 by default, and the URL has a limit of its own


def percent_encode(text: str, *, allow_reserved: bool = False) -> str:
    """Percent-encode everything except unreserved characters (RFC 3986). Raise EncodeError for a lone surrogate."""
    safe = _UNRESERVED | _HARMLESS_RESERVED if allow_reserved else _UNRESERVED
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise EncodeError("the text contains a lone surrogate, which a URL cannot contain") from None
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in data)


def plain_text(value: JSON) -> str:
    """Return the text of a value: booleans and null as in JSON, integral numbers without a fraction."""
    if type(value) is str:
        return value
    if type(value) is float and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return dumps(value)


def path_text(name: str, value: JSON, style: str, *, explode: bool) -> str:
    """Return the encoded text of a path parameter.

    EncodeError for empty values and dot segments, which would address another resource.
    """
    _check_path_value(value)
    elements = [percent_encode(text) for text in _elements(value)]
    pairs = [(percent_encode(key), percent_encode(plain_text(inner))) for key, inner in _members(value)]
    if style == "matrix":
        return _matrix_text(percent_encode(name), value, elements, pairs, explode=explode)
    separator = "." if style == "label" and explode else ","
    if type(value) is dict:
        elements = [f"{key}={text}" for key, text in pairs] if explode else [text for pair in pairs for text in pair]
    return ("." if style == "label" else "") + separator.join(elements)


def _matrix_text(name: str, value: JSON, elements: list[str], pairs: list[tuple[str, str]], *, explode: bool) -> str:
    if type(value) is dict and explode:
        return "".join(f";{key}={text}" for key, text in pairs)
    if type(value) is list and explode:
        return "".join(f";{name}={text}" for text in elements)
    return f";{name}=" + ",".join([text for pair in pairs for text in pair] if type(value) is dict else elements)


def _check_path_value(value: JSON) -> None:
    """Raise EncodeError for empty values and dot segments. Some servers decode the path, even twice, to resolve it."""
    texts = [*_elements(value), *(key for key, _ in _members(value)), *(plain_text(one) for _, one in _members(value))]
    if not texts or not all(text.strip("/\\") for text in texts):
        raise EncodeError("a path parameter must not be empty")
    for text in texts:
        # A server that decodes twice reads this; plain dots and slashes are the same after one decoding and after two.
        if has_dot_segment(unquote(text)):
            raise EncodeError("a path parameter must not contain the path segments '.' or '..'")


def query_pairs(
    name: str, value: JSON, style: str, *, explode: bool, allow_reserved: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the encoded names and values of a query parameter or a form field; none for an empty list.

    With `explode`, each element or member becomes a pair of its own. EncodeError for a value nested too deeply.
    """

    def encode(text: str) -> str:
        return percent_encode(text, allow_reserved=allow_reserved)

    key = percent_encode(name)
    if style == "deepObject" and type(value) in (dict, list):
        yield from _deep_pairs(name, value, 0)
    elif type(value) is dict:
        members = [(inner_name, plain_text(inner)) for inner_name, inner in _members(value)]
        if explode:
            yield from ((percent_encode(inner_name), encode(text)) for inner_name, text in members)
        else:
            yield key, _delimiter(style).join(encode(text) for pair in members for text in pair)
    elif type(value) is list:
        elements = [encode(text) for text in _elements(value)]
        if explode:
            yield from ((key, text) for text in elements)
        elif elements:
            yield key, _delimiter(style).join(elements)
    else:
        yield key, encode(plain_text(value))


def _delimiter(style: str) -> str:
    return {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(style, ",")


def _deep_pairs(name: str, value: JSON, depth: int) -> Iterator[tuple[str, str]]:
    """Yield `name[key]=value` for every member; EncodeError if the value is nested too deeply.

    OpenAPI leaves nested values undefined. They are written as the common parsers of such queries (qs, PHP, Rack) read
    them: `name[key][inner]=value`, and `name[0]=value` for elements of arrays.
    """
    if depth > _MAX_NESTING:
        raise EncodeError(f"the value is nested more than {_MAX_NESTING} levels deep")
    if type(value) is dict:
        for key, inner in _members(value):
            yield from _deep_pairs(f"{name}[{key}]", inner, depth + 1)
    elif type(value) is list:
        for index, inner in enumerate(value):
            yield from _deep_pairs(f"{name}[{index}]", inner, depth + 1)
    elif value is not None:
        yield percent_encode(name), percent_encode(plain_text(value))


def header_text(value: JSON, *, explode: bool) -> str:
    """Return the value of a header; EncodeError if it is ambiguous or not printable: headers are not encoded."""
    if type(value) is dict:
        pairs = [(key, plain_text(inner)) for key, inner in _members(value)]
        elements = [f"{key}={text}" for key, text in pairs] if explode else [text for pair in pairs for text in pair]
    else:
        elements = _elements(value)
    if type(value) in (dict, list) and any("," in text for text in elements):
        raise EncodeError("an element of a list in a header must not contain a comma")
    text = ",".join(elements)
    if text and not _is_header_text(text):
        raise EncodeError(
            "the value of a header must be printable ASCII without a line break, and not begin or end with a space"
        )
    return text


def cookie_pairs(name: str, value: JSON, *, explode: bool) -> Iterator[tuple[str, str]]:
    yield from query_pairs(name, value, "form", explode=explode)


def _elements(value: JSON) -> list[str]:
    """Return the texts of a scalar, or of an array's elements without nulls; an empty list for an object."""
    if type(value) is dict:
        return []
    return [plain_text(item) for item in (value if type(value) is list else [value]) if item is not None]


def _members(value: JSON) -> list[tuple[str, JSON]]:
    members: Object = value if type(value) is dict else {}
    return [(key, inner) for key, inner in members.items() if inner is not None]


class FieldEncoding(Value, frozen=True):
    """The encoding of one field of a form. `style` is None if the document does not choose one."""

    content_type: str | None = None
    style: str | None = None
    explode: bool = True
    is_binary: bool = False


class ApiBody(Value, frozen=True):
    """The media type of a body, and the encodings of a form's fields."""

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
    """Yield the head and the content of each part of a field.

    A list becomes one part per element, without nulls. EncodeError for a file that is not base64.
    """
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
    """Return the content of a file. Raise EncodeError if it is not base64 text."""
    if type(value) is not str:
        raise EncodeError("the content of a file must be base64 text")
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise EncodeError("the content of a file must be base64 text") from None
