"""Convert HTTP responses to results and failures.

A result is a JSON value, a text, an image, or None for an empty response. A refusal by the server (4xx, a redirect) is a
ToolError; 408, 425, 429 and 5xx are Transient. Nothing contains a secret of the request.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from typing import NamedTuple
from urllib.parse import urlsplit

from ..ir.errors import ProtocolError
from ..ir.parts import Media
from ..ir.pointer import JSON
from ..ir.text import dumps, shorten
from ..run.calls.context import ToolError, Transient
from ..stream.strict import parse
from .security import SecretFilter

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTS = re.compile(
    r"text/.*|application/(?:.*[+/-])?(?:json|xml|yaml|javascript|x-www-form-urlencoded|graphql|ndjson|jsonl|json-seq)"
)
# Encodings that decode in linear time. Others of Python, such as punycode, are quadratic or no text encodings.
_CHARSETS = re.compile(
    r"utf-?(?:8|16|32)(?:-?[lb]e)?|us-ascii|ascii|iso-8859-\d{1,2}|latin-?1|windows-125\d|koi8-[ru]|shift_jis|euc-(?:jp|kr)|gb(?:k|2312|18030)|big5"
)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,300})", re.IGNORECASE)
_MAX_DETAIL = 2_000  # characters of the server's message, about 500 tokens: validation errors list their fields
_NO_EFFECT = frozenset({425, 429})  # the server refused to process the request
_TRANSIENT = frozenset({408, 425, 429})


class ApiResponse(NamedTuple):
    """A response. `is_truncated`: its body exceeded the limit and ends early."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    is_truncated: bool = False

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def result(response: ApiResponse, clean: SecretFilter) -> JSON | Media:
    """Convert a successful response, with secrets removed, to JSON, an image or text.

    An empty body is None, other binary data a note about its size.
    """
    kind, body = response.media_type, response.body
    if not body or response.status in (204, 205):
        return None
    if kind in _IMAGES and not response.is_truncated:
        return Media("image", kind, b64encode(body).decode())
    if kind and not _TEXTS.fullmatch(kind):
        return _size_note(response)
    if (not kind or kind.endswith(("/json", "+json"))) and not response.is_truncated:
        try:
            return clean.clean_value(parse(body))
        except ProtocolError:
            pass  # shown as text
    if not kind and b"\0" in body:
        return _size_note(response)
    if response.is_truncated:
        return f"{clean.clean_cut(_decode(response))}\n[truncated after {len(body)} bytes]"
    return clean(_decode(response))


def _size_note(response: ApiResponse) -> str:
    size = f"{'more than ' if response.is_truncated else ''}{len(response.body)} bytes"
    return f"[{response.media_type[:80] or 'binary'} content, {size}, not shown]"


def _decode(response: ApiResponse) -> str:
    """Decode text with the charset of the response, UTF-8 by default."""
    found = re.search(r"charset\s*=\s*\"?([\w-]{1,20})", response.headers.get("content-type", ""), re.IGNORECASE)
    charset = found[1].lower() if found else "utf-8"
    return response.body.decode(charset if _CHARSETS.fullmatch(charset) else "utf-8", "replace")


def failure(operation: str, response: ApiResponse, clean: SecretFilter, *, note: str = "") -> ToolError | Transient:
    """Return the exception for an error or a redirect: Transient if a retry may help, else ToolError.

    `note` is added to 401 and 403, for missing credentials.
    """
    status = response.status
    message = f"{operation} answered {status}{_reason_phrase(status)}"
    if 300 <= status < 400:
        target = _host_of(response.headers.get("location", ""))
        return ToolError(clean(f"{message}, a redirect to {target}. Redirects are not followed."))
    detail = _detail(response, clean)
    text = f"{message}: {detail}" if detail else f"{message}."
    if status in (401, 403) and note:
        text += f" {note}"
    if status >= 500 or status in _TRANSIENT:
        wait = _retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        return Transient(text, retry_after=wait, before_effect=status in _NO_EFFECT)
    return ToolError(text)


def _reason_phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _host_of(url: str) -> str:
    """Return the host of a URL for a message."""
    try:
        return (urlsplit(url).hostname or "the same host")[:200]
    except ValueError:
        return "an invalid URL"


def _detail(response: ApiResponse, clean: SecretFilter) -> str:
    """Return the server's message, shortened and without secrets: compact JSON, the title of an HTML page, or text.

    Return "" if there is none.
    """
    kind = response.media_type
    if kind and not _TEXTS.fullmatch(kind):
        return ""
    text = _decode(response)
    if kind == "text/html":
        title = _TITLE.search(text[:20_000])
        text = title[1] if title else ""
    elif kind.endswith(("/json", "+json")):
        try:
            text = dumps(clean.clean_value(parse(response.body)))
        except ProtocolError:
            pass  # shown as text
    text = " ".join((clean.clean_cut if response.is_truncated else clean)(text).split())
    return shorten(text, _MAX_DETAIL)


def _retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After` header, a number or a date, or None if it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            retry_at = parsedate_to_datetime(value)
        except ValueError:
            return None
        retry_at = retry_at if retry_at.tzinfo is not None else retry_at.replace(tzinfo=UTC)
        seconds = (retry_at - now).total_seconds()
    return max(seconds, 0.0) if isfinite(seconds) else None
