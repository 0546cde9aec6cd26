"""The HTTP/1.1 client, directly on the event loop: for model clients, and for thousands of requests per second.

All bytes that have arrived are read at once, and cancellation closes the connection immediately, even without a
response. It supports TLS with client certificates, and proxies. Redirects are not followed, and HTTP/2 is not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from ..._extras import install_command
from ...ir.errors import MissingExtra
from .connection_settings import ClientTls, proxies_from_environment
from .head import build_head
from .transport import Reply, RequestBody

if TYPE_CHECKING:
    from .connect import Connector
    from .requests import ClientPools, PreparedRequest


class HttpTransport:
    """A pool of connections; several clients may share one.

    `environment`: the variables with proxies and certificates, by default those of the process; see docs/clients.md.
    `connections`: the maximum in use per origin. `max_wait`: seconds that a request waits if all of them are in use, by
    default its own timeout; then it fails with ConnectionRefusedError. `roots`: PEM certificates that are trusted in addition to the usual ones.
    `client_certificate` and `client_key`: PEM files, for servers that require a certificate.
    `resends`: a request on a reused connection that the server has closed is sent once more on a new one. Do not use
    it for requests that must not be executed twice. `reuse`: False opens a connection for every request, so that none
    is sent on a connection that the server is about to close. Connections belong to the event loop that opened them,
    and are closed with it.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        connections: int = 256,  # the descriptors of a process, often 1,024, have to suffice for several origins
        max_wait: float | None = None,
        # Seconds for DNS, TCP, proxy and TLS; a lost packet is sent again after 1, 3 and 7 s (RFC 6298).
        connect_timeout: float = 10.0,
        roots: Sequence[bytes] = (),
        client_certificate: str | None = None,
        client_key: str | None = None,
        resends: bool = True,
        reuse: bool = True,
    ) -> None:
        environment = os.environ if environment is None else environment
        self._resends = resends
        self._reuse = reuse
        self._connections = connections
        self._max_wait = max_wait
        self._connect_timeout = connect_timeout
        self._proxies = proxies_from_environment(environment)
        self._tls = ClientTls(environment, roots=roots, certificate=client_certificate, key=client_key)
        self._pools: ClientPools | None = None
        self._prepare_cached = lru_cache(256)(self._prepare)  # most requests have the same head as an earlier one

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: RequestBody, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        return self._prepare_cached("POST", url, (*headers.items(), *secrets.items())).send(body, seconds)

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        secrets: Mapping[str, str],
        body: RequestBody,
        seconds: float,
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request with any method. Raise ConnectionRefusedError if there was no connection: nothing was sent."""
        return self._prepare_cached(method, url, (*headers.items(), *secrets.items())).send(body, seconds)

    def prepare(self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str]) -> PreparedRequest:
        """Check and encode the constant part of requests, once for many of them."""
        return self._prepare(method, url, (*headers.items(), *secrets.items()))

    def _prepare(self, method: str, url: str, fields: tuple[tuple[str, str], ...]) -> PreparedRequest:
        """Encode the head of a request, and create the pools on first use. Raise MissingExtra without httptools."""
        try:
            from .requests import ClientPools, PreparedRequest
        except ModuleNotFoundError as error:
            if error.name != "httptools":
                raise
            raise MissingExtra("model clients need the package httptools", hint=install_command("net")) from None
        if self._pools is None:
            self._pools = ClientPools(
                self.connector.open, self._connections, reuse=self._reuse, max_wait=self._max_wait
            )
        origin, head = build_head(method, url, fields)
        return PreparedRequest(self._pools, method, origin, head, resends=self._resends)

    @property
    def connector(self) -> Connector:
        """Opens connections with these proxies and certificates."""
        from .connect import Connector

        return Connector(self._proxies, self._tls, self._connect_timeout)

    def for_probes(self) -> HttpTransport:
        """Return a client with the same proxies and certificates, whose connections are its own and not reused."""
        probing = copy(self)
        probing._reuse, probing._pools = False, None
        probing._prepare_cached = lru_cache(8)(probing._prepare)
        return probing

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a connection."""
        return 0 if self._pools is None else self._pools.waiting

    def reload_certificate(self) -> None:
        """Use the current content of the client certificate for new connections. Raise ConfigError if it is unusable."""
        self._tls.reload()

    async def aclose(self) -> None:
        """Close idle connections now, and connections of in-flight requests when these end."""
        if self._pools is not None:
            await self._pools.aclose()
