"""Client keys: permissions, and limits on requests and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b, sha256
from hmac import compare_digest
from math import ceil
from secrets import token_urlsafe
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from ..asgi.access import RequestRefused
from ..ir.errors import ToolwireError
from .config.settings import KeyRow
from .faults import RateLimited

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
    """The keys of the settings, by hash. Where no key is required, every client is the anonymous caller.

    The time of a lookup depends on hashes of the given key. A client cannot choose a key whose hash is close to a stored
    hash, so the time reveals nothing about a key.
    """

    def __init__(self, rows: Mapping[str, KeyRow], *, is_required: bool = False) -> None:
        self._by_hash = {row.hash: Caller(name, row) for name, row in rows.items()}
        self._by_digest: dict[bytes, Caller] = {}  # of the keys that were used, see `_find`
        self.is_required = is_required or bool(rows)

    def identify_or_none(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Caller | None:
        """Like `identify`, but return None instead of raising."""
        try:
            return self.identify(headers, query)
        except UnknownKey:
            return None

    def identify(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Caller:
        """Return the owner of the client's key. Raise UnknownKey if keys are required and no given key is known."""
        if not self.is_required:
            return ANONYMOUS
        authorization = headers.get("authorization", "")
        if authorization.startswith(_BEARER):  # as most clients write it; the first of `keys_in_request`
            key = authorization[_BEARER_LENGTH:].strip()
            known_caller = self._find(key) if key else None
            if known_caller is not None:
                return known_caller
        given_keys = keys_in_request(headers, query)
        for key in given_keys:
            known_caller = self._find(key)
            if known_caller is not None:
                return known_caller
        message = "unknown key" if given_keys else "no key"
        raise UnknownKey(message, hint="send Authorization: Bearer …, x-api-key, x-goog-api-key, api-key or ?key=")

    def _find(self, key: str) -> Caller | None:
        """Return the owner of a key. A key that was used before is found by its BLAKE2 digest.

        hashlib's SHA-256 is OpenSSL's, whose code a busy process has to load into the processor's caches again for each
        request: 8 to 13 µs instead of 1. BLAKE2 is CPython's own: 1 to 2 µs.
        """
        digest = blake2b(key.encode()).digest()
        caller = self._by_digest.get(digest)
        if caller is None and (caller := self._by_hash.get(hash_key(key))) is not None:
            self._by_digest[digest] = caller
        return caller


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
            hint = "the gateway's operator can set metrics_key_env in [server], a key of its own for /metrics"
            try:
                self._keys.identify(headers, query)
            except UnknownKey as error:
                raise UnknownKey("/metrics needs a key of its own, and none is set", hint=hint) from error
            if self._keys.is_required:
                raise RequestRefused("keys of clients do not read /metrics", hint=hint)
        elif not any(compare_digest(hash_key(key), self._hash) for key in keys_in_request(headers, query)):
            raise UnknownKey(
                "/metrics needs its own key",
                hint="send the key of metrics_key_env in [server] as Authorization: Bearer …",
            )


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


# Limits per key. The error for an exceeded limit contains the time until there is room again.
#
# A limit holds for any minute (or day), not for calendar ones: time is divided into slices, sixty to a minute or a
# day, and the current slice and the sixty before it count. So no client gets twice the limit around the turn of a
# minute, a key costs at most sixty-one numbers, and room returns at most one slice (a second; 24 minutes of a day)
# late.
#
# A request counts once it is admitted; a refused one does not count. The cost of an answer is known only afterwards,
# so the requests in flight when a token budget is used up may still exceed it.


LimitName: TypeAlias = Literal["requests", "tokens", "day"]
SLICES = 60  # of a window: a second of a minute, see above
MAX_AHEAD = 1
"""The number of slices that a stored amount may be ahead of the clock, because clocks are adjusted by a moment.

Amounts of later slices were counted while the clock was wrong. They count as of now: otherwise a clock that was a year
ahead for one request would lock its key out for a year.
"""
MAX_LIFETIME = 2 * 86_400.0
"""Seconds, more than the longest window; stored limits that expire later were written while the clock was ahead."""
_LIMIT_LABELS = {"requests": "requests per minute", "tokens": "tokens per minute", "day": "tokens per day"}


class Limiter(Protocol):
    """Counts the requests and tokens of each key."""

    async def admit(self, caller: Caller) -> None:
        """Count a request. Raise RateLimited if there is no room for it."""
        ...

    async def spend(self, caller: Caller, tokens: int) -> None:
        """Count the cost of an answer. It does not raise."""
        ...


class LocalLimiter(Limiter, Protocol):
    """A limiter of this process or this machine."""

    async def refund(self, caller: Caller) -> None:
        """Undo the count of a request that was admitted here, but refused elsewhere."""
        ...


class Limit(Struct, frozen=True):
    """At most `maximum` of something in `seconds`."""

    name: LimitName
    maximum: int
    seconds: float

    @property
    def slice(self) -> float:
        return self.seconds / SLICES

    @property
    def counts_requests(self) -> bool:
        return self.name == "requests"


def limits_of(caller: Caller) -> tuple[Limit, ...]:
    """List the limits of a key."""
    row = caller.row
    return _make_limits(row.requests_per_minute, row.tokens_per_minute, row.tokens_per_day)


@lru_cache(1024)
def _make_limits(requests: int | None, tokens: int | None, day: int | None) -> tuple[Limit, ...]:
    """List the configured limits; cached, because this is needed for every request."""
    limits: tuple[tuple[LimitName, int | None, float], ...] = (
        ("requests", requests, 60.0),
        ("tokens", tokens, 60.0),
        ("day", day, 86_400.0),
    )
    return tuple(Limit(name, maximum, seconds) for name, maximum, seconds in limits if maximum is not None)


class _KeyWindows:
    """The windows of one key, prepared for the limits of its row."""

    __slots__ = ("by_name", "entries", "requests", "row", "token_windows")

    def __init__(self, row: KeyRow, by_name: dict[str, LimitWindow], limits: Sequence[Limit]) -> None:
        """Prepare the windows for `row`. Those in `by_name` keep their amounts; missing ones are added to it."""
        self.row = row
        self.by_name = by_name
        self.entries = [(limit, by_name.setdefault(limit.name, LimitWindow(limit.slice))) for limit in limits]
        self.requests = next((window for limit, window in self.entries if limit.counts_requests), None)
        self.token_windows = [window for limit, window in self.entries if not limit.counts_requests]

    def is_expired(self, now: float) -> bool:
        return all(window.is_expired(now) for window in self.by_name.values())


class InProcessLimiter:
    """Limits of one process. Check and increment share no `await`, so no lock is needed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, _KeyWindows] = {}  # by key name

    async def admit(self, caller: Caller) -> None:
        """Count a request. Raise RateLimited if a limit of its key is reached."""
        now, windows = self._clock(), self._windows.get(caller.name)
        if windows is None or windows.row is not caller.row:
            windows = self._prepare_windows(caller, now)
        for limit, window in windows.entries:
            if window.total >= limit.maximum and (delay := window.wait_seconds(limit.maximum, now)) > 0:
                raise rate_limit_error(caller, limit, delay)
        if windows.requests is not None:
            windows.requests.add(1, now)

    async def spend(self, caller: Caller, tokens: int) -> None:
        now, windows = self._clock(), self._windows.get(caller.name)
        if windows is None or windows.row is not caller.row:
            windows = self._prepare_windows(caller, now)
        for window in windows.token_windows:
            window.add(tokens, now)

    async def refund(self, caller: Caller) -> None:
        requests = self._prepare_windows(caller, self._clock()).requests
        if requests is not None:
            requests.refund()

    def __len__(self) -> int:
        return len(self._windows)

    def _prepare_windows(self, caller: Caller, now: float) -> _KeyWindows:
        """Store and return the windows of a key for its row, at its first request and after the row has changed.

        A new key also drops the expired windows of other keys.
        """
        known = self._windows.get(caller.name)
        if known is None:
            # keys change with the settings; the windows of removed keys are dropped
            self._windows = {name: windows for name, windows in self._windows.items() if not windows.is_expired(now)}
        prepared = _KeyWindows(caller.row, {} if known is None else known.by_name, limits_of(caller))
        self._windows[caller.name] = prepared
        return prepared


def admit_request(entries: Sequence[tuple[Limit, LimitWindow]], now: float) -> tuple[Limit, float] | None:
    """Check all limits, then count the request, so that a refused request counts nowhere.

    Return the exceeded limit and the seconds until there is room again, or None if the request is admitted.
    """
    for limit, window in entries:
        delay = window.wait_seconds(limit.maximum, now)
        if delay > 0:
            return limit, delay
    for limit, window in entries:
        if limit.counts_requests:
            window.add(1, now)
    return None


class LimitWindow:
    """Amounts by slice number, the oldest first. `seconds` is the length of a slice.

    `amounts` are stored amounts. Those of slices after the time `now` count as of now (`MAX_AHEAD`).
    `total` is at least the sum of the amounts that count; `wait_seconds` drops those that have expired.
    """

    __slots__ = ("_slice", "amounts", "total")

    def __init__(self, seconds: float, amounts: Mapping[int, int] | None = None, now: float = 0.0) -> None:
        self._slice = seconds
        self.amounts: dict[int, int] = {}
        newest = int(now // seconds) + MAX_AHEAD
        for slice_number, amount in sorted((amounts or {}).items()):
            number = min(slice_number, newest)
            self.amounts[number] = self.amounts.get(number, 0) + amount
        self.total = sum(self.amounts.values())

    def add(self, amount: int, now: float) -> None:
        slice_number = int(now // self._slice)
        if slice_number in self.amounts:
            self.amounts[slice_number] += amount
        else:
            self._drop_expired(now)
            self.amounts[slice_number] = amount
        self.total += amount

    def refund(self) -> None:
        """Undo the newest count."""
        newest = next((number for number, amount in reversed(self.amounts.items()) if amount), None)
        if newest is not None:
            self.amounts[newest] -= 1
            self.total -= 1

    def wait_seconds(self, maximum: int, now: float) -> float:
        """Drop expired amounts, and return the seconds until the total is below `maximum`, or 0 if it is."""
        self._drop_expired(now)
        remaining, free_at = self.total, now
        if remaining < maximum:
            return 0.0
        for slice_number, amount in self.amounts.items():
            if remaining < maximum:
                break
            remaining -= amount
            free_at = (slice_number + SLICES + 1) * self._slice
        return free_at - now

    def is_expired(self, now: float) -> bool:
        self._drop_expired(now)
        return not self.amounts

    def _drop_expired(self, now: float) -> None:
        oldest = int(now // self._slice) - SLICES
        while self.amounts and (first := next(iter(self.amounts))) < oldest:
            self.total -= self.amounts.pop(first)


def rate_limit_error(caller: Caller, limit: Limit, delay: float) -> RateLimited:
    """Build the error for an exceeded limit, in whole seconds rounded up: all clients read them, and none is early."""
    message = f"the key {caller.name!r} has used its {limit.maximum} {_LIMIT_LABELS[limit.name]}"
    return RateLimited(message, retry_after=ceil(delay))
