"""The gateway's own credentials: the secret that signs reasoning, the metrics key, and the certificate."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping
from logging import getLogger
from pathlib import Path
from secrets import token_hex

from ...ir.errors import ConfigError
from .settings import MIN_SECRET, ServerRow, resolve_address

# The secret with which a gateway signs reasoning for its clients (`bridge.conversation.reasoning_envelope`).
#
# In this order: `[server] secret` or `secret_env`, the file beside the settings, which is made once, or memory. A
# secret in memory ends with the process, and so does the recognition of reasoning that clients return; their turns
# may still be in the turn store.
#
# The file is written under another name and then linked to its own, because `link` fails if the file exists: two
# processes that start at once use the same secret, and no process reads half of it.


_log = getLogger("toolwire.gateway")
_SECRET_BYTES = 32  # as many as the output of SHA-256, the hash that signs
_MAX_FILE = 4096  # bytes; a secret is one line
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
_READ = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)  # a pipe would block


def make_secret() -> str:
    return token_hex(_SECRET_BYTES)


def configured_secrets(row: ServerRow, environment: Mapping[str, str]) -> list[str]:
    """Return the secrets of the settings: the current secret, then the previous secret.

    Raise ConfigError if a secret is too short, its variable is not set, or the previous secret is alone.
    """
    current_and_previous = [
        resolve_address(row.secret, row.secret_env, "[server] secret", environment),
        resolve_address(row.previous_secret, row.previous_secret_env, "[server] previous_secret", environment),
    ]
    secrets = [secret for secret in current_and_previous if secret is not None]
    if any(len(secret) < MIN_SECRET for secret in secrets):
        raise ConfigError(
            f"[server] a secret must have at least {MIN_SECRET} characters", hint="`openssl rand -hex 32`"
        )
    if current_and_previous[0] is None and secrets:
        raise ConfigError("[server] previous_secret needs a secret", hint="set secret or secret_env, too")
    return secrets


def configured_metrics_key(row: ServerRow, environment: Mapping[str, str]) -> str | None:
    """Return the key for /metrics, or None if the settings have none. Raise ConfigError if it is too short."""
    key = resolve_address(row.metrics_key, row.metrics_key_env, "[server] metrics_key", environment)
    if key is not None and len(key) < MIN_SECRET:
        message = f"[server] metrics_key must have at least {MIN_SECRET} characters"
        raise ConfigError(message, hint="`openssl rand -hex 32`")
    return key


def load_file_secret(settings_file: Path, new_secret: str | None = None) -> str:
    """Return the secret beside a settings file. If there is none, write `new_secret`, by default a random secret.

    If it cannot be written, log that and return it all the same. Raise ConfigError if the file has no secret.
    """
    path = settings_file.with_name(f"{settings_file.name}.secret")
    try:
        return read_secret(path)
    except FileNotFoundError:
        pass
    secret = make_secret() if new_secret is None else new_secret
    try:
        _write_secret(path, secret)
    except FileExistsError:
        return read_secret(path)  # another process was faster
    except OSError as error:
        hint = "reasoning that clients return is not recognised after a restart; set [server] secret"
        _log.warning("cannot write %s (%s), so the secret is in memory: %s", path, error.strerror, hint)
    return secret


def read_secret(path: Path) -> str:
    """Read a secret file, and log a warning if other users can read it, too.

    Raise FileNotFoundError if it does not exist, and ConfigError if it cannot be read or contains no secret.
    """
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MAX_FILE).decode("ascii", "replace").strip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="a symbolic link is not followed") from None
    if not stat.S_ISREG(status.st_mode) or len(text) < MIN_SECRET or not text.isascii():
        message = f"{path} has no secret of at least {MIN_SECRET} characters"
        raise ConfigError(message, hint="delete the file; the next start makes it anew")
    if os.name == "posix" and status.st_mode & 0o077:
        _log.warning("%s can be read by other users; run chmod 600 %s", path, path)
    return text


def _write_secret(path: Path, secret: str) -> None:
    """Create the file with its whole content, for its owner only. Raise FileExistsError if it exists."""
    temporary = path.with_name(f"{path.name}.{token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink()


# The certificate of the gateway, for clients that connect over TLS.


def check_certificate(row: ServerRow) -> None:
    """Raise ConfigError if the certificate and its key cannot be read, or do not belong together."""
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


def make_tls_context(row: ServerRow) -> ssl.SSLContext | None:
    """Return the settings of TLS for clients, or None without a certificate. Raise ConfigError if it cannot be used."""
    if row.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, row)
    return context


def load_certificate(context: ssl.SSLContext | None, row: ServerRow) -> None:
    """Use the current content of the files for new connections; on ConfigError, the old certificate stays in use."""
    if context is not None and row.certificate is not None:
        check_certificate(row)
        context.load_cert_chain(row.certificate, row.private_key)


_HINT = "server.certificate is a PEM file with the chain, server.private_key one with its key, without a password"
