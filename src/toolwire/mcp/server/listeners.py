"""The clients that are notified of changes, and of which changes.

server.listeners.changed("tools")            the list of tools has changed
server.listeners.updated("notes://today")    the content of that resource has changed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..protocol.rpc import Notification

__all__ = ["Listener", "Listeners"]


class Listener:
    """`lists` and `uris` select the notifications. A conversation of the handshake era is notified of all lists."""

    def __init__(
        self, emit: Callable[[Notification], None], lists: frozenset[str], uris: Callable[[], frozenset[str] | set[str]]
    ) -> None:
        self.emit = emit
        self.lists = lists
        self.uris = uris


class Listeners:
    """The current listeners of a server."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def add(self, listener: Listener) -> None:
        self._listeners.add(listener)

    def remove(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def __len__(self) -> int:
        return len(self._listeners)

    def changed(self, list_name: Literal["tools", "prompts", "resources"]) -> None:
        for listener in list(self._listeners):
            if list_name in listener.lists:
                listener.emit(Notification(f"notifications/{list_name}/list_changed"))

    def updated(self, uri: str) -> None:
        for listener in list(self._listeners):
            if uri in listener.uris():
                listener.emit(Notification("notifications/resources/updated", {"uri": uri}))
