"""The certificate of the gateway, for clients that connect over TLS.

Separate because it is needed when the server starts, and again at every reload, after the certificate was renewed.
"""

from __future__ import annotations

import ssl

from ..ir.errors import ConfigError
from .settings import ServerRow

__all__ = ["check_certificate", "load_certificate"]


def check_certificate(row: ServerRow) -> None:
    """Raise ConfigError if the files cannot be read, or do not belong together."""
    if row.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(row.certificate, row.private_key)
    except ssl.SSLError as error:
        reason = error.reason or "not a PEM file"
        raise ConfigError(f"cannot use the certificate {row.certificate}: {reason}", hint=_HINT) from None
    except OSError as error:
        files = " and ".join(file for file in (row.certificate, row.private_key) if file is not None)
        raise ConfigError(f"cannot read {files}: {error.strerror}", hint=_HINT) from None


def load_certificate(context: ssl.SSLContext | None, row: ServerRow) -> None:
    """Use the current content of the files for new connections; on ConfigError, the old certificate stays in use."""
    if context is not None and row.certificate is not None:
        check_certificate(row)
        context.load_cert_chain(row.certificate, row.private_key)


_HINT = "server.certificate is a PEM file with the chain, server.private_key one with its key, without a password"
