"""A tool for one operation, and the HTTP request for the arguments of a call.

`parameters` and `body` record where each argument belongs in the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from ..ir.errors import EncodeError
from ..ir.pointer import JSON, Object, join
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from .encoding import (
    ApiBody,
    cookie_pairs,
    encode_body,
    header_text,
    path_text,
    percent_encode,
    plain_text,
    query_pairs,
)

BODY = "body"
"""The name of the argument for the request body."""
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_ENCODED = re.compile(r"(%[0-9A-Fa-f]{2})")
_MAX_TARGET = 8_000  # characters of path and query; servers refuse more than 8 KiB


class ApiParameter(Value, frozen=True):
    """The location of an argument in the request, and its serialisation.

    `is_json`: its text is JSON. `is_text`: it is text of another media type.
    """

    location: str  # path, query, header or cookie
    name: str
    style: str = "form"
    explode: bool = False
    allow_reserved: bool = False
    is_json: bool = False
    is_text: bool = False


class OperationProblem(Value, frozen=True):
    """An operation that is not offered, and the reason."""

    operation: str  # such as GET /pets/{id}
    message: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.message}"


class OperationRequest(NamedTuple):
    """An HTTP request without its host. `path` and `query` are percent-encoded."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    cookies: str = ""
    body: bytes = b""


class ApiTool(Tool, frozen=True):
    """A Tool for one operation.

    `security`: alternatives, each a tuple of names of security schemes; None if the document has no requirement.
    `server`: the URL of a server that only this operation has. `reserved`: locations and names of credentials, in lower
    case.
    """

    method: str = "GET"
    path: str = "/"
    parameters: dict[str, ApiParameter] = {}
    body: ApiBody | None = None
    security: tuple[tuple[str, ...], ...] | None = None
    tags: tuple[str, ...] = ()
    server: str | None = None
    reserved: frozenset[tuple[str, str]] = frozenset()

    @property
    def operation(self) -> str:
        """The operation as people write it, such as `GET /pets/{id}`."""
        return f"{self.method} {self.path}"

    def request(self, arguments: Mapping[str, JSON]) -> OperationRequest:
        """Build the request. EncodeError for an argument that is unknown, missing in the path, or not encodable."""
        template, _, fixed = self.path.partition("#")[0].partition("?")
        builder = _RequestBuilder()
        builder.query += [
            (percent_encode(name), percent_encode(text)) for name, text in parse_qsl(fixed, keep_blank_values=True)
        ]
        for name, value in arguments.items():
            try:
                self._add_argument(builder, name, value)
            except EncodeError as error:
                raise error.within(name) from None
        path = builder.fill_path(template)
        query = "&".join(f"{key}={text}" for key, text in builder.query)
        if len(path) + len(query) > _MAX_TARGET:
            raise EncodeError(f"the URL would exceed {_MAX_TARGET:,} characters", hint="pass shorter arguments")
        cookies = "; ".join(f"{key}={text}" for key, text in builder.cookies)
        return OperationRequest(self.method, path, query, builder.headers, cookies, builder.body)

    def _add_argument(self, builder: _RequestBuilder, name: str, value: JSON) -> None:
        """Encode one argument into the request; null is left out. EncodeError if it is unknown or not encodable."""
        if name == BODY and self.body is not None:
            encoded = encode_body(self.body, value)
            builder.headers["content-type"], builder.body = encoded
            return
        parameter = self.parameters.get(name)
        if parameter is None:
            raise EncodeError(f"{self.name} has no parameter {name!r}")
        if value is None:
            return
        if parameter.explode and type(value) is dict:
            self._check_members(parameter, value)
        text = dumps(value) if parameter.is_json else plain_text(value) if parameter.is_text else value
        builder.add(parameter, text)

    def _check_members(self, parameter: ApiParameter, value: Object) -> None:
        """Refuse an object whose members would become parameters that are credentials."""
        for name in value if parameter.location in ("query", "cookie") and parameter.style == "form" else ():
            if (parameter.location, name.lower()) in self.reserved:
                raise EncodeError(f"the member {name!r} would replace a credential")


def _encode_literal(text: str) -> Iterator[str]:
    """Encode literal text of a path; percent-encoded characters stay as they are."""
    for index, piece in enumerate(_ENCODED.split(text)):
        yield piece if index % 2 else percent_encode(piece, allow_reserved=True)


class _RequestBuilder:
    """The parts of a request under construction."""

    def __init__(self) -> None:
        self.path: dict[str, str] = {}
        self.query: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.cookies: list[tuple[str, str]] = []
        self.body = b""

    def add(self, parameter: ApiParameter, value: JSON) -> None:
        """Encode a parameter and add it at its location; EncodeError if the value cannot be encoded there."""
        name, style, explode = parameter.name, parameter.style, parameter.explode
        if parameter.location == "path":
            self.path[name] = path_text(name, value, style, explode=explode)
        elif parameter.location == "query":
            self.query += query_pairs(name, value, style, explode=explode, allow_reserved=parameter.allow_reserved)
        elif parameter.location == "header":
            self.headers[name] = header_text(value, explode=explode)
        else:
            self.cookies += cookie_pairs(name, value, explode=explode)

    def fill_path(self, template: str) -> str:
        """Return the path with its parameters; EncodeError if one is missing.

        The literal text is encoded, too, except for characters that are percent-encoded already.
        """
        pieces: list[str] = []
        for index, piece in enumerate(_PLACEHOLDER.split(template)):
            if index % 2 == 0:  # literal text; the names of parameters are between
                pieces += _encode_literal(piece)
            elif piece in self.path:
                pieces.append(self.path[piece])
            else:
                raise EncodeError(
                    f"the path parameter {piece!r} is missing", pointer=join(piece), hint="pass a value for it"
                )
        return "".join(pieces)
