"""Show the address of a store, and the errors of its driver, without secrets."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from ...ir.errors import ConfigError, StoreError

_FORMS = {
    "Redis": "use redis://user:password@host:6379/0, rediss:// with TLS, unix:// for a socket",
    "PostgreSQL": "use postgresql://user:password@host:5432/database",
}
_SECRET_PARAMETERS = frozenset({"password", "passfile", "sslpassword", "sslkey", "ssl_password", "passwd"})


def display_name(url: str) -> str:
    """Return scheme, host and port, or only the scheme if an @ after them may belong to a password.

    >>> display_name("redis://me:secret@db.example:6379/0?password=secret")
    'redis://db.example:6379'
    >>> display_name("redis://me:half/of@it@db.example")
    'redis://…'
    >>> display_name("host=db.example password=secret")
    '…'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "…"  # parameters, which the driver of PostgreSQL accepts instead of a URL
    authority, _, path = rest.partition("/")
    if "@" in path or "?" in authority or "#" in authority:
        return f"{scheme}://…"
    return f"{scheme}://{authority.rpartition('@')[2]}"


def redact(text: str, url: str) -> str:
    """Remove the secrets of the URL from the message of a driver.

    >>> redact('no user "me" with "s3cret"', "postgresql://me:s3cret@host/db")
    'no user "me" with "***"'
    """
    for secret in sorted(_find_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return " ".join(text.split())


def server_error(server: str, url: str, error: Exception) -> StoreError:
    """Map an error of the driver of `server`, such as "Redis"."""
    message = redact(str(error), url) or type(error).__name__
    hint = "check that the server is running and the credentials are valid"
    return StoreError(f"{server}, {display_name(url)}: {message}", hint=hint)


def invalid_address(server: str, setting: str, url: str) -> ConfigError:
    """Make the error for an address that the driver of `server` cannot parse; `setting` is the name of the address."""
    return ConfigError(f"invalid {setting}: {display_name(url)}", hint=_FORMS[server])


def _find_secrets(url: str) -> set[str]:
    """Collect the secrets of a URL, percent-encoded and decoded, because a driver may quote either form."""
    try:
        parts = urlsplit(url)
        found = {parts.password or ""}
        found |= {value for name, value in parse_qsl(parts.query) if name in _SECRET_PARAMETERS}
    except ValueError:
        return set()
    return {form for secret in found if secret for form in (secret, unquote(secret))}
