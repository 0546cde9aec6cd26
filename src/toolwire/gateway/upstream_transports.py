"""The connections of the gateway to its upstreams: one pool for all, and one for each client certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..asgi.admission import max_requests
from ..ir.errors import ConfigError
from ..net.http.client import HttpTransport
from .settings import Settings, UpstreamRow
from .settings_location import toml_location

__all__ = ["UpstreamTransports"]


class UpstreamTransports:
    """The transports of upstreams. Proxies and trusted certificates are those of the environment."""

    def __init__(self, environment: Mapping[str, str], settings: Settings) -> None:
        limits = settings.limits
        self._environment = environment
        self._connections = limits.connections or limits.requests or max_requests(settings.server.workers)
        self._max_wait = limits.queue
        self._shared = HttpTransport(environment=environment, connections=self._connections, max_wait=limits.queue)
        self._by_certificate: dict[tuple[str, str | None], HttpTransport] = {}

    def of(self, name: str, row: UpstreamRow) -> HttpTransport:
        """Return the transport of an upstream. ConfigError names its row if its certificate cannot be used."""
        if row.client_certificate is None:
            return self._shared
        files = (row.client_certificate, row.client_key)
        transport = self._by_certificate.get(files)
        if transport is None:
            with _at_row(name):
                transport = HttpTransport(
                    environment=self._environment,
                    connections=self._connections,
                    max_wait=self._max_wait,
                    client_certificate=row.client_certificate,
                    client_key=row.client_key,
                )
            self._by_certificate[files] = transport
        return transport

    def reload(self, rows: Mapping[str, UpstreamRow]) -> None:
        """Use the current content of the certificates for new connections. On ConfigError, the old ones stay in use."""
        for name, row in rows.items():
            transport = self.of(name, row)
            with _at_row(name):
                transport.reload_certificate()

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a connection."""
        return sum(transport.waiting for transport in (self._shared, *self._by_certificate.values()))

    async def aclose(self) -> None:
        for transport in (self._shared, *self._by_certificate.values()):
            await transport.aclose()


@contextmanager
def _at_row(name: str) -> Iterator[None]:
    """Add the location of the row to errors."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{toml_location(('upstreams', name))}: {error.message}", hint=error.hint) from None
