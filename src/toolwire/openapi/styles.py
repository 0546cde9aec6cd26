"""Serialise arguments in the styles of OpenAPI parameters.

Each value is percent-encoded on its own, so that only the delimiters of its style are left as delimiters: a comma, a
slash or an ampersand in an argument cannot become another argument or path segment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from ..ir.errors import EncodeError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps

__all__ = ["cookie_pairs", "has_dot_segment", "header_text", "path_text", "percent_encode", "plain_text", "query_pairs"]

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Reserved characters that do not end a value in a query. The others (`&=+#[]`) are encoded with `allowReserved`, too.
_HARMLESS_RESERVED = frozenset(b":/?@!$'()*,;")
has_dot_segment = re.compile(r"(?:^|[/\\])\.\.?(?:$|[/\\;])").search  # servers in Java read `..;x` as `..`
_is_header_text = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?").fullmatch
_MAX_NESTING = 20


def percent_encode(text: str, *, allow_reserved: bool = False) -> str:
    """Percent-encode everything except unreserved characters (RFC 3986)."""
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
    """Return the encoded text of a path parameter. Empty values and dot segments would address another resource."""
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
    """Refuse values that change the path. Some servers decode the path, even twice, before they resolve it."""
    texts = [*_elements(value), *(key for key, _ in _members(value)), *(plain_text(one) for _, one in _members(value))]
    if not texts or not all(text.strip("/\\") for text in texts):
        raise EncodeError("a path parameter must not be empty")
    for text in texts:
        if has_dot_segment(text) or has_dot_segment(unquote(text)):
            raise EncodeError("a path parameter must not contain the path segments '.' or '..'")


def query_pairs(
    name: str, value: JSON, style: str, *, explode: bool, allow_reserved: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the encoded names and values of a query parameter, or of a field of a form."""

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
    """Yield `name[key]=value` for every member.

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
    """Return the value of a header. Header values are not encoded, so that ambiguous ones are refused."""
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
    """Return the texts of a scalar or of the elements of an array, without nulls; none for an object."""
    if type(value) is dict:
        return []
    return [plain_text(one) for one in (value if type(value) is list else [value]) if one is not None]


def _members(value: JSON) -> list[tuple[str, JSON]]:
    members: Object = value if type(value) is dict else {}
    return [(key, inner) for key, inner in members.items() if inner is not None]
