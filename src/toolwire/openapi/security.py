"""Security schemes and requirements of a document. They are never part of a tool's schema."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from ..ir.value import Value
from .references import References

__all__ = ["Requirements", "SchemeKind", "SecurityScheme", "read_requirements", "read_schemes"]

SchemeKind: TypeAlias = Literal["bearer", "basic", "http", "header", "query", "cookie", "none"]
Requirements: TypeAlias = "tuple[tuple[str, ...], ...] | None"
_MAX_SCHEMES = 200
_MAX_ALTERNATIVES = 20
_is_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}").fullmatch
# Headers that frame the request, or that other code sets.
_RESERVED = frozenset(
    "host content-length content-type content-encoding transfer-encoding connection keep-alive upgrade te trailer "
    "expect accept accept-encoding cookie idempotency-key".split()
)


class SecurityScheme(Value, frozen=True):
    """The place of a credential in a request.

    `parameter` is the name of the header, query parameter or cookie, or the scheme of the `Authorization` header.
    """

    name: str
    kind: SchemeKind
    parameter: str = ""


def read_schemes(document: Object, references: References) -> tuple[dict[str, SecurityScheme], list[tuple[str, str]]]:
    """Return the schemes by name, and the names and problems of those that cannot be used."""
    components = document.get("components")
    declared: JSON = components.get("securitySchemes") if type(components) is dict else None
    schemes: dict[str, SecurityScheme] = {}
    problems: list[tuple[str, str]] = []
    for name in list(declared)[:_MAX_SCHEMES] if type(declared) is dict else ():
        try:
            schemes[name] = _read_scheme(name, references.follow(declared[name]))
        except SchemaError as error:
            problems.append((name, str(error)))
    return schemes, problems


def _read_scheme(name: str, fields: Object) -> SecurityScheme:
    kind = fields.get("type")
    if kind == "http":
        scheme = str(fields.get("scheme", ""))
        if scheme.lower() in ("bearer", "basic"):
            return SecurityScheme(name, "bearer" if scheme.lower() == "bearer" else "basic")
        if not _is_token(scheme):
            raise SchemaError("the HTTP scheme is not valid")
        return SecurityScheme(name, "http", scheme)
    if kind in ("oauth2", "openIdConnect"):
        return SecurityScheme(name, "bearer")
    if kind == "mutualTLS":
        return SecurityScheme(name, "none")
    location, parameter = fields.get("in"), fields.get("name")
    if kind != "apiKey" or type(parameter) is not str or not parameter:
        raise SchemaError(f"the type {str(kind)[:40]!r} is not supported")
    if location == "header" and _is_token(parameter) and parameter.lower() not in _RESERVED:
        return SecurityScheme(name, "header", parameter)
    if location == "query":
        return SecurityScheme(name, "query", parameter)
    if location == "cookie" and _is_token(parameter):
        return SecurityScheme(name, "cookie", parameter)
    raise SchemaError("the location or name of the API key is not valid")


def read_requirements(fields: Object, document: Object, schemes: dict[str, SecurityScheme]) -> Requirements:
    """Return the alternatives of an operation; None if neither it nor the document has a requirement.

    An alternative with an unknown scheme cannot be satisfied and is left out.
    """
    declared: JSON = fields.get("security", document.get("security"))
    if type(declared) is not list:
        return None
    alternatives = [tuple(entry) for entry in declared[:_MAX_ALTERNATIVES] if type(entry) is dict]
    return tuple(names for names in alternatives if all(name in schemes for name in names))
