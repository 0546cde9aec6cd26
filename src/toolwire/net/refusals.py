"""Describe a failed request to a server: the address, and how to fix it.

Separate because only the last attempt of a request is described, and the description is not part of the fault, which a
program may pass on to its own clients.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from ..ir.errors import ProtocolError
from ..ir.response import UpstreamError
from ..ir.terminal import neutralise_line
from .endpoint import Endpoint
from .http import Reply

__all__ = ["describe_refusal", "refuse_web_page"]


def describe_refusal(error: UpstreamError, endpoint: Endpoint, url: str) -> UpstreamError:
    """Add the address to a message that is only a status, and a hint to an error that the caller can fix."""
    if endpoint.vendor.transport is not None:  # a model in this process
        return error
    fault, address = error.fault, _shown_address(endpoint, url)
    if fault.message == f"HTTP {fault.status}":
        error.message = f"{address} answered with HTTP {fault.status}"
    if not error.hint:
        error.hint = _hint(error, endpoint, address)
    return error


def refuse_web_page(reply: Reply, endpoint: Endpoint, url: str) -> None:
    """Raise ProtocolError if a server answers a request with a web page: the path is not that of an API."""
    if reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
        message = f"{_shown_address(endpoint, url)} answered with a web page instead of JSON"
        raise ProtocolError(message, hint="check base_url=…", status=502)


def _shown_address(endpoint: Endpoint, url: str) -> str:
    """Return a URL without its query and without known secrets, for a message."""
    text = urlunsplit(urlsplit(url)._replace(query="", fragment=""))
    for secret in endpoint.known_secrets:
        text = text.replace(secret, "[key]")
    return neutralise_line(text)


def _hint(error: UpstreamError, endpoint: Endpoint, address: str) -> str:
    fault = error.fault
    if fault.code == "connection":
        return "check that the server is running, and check base_url=…"
    if fault.kind in ("authentication", "permission"):
        return _key_hint(endpoint)
    if fault.kind == "not_found":
        where = "" if address in error.message else f" of {address}"
        return f"check the name of the model{where}, and check base_url=…"
    if fault.message != f"HTTP {fault.status}":
        return ""
    return "see the log of the server, or try again later" if fault.status >= 500 else "check base_url=…"


def _key_hint(endpoint: Endpoint) -> str:
    if endpoint.key_variable is not None:
        return f"check the key in {endpoint.key_variable}"
    if endpoint.key_command is not None:
        return "check the key command"
    if endpoint.key is not None:
        return "check the key that you passed"
    return f"no key was sent to {endpoint.origin}; pass its key: key=…"
