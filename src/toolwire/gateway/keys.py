"""Who may ask for what. Keys are random, so one round of SHA-256 is enough to keep them; the hash is what is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from secrets import token_urlsafe

from msgspec import Struct

from ..ir.errors import ToolwireError
from .faults import Refused
from .settings import KeyRow

__all__ = ["ANYBODY", "Caller", "Keys", "Unknown", "digest", "given_keys", "new_key"]


class Unknown(ToolwireError):
    """No key, or one that nobody has."""

    default_status = 401


class Caller(Struct, frozen=True):
    """Whose key it is, and what it is good for."""

    name: str
    row: KeyRow

    def may_use(self, model: str) -> bool:
        return "*" in self.row.models or any(fnmatchcase(model, pattern) for pattern in self.row.models)

    def may_use_some(self, pattern: str) -> bool:
        """Whether a model of this pattern can be among its own, as far as two patterns tell."""
        return any(fnmatchcase(own, pattern) or fnmatchcase(pattern, own) for own in self.row.models)

    def check(self, model: str) -> None:
        if not self.may_use(model):
            raise Refused(f"the key {self.name!r} is not for the model {model[:200]!r}")


ANYBODY = Caller("", KeyRow(""))


class Keys:
    def __init__(self, rows: Mapping[str, KeyRow]) -> None:
        self._by_hash = {row.hash: Caller(name, row) for name, row in rows.items()}

    def __len__(self) -> int:
        return len(self._by_hash)

    def known(self, headers: Mapping[str, str]) -> Caller | None:
        """The same for who only wants to know."""
        try:
            return self.caller(headers, {})
        except Unknown:
            return None

    def caller(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Caller:
        """Whoever the request is from; Unknown where keys are asked for and none of those given is known."""
        if not self._by_hash:
            return ANYBODY
        given = given_keys(headers, query)
        for key in given:
            found = self._by_hash.get(digest(key))
            if found is not None:
                return found
        words = "unknown key" if given else "no key"
        raise Unknown(words, hint="Authorization: Bearer …, x-api-key, x-goog-api-key, api-key or ?key=")


def given_keys(headers: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """Every key in a request, wherever its client puts it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given = [token.strip() if scheme.lower() == "bearer" else ""]
    given += [headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "api-key")]
    given.append(query.get("key", ""))
    return [key for key in given if key]


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def new_key() -> str:
    return "sk-tw-" + token_urlsafe(32)
