"""Find the model in a multipart body that arrives in pieces, without holding its files. No I/O.

    preamble ──delimiter──▶ head ──empty line──▶ content ──delimiter──▶ head …
                  └── "--" after a delimiter ──▶ epilogue

The content of the field `model` is kept, of all others only its last bytes, which may begin a delimiter. A body that two
parsers could read differently is refused, because a second reading may name another model: a field without a plain name,
parameters after a file's name, folded headers, another charset or transfer encoding, a delimiter after a bare line feed, text
before the first delimiter, a second `model`. See RFC 7578 (4.6 for `_charset_`, 4.7 for transfer encodings) and RFC 2046, 5.1.1.
"""

from __future__ import annotations

import re
from typing import Literal

from ...ir.errors import ProtocolError
from ..request.body import FORBIDDEN_FIELDS, may_route

_MAX_HEAD = 8 * 1024  # bytes of the headers of a part; clients write two lines
_MAX_MODEL = 512  # bytes of a model's name, as in JSON bodies
_is_boundary = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}(?<! )").fullmatch
# A backslash before a quotation mark ends a file's name for some parsers only; others in it are of Windows' paths.
_DISPOSITION = re.compile(
    rb'content-disposition:[ \t]*form-data;[ \t]*name="([^"\\\r\n]*)"'
    rb'((?:;[ \t]*filename\*?=(?:"(?:[^"\\\r\n]|\\(?!"))*"|[^;"\s]+)){0,2})[ \t]*\Z',
    re.IGNORECASE,
).match
_ENCODINGS = ("7bit", "8bit", "binary")
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\x00]*\Z").match


class InvalidMultipart(ProtocolError):
    """The body cannot be read in one way only."""


def find_boundary(content_type: str) -> bytes | None:
    """Return the boundary of a multipart form, or None for another media type.

    Raise InvalidMultipart for a form without a valid boundary.
    """
    if not content_type.lower().startswith("multipart/"):
        return None
    media_type, *parameters = content_type.split(";")
    values = [value.strip() for name, _, value in (part.partition("=") for part in parameters) if _is_name(name)]
    boundary = values[0].removeprefix('"').removesuffix('"') if len(values) == 1 else ""
    if media_type.strip().lower() != "multipart/form-data" or _is_boundary(boundary) is None:
        raise InvalidMultipart("content-type has no valid boundary", hint="send multipart/form-data with a boundary")
    if not all(_is_name(part.partition("=")[0]) or not part.strip() or _is_utf8(part.strip()) for part in parameters):
        raise InvalidMultipart("content-type has another parameter than boundary", hint="leave it out")
    return boundary.encode()


def has_other_charset(content_type: str) -> bool:
    """Return whether a content-type names another charset than UTF-8, in which some parsers would read the body."""
    parameters = (part.strip() for part in content_type.split(";")[1:])
    return not all(_is_utf8(part) for part in parameters if part.lower().startswith("charset"))


def _is_utf8(parameter: str) -> bool:
    name, _, value = parameter.lower().partition("=")
    return name.strip() == "charset" and value.strip().strip('"') in ("utf-8", "utf8", "us-ascii")


def _is_name(name: str) -> bool:
    return name.strip().lower() == "boundary"


class MultipartScan:
    """Reads the names of the fields. `model` is set once the field was read whole, with its `span` in all pieces.

    `may_route` permits fields that choose a model besides `model`.
    """

    def __init__(self, boundary: bytes, *, may_route: bool) -> None:
        self.model: str | None = None
        self.span: tuple[int, int] | None = None
        self.is_complete = False
        self._delimiter = b"\r\n--" + boundary
        self._may_route = may_route
        self._state: Literal["preamble", "content", "head", "epilogue"] = "preamble"
        self._field = b""  # the part whose content is read
        self._rest = b"\r\n"  # unread bytes; the body begins with a delimiter without its line break
        self._offset = -2  # of the rest, in the body
        self._line_break = 0  # bytes at the start of the rest that belong to the head

    def feed(self, piece: bytes) -> None:
        """Read the next piece. Raise InvalidMultipart for an ambiguous body, and for a field that is not allowed."""
        self._rest += piece
        if self._state == "preamble":
            start = self._rest[: len(self._delimiter)]
            if not self._delimiter.startswith(start):
                raise InvalidMultipart("the body does not begin with the boundary of its content-type")
            if len(start) < len(self._delimiter):
                return
            self._state = "content"
        while self._read_content() if self._state == "content" else self._state == "head" and self._read_head():
            pass
        if self._state == "epilogue":
            self._skip(len(self._rest))

    def close(self) -> None:
        """End the body. Raise InvalidMultipart if it is truncated."""
        if not self.is_complete:
            raise InvalidMultipart("the multipart body is truncated", hint="end it with the boundary and two hyphens")

    def _skip(self, size: int) -> None:
        self._rest = self._rest[size:]
        self._offset += size
        self._line_break = max(0, self._line_break - size)

    def _read_content(self) -> bool:
        """Read up to a delimiter and the two bytes after it. Return False if these have not arrived."""
        start = self._rest.find(self._delimiter)
        self._check_line_breaks(len(self._rest) if start < 0 else start)
        after = self._rest[start + len(self._delimiter) :][:2]
        if start < 0 or len(after) < 2:
            if self._field != b"model":
                self._skip(max(0, len(self._rest) - len(self._delimiter)) if start < 0 else start)
            else:
                self._check_model_size(len(self._rest) - len(self._delimiter) if start < 0 else start)
            return False
        if start < self._line_break:
            raise InvalidMultipart("a part has no content")
        if self._field == b"model":
            self._set_model(self._line_break, start)
        self._skip(start + len(self._delimiter) + 2)
        if after == b"\r\n":
            self._state = "head"
        elif after == b"--":
            self._state, self.is_complete = "epilogue", True
        else:
            raise InvalidMultipart("a delimiter is not followed by a line break")
        return True

    def _check_line_breaks(self, end: int) -> None:
        """Raise InvalidMultipart for a delimiter after a bare line feed, which some parsers accept."""
        unbroken = self._delimiter[1:]
        position = self._rest.find(unbroken, 0, end)
        while position >= 0:
            if self._rest[max(0, position - 1) : position] != b"\r":
                raise InvalidMultipart("a delimiter follows a bare line feed", hint="choose another boundary")
            position = self._rest.find(unbroken, position + 1, end)

    def _check_model_size(self, end: int) -> None:
        if end - self._line_break > _MAX_MODEL:
            raise InvalidMultipart(f"the field model has more than {_MAX_MODEL} bytes")

    def _set_model(self, start: int, end: int) -> None:
        self._check_model_size(end)
        try:
            self.model = self._rest[start:end].decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidMultipart("the field model is not UTF-8") from None
        self.span = (self._offset + start, self._offset + end)

    def _read_head(self) -> bool:
        """Read the headers of a part. Return False if they are incomplete."""
        end = self._rest.find(b"\r\n\r\n")
        if (len(self._rest) - 3 if end < 0 else end) > _MAX_HEAD:
            raise InvalidMultipart(f"the headers of a part have more than {_MAX_HEAD} bytes")
        if end < 0:
            return False
        self._field = _read_name(self._rest[:end])
        self._check_name(self._field.decode("utf-8", "replace"))
        self._state = "content"
        self._skip(end + 2)
        self._line_break = 2  # without content, it would be the line break of the next delimiter, too
        return True

    def _check_name(self, name: str) -> None:
        if name == "model" and self.span is not None:
            raise InvalidMultipart("the field model occurs twice", hint="send it once")
        if name == "_charset_" or name in FORBIDDEN_FIELDS or (may_route(name) and not self._may_route):
            raise InvalidMultipart(f"the field {name[:100]} must not be set by a client", hint="leave it out")


def _read_name(head: bytes) -> bytes:
    """Return the name of a part. Raise InvalidMultipart if its headers are not plain."""
    lines = head.split(b"\r\n")
    if not all(map(_HEADER, lines)):
        raise InvalidMultipart("a header of a part is invalid")
    found = [match for match in map(_DISPOSITION, lines) if match is not None]
    if len(found) != 1 or sum(line.lower().startswith(b"content-disposition:") for line in lines) != 1:
        raise InvalidMultipart(
            "a part has no plain name",
            hint='write Content-Disposition: form-data; name="…" once for each part, and filename="…" for a file',
        )
    name, file_names = found[0].groups()
    for line in lines:
        _check_encoding(line.decode("latin-1"), is_file=file_names != b"" and name != b"model")
    return name


def _check_encoding(line: str, *, is_file: bool) -> None:
    """Raise InvalidMultipart for a header by which some parsers decode the content. The text of a file is not read."""
    name, _, value = line.partition(":")
    if name.lower() == "content-transfer-encoding" and value.strip().lower() not in _ENCODINGS:
        raise InvalidMultipart("a part has a transfer encoding", hint="leave out content-transfer-encoding")
    if name.lower() == "content-type" and not is_file and has_other_charset(value):
        raise InvalidMultipart("a field has another charset than UTF-8", hint="encode it in UTF-8")
