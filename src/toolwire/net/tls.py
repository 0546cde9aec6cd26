"""The certificates of HTTP clients: those that are trusted, and the client's own.

Trusted are the certificates of the system, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`, as with OpenSSL, and
additional `roots`. A client certificate is shown to servers, never to a proxy.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ..ir.errors import ConfigError

__all__ = ["ClientTls"]


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
        """Check the files now: ConfigError names the one that cannot be used. The system's own are loaded on use."""
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
        """Use the current content of the client certificate for new connections, after it was renewed."""
        if self._certificate is not None and self._server_context is not None:
            scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a failure must not change half of the context in use
            for context in (scratch, self._server_context):
                _load_certificate(context, self._certificate, self._key)


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
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
    """Trust the given file and folder; the one that is not given stays the default of OpenSSL."""
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
