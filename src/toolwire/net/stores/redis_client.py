"""The client of Redis or Valkey and the names of its keys, shared by the records and the runs of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..._extras import install_command
from ...ir.errors import MissingExtra, StoreError
from ...run.values.records import old_form
from .address import display_name, invalid_address, server_error

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    raise MissingExtra("the package redis is not installed", hint=install_command("redis")) from None

PREFIX = b"{toolwire:1}:"
OLD_FORM = "toolwire-old-form"  # in the error of a script that finds a run without a log
_CONNECT_SECONDS = 2.0  # to a server in the same network; the call waits meanwhile
_REPLY_SECONDS = 5.0  # every script takes milliseconds; a page of rows, 8 MiB, passes a slow network in this time
_PAGE = 100  # scripts per round trip; more of them would delay other clients, because Redis has one thread
SWEEP_BATCH = 1_000  # expired members that a sweep reads at once: ten pages


class RedisClient:
    """A client and its connection pool. An operation that fails on a lost connection is retried once."""

    def __init__(self, url: str) -> None:
        """Prepare the client without connecting. Raise ConfigError if the address is invalid."""
        self._url = url
        try:
            self._client: Any = redis.Redis.from_url(
                url,
                socket_connect_timeout=_CONNECT_SECONDS,
                socket_timeout=_REPLY_SECONDS,
                retry=Retry(NoBackoff(), 1),
            )
        except (ValueError, redis.RedisError):
            raise invalid_address("Redis", "store address", url) from None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def script(self, text: str) -> Any:
        return self._client.register_script(text)

    def run(self, script: Any, keys: list[bytes], arguments: list[Any]) -> Any:
        with self.use():
            return script(keys=keys, args=arguments)

    def run_for_each(self, script: Any, inputs: list[tuple[list[bytes], list[Any]]]) -> Iterator[Any]:
        """Run the script for every pair of keys and arguments, with one round trip per page."""
        for start in range(0, len(inputs), _PAGE):
            with self.use() as client, client.pipeline(transaction=False) as pipeline:
                for keys, arguments in inputs[start : start + _PAGE]:
                    script(keys=keys, args=arguments, client=pipeline)
                replies = pipeline.execute()
            yield from replies

    def expired_members(self, index: bytes, count: int) -> list[bytes]:
        """Return up to `count` members of a sorted set whose score is a time in the past, by the server's clock."""
        with self.use() as client:
            seconds, micros = client.time()
            members: list[bytes] = client.zrangebyscore(index, "-inf", seconds + micros / 1e6, start=0, num=count)
            return members

    @contextmanager
    def use(self) -> Iterator[Any]:
        """Return the client inside the block. Raise its errors as StoreError, without secrets, also if it is closed."""
        if self._closed:
            raise StoreError("the store is closed", hint="open a new store")
        try:
            yield self._client
        except redis.RedisError as error:
            if OLD_FORM in str(error):
                raise old_form(f"Redis, {display_name(self._url)}", "the store") from None
            raise server_error("Redis", self._url, error) from None
