"""Connection settings from the environment: certificates and proxies.

`ClientTls` holds the trusted certificates and the client's own. `ProxySettings` selects the proxy of a request by the
usual environment variables.
"""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from ...ir.errors import ConfigError
from ...wire.loopback import is_loopback

# Trusted are the certificates of the system, or the files in `SSL_CERT_FILE` and `SSL_CERT_DIR`, as with OpenSSL, and
# additional `roots`. A client certificate is shown to servers, never to a proxy.


class ClientTls:
    """The TLS contexts of a client: one for servers, and one for proxies.

    `certificate` and `key` are PEM files; without `key`, the key is in the file of the certificate.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        roots: Sequence[bytes] = (),
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        """Check the given files now, and load the system's on use.

        Raise ConfigError, with the name of the file, if it cannot be used.
        """
        self._trusted = (
            environment.get("SSL_CERT_FILE") or None,
            environment.get("SSL_CERT_DIR") or None,
            tuple(roots),
        )
        self._certificate = certificate
        self._key = key
        self._server_context: ssl.SSLContext | None = None
        if key is not None and certificate is None:
            raise ConfigError("a client key needs a client certificate", hint="set both, or neither")
        if any(self._trusted) or certificate is not None:
            self.server_context()

    def proxy_context(self) -> ssl.SSLContext:
        return _shared_context(*self._trusted)

    def server_context(self) -> ssl.SSLContext:
        if self._certificate is None:
            return _shared_context(*self._trusted)
        if self._server_context is None:
            self._server_context = _make_context(*self._trusted)
            self.reload()
        return self._server_context

    def reload(self) -> None:
        """Use the current content of the client certificate for new connections, after it was renewed.

        Raise ConfigError if it cannot be used; then the old certificate stays in use.
        """
        if self._certificate is not None and self._server_context is not None:
            scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a failure must not change half of the context in use
            for context in (scratch, self._server_context):
                _load_certificate(context, self._certificate, self._key)


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Load a client certificate into a context. Raise ConfigError if the files cannot be read or used."""
    hint = "the certificate is a PEM file with the chain, the key a PEM file without a password"
    files = certificate if key is None else f"{certificate} and {key}"
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except ssl.SSLError as error:
        reason = (error.reason or "not a PEM file").replace("_", " ").lower()
        raise ConfigError(f"cannot use the client certificate {files}: {reason}", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"cannot read the client certificate {files}: {error.strerror}", hint=hint) from None


def _refuse_password() -> str:
    """Return no password, so that an encrypted key is an error. OpenSSL would ask for it on the terminal."""
    return ""


def _make_context(file: str | None, folder: str | None, roots: tuple[bytes, ...]) -> ssl.SSLContext:
    """Return a context for HTTP/1.1 that trusts a file, a folder and roots. Raise ConfigError for an invalid one."""
    is_default = file is None and folder is None
    context = ssl.create_default_context() if is_default else _make_custom_context(file, folder)
    for pem in roots:
        try:
            context.load_verify_locations(cadata=pem.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            raise ConfigError("cannot use a root certificate: not PEM", hint="pass the bytes of a PEM file") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


_shared_context = lru_cache(16)(_make_context)  # loading the certificates of the system takes milliseconds


def _make_custom_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return a context that trusts the given file and folder, or OpenSSL's default in place of either.

    Raise ConfigError if one does not exist, or has no usable certificate.
    """
    defaults = ssl.get_default_verify_paths()
    if file is not None and not Path(file).is_file():
        raise ConfigError(f"SSL_CERT_FILE: {file} is not a file", hint="set it to a file of certificates, or unset it")
    if folder is not None and not any(Path(part).is_dir() for part in folder.split(":")):
        hint = "set it to a folder of certificates prepared by `openssl rehash`, or unset it"
        raise ConfigError(f"SSL_CERT_DIR: {folder} is not a folder", hint=hint)
    default_file = defaults.openssl_cafile if Path(defaults.openssl_cafile).is_file() else None
    try:
        return ssl.create_default_context(cafile=file or default_file, capath=folder or defaults.openssl_capath)
    except (ssl.SSLError, OSError):
        raise ConfigError(
            f"SSL_CERT_FILE: {file} has no usable certificate", hint="it must contain certificates in PEM format"
        ) from None


# The proxy of a request, by the usual environment variables.
#
# `HTTPS_PROXY`, else `ALL_PROXY`, is the proxy for https. `NO_PROXY` lists the hosts that are reached directly; so is
# this machine. Plain HTTP never uses a proxy, which could read the key. The lower-case names are read first, as by
# curl.


PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
"""In the order in which they are read."""
_MAX_PORT_DIGITS = 5  # of 65535; `int` raises ValueError for more than 4,300 digits
_NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_has_scheme = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://").match
_separator = re.compile(r"[\s,]+")

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network


class HttpProxy(Struct, frozen=True):
    """A proxy that opens tunnels. `authorization` is the value of a header, and never shown."""

    host: str
    port: int
    tls: bool = False
    authorization: str | None = None

    @property
    def url(self) -> str:
        """The address without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"HttpProxy({self.url})"


class _DirectHost(NamedTuple):
    """An entry of `NO_PROXY`: a network, or a domain with its subdomains. `port` None means every port."""

    network: _Network | None
    domain: str
    port: int | None

    def includes(self, host: str, address: _Address | None, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address is not None and address in self.network
        return host == self.domain or host.endswith(f".{self.domain}")


class ProxySettings(Struct, frozen=True):
    """The proxy of the environment, and the hosts that do not use it."""

    proxy: HttpProxy | None = None
    direct_hosts: tuple[_DirectHost, ...] = ()

    def proxy_for(self, host: str, port: int) -> HttpProxy | None:
        """Return the proxy for a host that is reached with https, or None if it is reached directly."""
        if self.proxy is None or is_loopback(host):
            return None
        name, address = host.lower().rstrip("."), _parse_address(host)
        is_direct = any(entry.includes(name, address, port) for entry in self.direct_hosts)
        return None if is_direct else self.proxy


def proxies_from_environment(environment: Mapping[str, str]) -> ProxySettings:
    """Read the proxy and the direct hosts. Raise ConfigError for a URL that cannot be used, such as a SOCKS proxy's."""
    variable = next((name for name in PROXY_VARIABLES if environment.get(name, "").strip()), None)
    no_proxy = next(filter(None, (environment.get(name, "").strip() for name in _NO_PROXY_VARIABLES)), "")
    entries = [entry for entry in _separator.split(no_proxy) if entry]
    if variable is None or "*" in entries:
        return ProxySettings()
    proxy = _parse_proxy(environment[variable].strip(), variable)
    return ProxySettings(proxy, tuple(_parse_direct_host(entry) for entry in entries))


def _parse_proxy(url: str, variable: str) -> HttpProxy:
    """Parse the URL of a proxy, by default with http. Raise ConfigError if it cannot be used.

    No message contains the URL, because it may contain a password.
    """
    hint = f"set {variable}=http://host:port, or https://user:password@host:port"
    try:
        parts = urlsplit(url if _has_scheme(url) else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{variable}: invalid URL", hint=hint) from None
    if parts.scheme.startswith("socks"):
        hint = f"use an HTTP proxy, unset {variable}, or set NO_PROXY=* for direct connections"
        raise ConfigError(f"{variable}: SOCKS proxies are not supported", hint=hint)
    if parts.scheme not in _DEFAULT_PORTS or not host or re.search(r"[\x00-\x20]", host):
        raise ConfigError(f"{variable}: invalid URL of a proxy", hint=hint)
    return HttpProxy(
        host,
        port or _DEFAULT_PORTS[parts.scheme],
        parts.scheme == "https",
        _basic_authorization(parts.username, parts.password),
    )


def _basic_authorization(user: str | None, password: str | None) -> str | None:
    """Return the credentials of a URL as a header value; they are percent-encoded in the URL."""
    if user is None and password is None:
        return None
    credentials = f"{unquote(user or '')}:{unquote(password or '')}"
    return "Basic " + b64encode(credentials.encode()).decode("ascii")


def _parse_direct_host(entry: str) -> _DirectHost:
    """Parse an entry: `example.com`, `.example.com`, `*.example.com`, `10.0.0.0/8`, `[::1]`, with or without a port.

    Raise ConfigError for an invalid port.
    """
    host, port = entry, None
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdecimal() and (":" not in name or name.endswith("]")):
        if len(digits) > _MAX_PORT_DIGITS:
            raise ConfigError(f"NO_PROXY: invalid port in {entry[:60]!r}", hint="use a port from 1 to 65535")
        host, port = name, int(digits)
    host = host.removeprefix("[").removesuffix("]")
    try:
        return _DirectHost(ip_network(host, strict=False), "", port)
    except ValueError:
        return _DirectHost(None, host.lower().removeprefix("*").strip("."), port)


def _parse_address(host: str) -> _Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
