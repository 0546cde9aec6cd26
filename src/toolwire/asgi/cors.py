"""Cross-origin requests of web pages (CORS): answers to preflights, and headers that let a page read an answer.

Only for the origins of the settings, which are also those that may send requests. Credentials of a browser, such as cookies,
are never allowed: a key is sent in a header by the page itself. See https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from .http_exchange import HeaderPairs
from .request import AsgiMessage, Scope, Send

# Any header: the SDKs send about twenty of their own. `*` does not cover `authorization`, so the names in the preflight are repeated.
_ALLOWED_METHODS = b"GET, POST, DELETE, OPTIONS"
_MAX_AGE = b"7200"  # seconds; the maximum of Chromium
_EXPOSED = b"retry-after, x-request-id, x-toolwire-upstream, x-toolwire-model, x-toolwire-losses"
_MAX_NAMES = 4096  # bytes of the header with the names of headers


class CrossOrigin:
    """The answers for pages of `origins`."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.lower().rstrip("/").encode() for origin in origins)

    def wrap(self, scope: Scope, send: Send) -> Send:
        """Return `send` with the headers for the page of a request, or `send` itself for any other request."""
        origin = self._find_origin(scope)
        if origin is None:
            return send

        async def send_with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    *message.get("headers", ()),
                    *_headers_for(origin),
                    (b"access-control-expose-headers", _EXPOSED),
                ]
                message = {**message, "headers": headers}
            await send(message)

        return send_with_headers

    def preflight(self, scope: Scope) -> HeaderPairs | None:
        """Return the headers of the answer to a preflight, or None for any other request."""
        headers = dict(scope["headers"])
        origin = self._find_origin(scope)
        if origin is None or scope["method"] != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        asked = headers.get(b"access-control-request-headers", b"")
        return [
            *_headers_for(origin),
            (b"access-control-allow-methods", _ALLOWED_METHODS),
            (b"access-control-allow-headers", asked if len(asked) <= _MAX_NAMES else b"authorization, content-type"),
            (b"access-control-max-age", _MAX_AGE),
        ]

    def _find_origin(self, scope: Scope) -> bytes | None:
        origin: bytes = dict(scope["headers"]).get(b"origin", b"")
        return origin if origin.lower() in self._origins else None


def _headers_for(origin: bytes) -> HeaderPairs:
    return [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
