"""HTTP headers that repeat parts of the body, for routers that do not read it (2026-07-28).

    MCP-Protocol-Version   the version in `_meta`
    Mcp-Method             `method`
    Mcp-Name               `params.name` or `params.uri`
    Mcp-Param-…            arguments that the tool's schema marks with `x-mcp-header`

A server that reads the body compares both and rejects a difference, because it may be an attack. Values that cannot
be written as a header are encoded as =?base64?…?=.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object, join
from .meta import PROTOCOL_VERSION
from .rpc import HEADER_MISMATCH, RpcError, RpcRequest

VERSION = "mcp-protocol-version"
METHOD = "mcp-method"
NAME_HEADER = "mcp-name"
PARAM = "mcp-param-"
SESSION = "mcp-session-id"
HEADER_KEYWORD = "x-mcp-header"

HeaderArguments: TypeAlias = Mapping[str, tuple[str, ...]]
"""Full header name in lower case → the path of its argument."""

_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_PLAIN = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?").fullmatch
_SENTINEL = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL).fullmatch
_PRIMITIVE = frozenset({"string", "integer", "boolean"})
_DATA_KEYWORDS = frozenset({"const", "default", "enum", "examples", HEADER_KEYWORD})
_SCHEMA_MAPS = frozenset({"$defs", "definitions", "patternProperties", "dependentSchemas"})
_MAX_SAFE_INTEGER = 2**53 - 1  # as JavaScript's Number.MAX_SAFE_INTEGER: a proxy reads no larger integer exactly


def encode_value(value: str) -> str:
    """Encode a value for a header.

    >>> encode_value("us-west1"), encode_value(" padded ")
    ('us-west1', '=?base64?IHBhZGRlZCA=?=')
    """
    if _PLAIN(value) and not _SENTINEL(value):
        return value
    return f"=?base64?{b64encode(value.encode()).decode()}?="


def decode_value(value: str) -> str:
    """Decode a header value. Raise RpcError for characters or base64 that are invalid in a header."""
    wrapped = _SENTINEL(value)
    if wrapped is None:
        if value and not _PLAIN(value):
            raise RpcError(HEADER_MISMATCH, "a header value contains invalid characters")
        return value
    try:
        return b64decode(wrapped[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise RpcError(HEADER_MISMATCH, f"a header value is not valid base64: {wrapped[1][:40]}") from None


def find_header_arguments(schema: Object | None) -> HeaderArguments:
    """Return the arguments of a tool that are sent as headers. Raise SchemaError if a mark is invalid.

    The caller leaves out a tool with invalid marks.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, path, declared in _find_marks(schema or {}, (), at_root=True):
        location = join("properties", *path)
        if not path:
            raise SchemaError(
                f"{HEADER_KEYWORD} is not on an argument", hint="use it only on a property whose parents are properties"
            )
        if type(name) is not str or not _TOKEN(name):
            raise SchemaError(f"{HEADER_KEYWORD} {name!r} is not a valid header name", pointer=location)
        if not _is_primitive(declared.get("type")):
            raise SchemaError(
                f"{HEADER_KEYWORD} is only allowed on a string, an integer or a boolean", pointer=location
            )
        header = PARAM + name.lower()
        if header in found:
            raise SchemaError(f"duplicate {HEADER_KEYWORD} {name!r}", pointer=location)
        found[header] = path
    return found


def _is_primitive(declared: JSON) -> bool:
    kinds = [kind for kind in declared if kind != "null"] if type(declared) is list else [declared]
    return bool(kinds) and all(type(kind) is str and kind in _PRIMITIVE for kind in kinds)


def _find_marks(
    schema: JSON, path: tuple[str, ...] | None, at_root: bool = False
) -> Iterator[tuple[JSON, tuple[str, ...], Object]]:
    """Yield (mark, path, schema) of every mark. The path is empty if it leads through anything but `properties`."""
    if type(schema) is not dict:
        return
    if HEADER_KEYWORD in schema:
        yield schema[HEADER_KEYWORD], path if path is not None and not at_root else (), schema
    for key, value in schema.items():
        if key in _DATA_KEYWORDS:
            continue
        if key == "properties" and type(value) is dict:
            for name, held in value.items():
                yield from _find_marks(held, None if path is None else (*path, name))
        else:
            held_in = (
                value.values()
                if key in _SCHEMA_MAPS and type(value) is dict
                else value
                if type(value) is list
                else (value,)
            )
            for held in held_in:
                yield from _find_marks(held, None)


def request_headers(request: RpcRequest, header_arguments: HeaderArguments | None = None) -> dict[str, str]:
    """Return the headers of a stateless request.

    `header_arguments` is `find_header_arguments(tool.input_schema)` of the called tool.
    """
    params = request.params
    headers = {METHOD: request.method}
    version = (params.get("_meta") or {}).get(PROTOCOL_VERSION)
    if type(version) is str:
        headers[VERSION] = version
    named = _NAME_PARAMETERS.get(request.method)
    if named is not None and type(params.get(named)) is str:
        headers[NAME_HEADER] = encode_value(params[named])
    for header, path in (header_arguments or {}).items():
        header_value = _format_value(_value_at(params.get("arguments"), path))
        if header_value is not None:
            headers[header] = encode_value(header_value)
    return headers


def _value_at(value: JSON, path: tuple[str, ...]) -> JSON:
    for key in path:
        if type(value) is not dict:
            return None
        value = value.get(key)
    return value


def _format_value(value: JSON) -> str | None:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and abs(value) <= _MAX_SAFE_INTEGER:
        return str(value)
    return value if type(value) is str else None


def check_headers(
    headers: Mapping[str, str], request: RpcRequest, version: str, header_arguments: HeaderArguments | None = None
) -> None:
    """Compare the headers (names in lower case) with the body. Raise RpcError if one differs or is missing."""
    _check_same(headers, VERSION, version)
    _check_same(headers, METHOD, request.method)
    named = _NAME_PARAMETERS.get(request.method)
    if named is not None and type(request.params.get(named)) is str:
        _check_same(headers, NAME_HEADER, request.params[named], encoded=True)
    for header, path in (header_arguments or {}).items():
        value = _value_at(request.params.get("arguments"), path)
        header_value = _format_value(value)
        if header_value is None:
            if value is None and header in headers:
                raise _mismatch(header, f"is {headers[header]!r}, but the argument is missing")
        elif not (type(value) is int and _is_number(headers.get(header), value)):
            _check_same(headers, header, header_value, encoded=True)


def _is_number(text: str | None, value: int) -> bool:
    try:
        return text is not None and float(text) == value
    except ValueError:
        return False


def _check_same(headers: Mapping[str, str], header: str, body: str, *, encoded: bool = False) -> None:
    """Raise RpcError unless the header has the value of the body. `encoded`: the header may be in base64."""
    raw_value = headers.get(header)
    if raw_value is None:
        raise _mismatch(header, "is missing")
    raw_value = raw_value.strip(" \t")
    header_value = decode_value(raw_value) if encoded else raw_value
    if header_value != body:
        raise _mismatch(header, f"is {header_value!r}, but the body has {body!r}")


def _mismatch(header: str, problem: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {header} {problem}")
