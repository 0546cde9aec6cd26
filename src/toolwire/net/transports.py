"""Choose the fastest available transport."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from .h1 import H1Transport
from .http import HttpTransport

__all__ = ["open_transport"]

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def open_transport(
    environment: Mapping[str, str], *, connections: int = 256, resends: bool = True, reuse: bool = True
) -> H1Transport | HttpTransport:
    """Open an H1Transport, or an HttpTransport if a proxy is configured or httptools is not installed."""
    if any(environment.get(name) for name in _PROXY_VARIABLES) or find_spec("httptools") is None:
        return HttpTransport(connections=connections)
    return H1Transport(connections=connections, resends=resends, reuse=reuse)
