"""Keys and their permissions. Keys are random, so one round of SHA-256 is enough to store them; lookup is by hash."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe

from msgspec import Struct

from ...asgi.access import RequestRefused
from ...ir.errors import ToolwireError
from ..settings import KeyRow

__all__ = ["ANONYMOUS", "Caller", "ClientKeys", "MetricsAccess", "UnknownKey", "hash_key", "keys_in_request", "new_key"]


_BEARER = "Bearer "
_BEARER_LENGTH = len(_BEARER)
_MAX_LISTED = 20  # patterns of models in an error: enough to see the right name, and a short message
_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


class UnknownKey(ToolwireError):
    """The key is missing or unknown."""

    default_status = 401
    code = "invalid_api_key"


class Caller(Struct, frozen=True):
    """The owner of a key, and its permissions."""

    name: str
    row: KeyRow

    @property
    def has_all_models(self) -> bool:
        return "*" in self.row.models

    def may_use(self, model: str) -> bool:
        return "*" in self.row.models or any(fnmatchcase(model, pattern) for pattern in self.row.models)

    def may_use_any_of(self, pattern: str) -> bool:
        """Check whether the key may allow a model of this pattern, as far as two patterns can be compared."""
        return any(fnmatchcase(allowed, pattern) or fnmatchcase(pattern, allowed) for allowed in self.row.models)

    def check(self, model: str) -> None:
        if "*" not in self.row.models and not self.may_use(model):
            message = f"the key {self.name!r} does not allow the model {model[:200]!r}"
            raise RequestRefused(message, hint=f"use a model of: {', '.join(self.row.models[:_MAX_LISTED])}")


ANONYMOUS = Caller("", KeyRow(""))


class ClientKeys:
    """The keys of the settings, by hash. Where no key is required, every client is the anonymous caller."""

    def __init__(self, rows: Mapping[str, KeyRow], *, is_required: bool = False) -> None:
        self._by_hash = {row.hash: Caller(name, row) for name, row in rows.items()}
        self.is_required = is_required or bool(rows)

    def identify_or_none(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Caller | None:
        """Like `identify`, but return None instead of raising."""
        try:
            return self.identify(headers, query)
        except UnknownKey:
            return None

    def identify(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Caller:
        """Identify the client; UnknownKey if keys are required and none of those given is known."""
        if not self.is_required:
            return ANONYMOUS
        authorization = headers.get("authorization", "")
        if authorization.startswith(_BEARER):  # as most clients write it; the first of `keys_in_request`
            key = authorization[_BEARER_LENGTH:].strip()
            known_caller = self._by_hash.get(hash_key(key)) if key else None
            if known_caller is not None:
                return known_caller
        given_keys = keys_in_request(headers, query)
        for key in given_keys:
            known_caller = self._by_hash.get(hash_key(key))
            if known_caller is not None:
                return known_caller
        message = "unknown key" if given_keys else "no key"
        raise UnknownKey(message, hint="send Authorization: Bearer …, x-api-key, x-goog-api-key, api-key or ?key=")


class MetricsAccess:
    """Access to /metrics: for the owner of its key, or for everyone where neither clients nor metrics need a key.

    A client's key is refused: the metrics have the names and figures of all other clients. The address of a peer is no
    evidence, because a proxy on this machine makes every client local.
    """

    def __init__(self, keys: ClientKeys, metrics_key: str | None) -> None:
        self._keys = keys
        self._hash = None if metrics_key is None else hash_key(metrics_key)

    def check(self, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Raise UnknownKey or RequestRefused if the request may not read the metrics."""
        if self._hash is None:
            self._keys.identify(headers, query)
            if self._keys.is_required:
                hint = "the gateway's operator can set metrics_key_env in [server], a key of its own for /metrics"
                raise RequestRefused("keys of clients do not read /metrics", hint=hint)
        elif not any(compare_digest(hash_key(key), self._hash) for key in keys_in_request(headers, query)):
            raise UnknownKey("/metrics needs its own key", hint="send [server] metrics_key as Authorization: Bearer …")


def keys_in_request(headers: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """Collect the keys in a request, from every place that clients use."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given_keys = [token.strip()] if token and scheme.lower() == "bearer" else []
    for name in _KEY_HEADERS:
        if name in headers:
            given_keys.append(headers[name])
    if "key" in query:
        given_keys.append(query["key"])
    return [key for key in given_keys if key]


def hash_key(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def new_key() -> str:
    return "sk-tw-" + token_urlsafe(32)
