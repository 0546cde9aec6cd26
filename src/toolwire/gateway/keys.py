"""Keys and their permissions. Keys are random, so one round of SHA-256 is enough to store them; lookup is by hash."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from secrets import token_urlsafe

from msgspec import Struct

from ..ir.errors import ToolwireError
from .faults import RequestRefused
from .settings import KeyRow

__all__ = ["ANONYMOUS", "Caller", "ClientKeys", "UnknownKey", "digest", "keys_in_request", "new_key"]


class UnknownKey(ToolwireError):
    """The key is missing or unknown."""

    default_status = 401


class Caller(Struct, frozen=True):
    """The owner of a key, and its permissions."""

    name: str
    row: KeyRow

    def may_use(self, model: str) -> bool:
        return "*" in self.row.models or any(fnmatchcase(model, pattern) for pattern in self.row.models)

    def may_use_some(self, pattern: str) -> bool:
        """Check whether the key may allow a model of this pattern, as far as two patterns can be compared."""
        return any(fnmatchcase(own, pattern) or fnmatchcase(pattern, own) for own in self.row.models)

    def check(self, model: str) -> None:
        if not self.may_use(model):
            raise RequestRefused(f"the key {self.name!r} does not allow the model {model[:200]!r}")


ANONYMOUS = Caller("", KeyRow(""))


class ClientKeys:
    def __init__(self, rows: Mapping[str, KeyRow]) -> None:
        self._by_hash = {row.hash: Caller(name, row) for name, row in rows.items()}

    def __len__(self) -> int:
        return len(self._by_hash)

    def caller_or_none(self, headers: Mapping[str, str]) -> Caller | None:
        """Like `caller`, but return None instead of raising."""
        try:
            return self.caller(headers, {})
        except UnknownKey:
            return None

    def caller(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Caller:
        """Identify the client; Unknown if keys are required and none of those given is known."""
        if not self._by_hash:
            return ANONYMOUS
        given = keys_in_request(headers, query)
        for key in given:
            found = self._by_hash.get(digest(key))
            if found is not None:
                return found
        words = "unknown key" if given else "no key"
        raise UnknownKey(words, hint="send Authorization: Bearer …, x-api-key, x-goog-api-key, api-key or ?key=")


def keys_in_request(headers: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """Collect the keys in a request, from every place that clients use."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given = [token.strip() if scheme.lower() == "bearer" else ""]
    given += [headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "api-key")]
    given.append(query.get("key", ""))
    return [key for key in given if key]


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def new_key() -> str:
    return "sk-tw-" + token_urlsafe(32)
