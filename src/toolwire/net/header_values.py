"""Check names and values of HTTP headers that come from settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..ir.errors import ConfigError
from ..ir.value import Value

__all__ = ["CustomHeaders", "expand_headers", "is_header_value"]

is_header_value = re.compile(r"[\x21-\x7e]+").fullmatch
_is_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_printable = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?").fullmatch
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# set by the transport, or by the wire
_RESERVED = frozenset(
    "host content-length content-type content-encoding transfer-encoding connection keep-alive upgrade te trailer "
    "expect accept-encoding".split()
)


class CustomHeaders(Value, frozen=True):
    """Headers from settings: literal values, and values with an environment variable, which are secrets."""

    literal: dict[str, str] = {}
    secret: dict[str, str] = {}


def expand_headers(headers: Mapping[str, str], environment: Mapping[str, str], key_header: str) -> CustomHeaders:
    """Replace `${NAME}` by environment variables, and check the headers. Errors do not show values.

    `key_header` is the header of the key, which has settings of its own.
    """
    literal: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, template in headers.items():
        lower = name.lower()
        if not _is_header_name(name):
            raise ConfigError(f"headers: {name!r} is not a valid name of a header")
        if lower in _RESERVED:
            raise ConfigError(f"headers: {name!r} cannot be set", hint="it is set for each request")
        if lower == key_header.lower():
            hint = "set the key with key_env, key_file or key_command (in Python: key or key_command)"
            raise ConfigError(f"headers: {name!r} is the header of the key", hint=hint)
        if lower in literal or lower in secret:
            raise ConfigError(f"headers: {name!r} is set twice")
        value = _expand_variables(template, name, environment)
        if not _is_printable(value):
            raise ConfigError(f"the value of header {name!r} is empty or has characters that are not allowed")
        (literal if value == template else secret)[lower] = value
    return CustomHeaders(literal, secret)


def _expand_variables(template: str, header: str, environment: Mapping[str, str]) -> str:
    def value_of(found: re.Match[str]) -> str:
        value = environment.get(found[1], "").strip()
        if not value:
            raise ConfigError(f"headers: environment variable {found[1]} of {header!r} is not set")
        return value

    return _VARIABLE.sub(value_of, template)
