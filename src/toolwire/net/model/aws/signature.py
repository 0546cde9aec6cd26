"""Signature Version 4 of AWS. No I/O: a request, credentials and a time give the headers to add.

    scope = SigningScope("us-east-1", "bedrock")
    sign(SignedRequest("POST", url, {"content-type": "application/json"}, body), credentials, scope, now)

The steps are in https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html: a canonical
request, a text to sign with the time and the scope, a key derived from the date and the scope, and the signature. The
host is always signed; the other headers are the caller's choice. botocore signs all except those that proxies change.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from typing import NamedTuple
from urllib.parse import quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class AwsCredentials:
    """An access key. The secret parts are in no representation. `expires_at` is in Unix seconds, or None."""

    __slots__ = ("access_key", "expires_at", "secret_key", "session_token", "source")

    def __init__(
        self,
        access_key: str,
        secret_key: str,
        session_token: str | None = None,
        expires_at: float | None = None,
        source: str = "",
    ) -> None:
        self.access_key = access_key
        self.secret_key = secret_key
        self.session_token = session_token
        self.expires_at = expires_at
        self.source = source  # for messages, such as "the profile work"

    def __repr__(self) -> str:
        return f"<AWS credentials from {self.source}>"


class SigningScope(NamedTuple):
    """The region and the service for which a signature is valid."""

    region: str
    service: str


class SignedRequest(NamedTuple):
    """The parts of a request that the signature covers. Names of `headers` may have any case."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


def sign(request: SignedRequest, credentials: AwsCredentials, scope: SigningScope, now: datetime) -> dict[str, str]:
    """Return the headers to add to the request: the signature, its time, and the token of temporary credentials."""
    time = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": time}
    if credentials.session_token is not None:
        added["x-amz-security-token"] = credentials.session_token
    parts = urlsplit(request.url)
    headers = {name.lower(): " ".join(value.split()) for name, value in request.headers.items()}
    headers = {"host": _host_of(request.url), **headers, **added}
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        [
            request.method.upper(),
            quote(_normalise_path(parts.path), safe="/~"),
            "&".join(
                "=".join(pair) for pair in sorted(_split_pair(pair) for pair in parts.query.split("&") if parts.query)
            ),
            *(f"{name}:{headers[name]}" for name in sorted(headers)),
            "",
            names,
            sha256(request.body).hexdigest(),
        ]
    )
    scope_text = "/".join((time[:8], scope.region, scope.service, "aws4_request"))
    to_sign = "\n".join([_ALGORITHM, time, scope_text, sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope_text.split("/"):
        key = digest(key, part.encode(), "sha256")
    signature = digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{credentials.access_key}/{scope_text}"
    added["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return added


def _split_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _host_of(url: str) -> str:
    """Return the Host header: in lower case, without a default port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def _normalise_path(path: str) -> str:
    """Remove dot segments (RFC 3986, 5.2.4) and empty segments, as every service except S3 requires."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    return "/" + "/".join(kept) + ("/" if kept and path.endswith("/") else "")
