"""Synchronous access to the HTTP exchange of a server, for steps that need not wait.

ASGI needs a coroutine and a dictionary for every message. Most requests have arrived when the application starts, and
most answers fit into the socket's buffer. A server passes the methods of its exchange as `receive` and `send`, so an
application that is called without middleware finds the exchange there.
"""

from __future__ import annotations

from collections.abc import Callable

from .types import Receive, Send

__all__ = ["DirectExchange", "find_direct_exchange"]


class DirectExchange:
    """The server's side of an exchange. A method that would have to wait does nothing, and reports that."""

    on_disconnect: Callable[[], object] | None = None  # called at a disconnect before the answer is complete

    def take_whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived and none of it was received yet."""
        raise NotImplementedError

    def try_respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a whole answer with its content-length. Return False if it has to be sent as messages."""
        raise NotImplementedError

    def try_start(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Write the head of a stream. Return False if it has to be sent as a message."""
        raise NotImplementedError

    def try_write(self, data: bytes) -> bool:
        """Write a piece of a stream that has begun. Return False if it has to be sent as a message."""
        raise NotImplementedError

    def try_end(self) -> bool:
        """Write the end of a stream. Return False if it has to be sent as a message."""
        raise NotImplementedError

    def watch(self, on_disconnect: Callable[[], object]) -> None:
        """Call a function when the client disconnects before the answer is complete, also if it has done so already."""
        raise NotImplementedError


def find_direct_exchange(receive: Receive, send: Send) -> DirectExchange | None:
    """Return the exchange of which these are the methods; None if middleware or another server is in between."""
    exchange = getattr(send, "__self__", None)
    if isinstance(exchange, DirectExchange) and getattr(receive, "__self__", None) is exchange:
        return exchange
    return None
