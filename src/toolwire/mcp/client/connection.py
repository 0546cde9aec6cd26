"""The connection to one server: opened, greeted, lost, reopened, closed; and the requests sent over it, once or twice.

A broken connection is reopened automatically, a few times. In-flight requests are sent again only if that does no
harm. While a connection is being opened, only the task that opens it may send; other tasks wait until the greeting is
complete.

A session is shared: a failed call does not end it while it still answers, nor while other calls wait for its answers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeAlias

from ...ir.errors import ToolwireError
from ...ir.pointer import Object
from ...net.http.client import HttpTransport
from ...wire.mcp.versions import LATEST_HANDSHAKE
from ..protocol.headers import HeaderArguments
from ..protocol.rpc import METHOD_NOT_FOUND, Failure, Notification, Result, RpcMessage, RpcRequest
from .config import ServerSpec
from .failures import AmbiguousRetry, ServerGone, ServerRefused
from .http import Authorizer, HttpLink, Sender
from .link import Link, TrafficHandler
from .negotiation import ClientIdentity, NegotiatedProtocol, negotiate, read_late_discovery
from .stdio import StdioLink

# A server that neither answers `server/discover` nor rejects it gets `initialize` after a while. If the answer to the
# first request still arrives (the server was only slow to start), it takes precedence, because such a server refuses
# the second request.

# Seconds; a package runner may have to download the server first, and the answer of a slow start is still used.
_PROBE_TIMEOUT = 10.0


async def negotiate_over_link(
    link: Link, ids: Iterator[int], identity: ClientIdentity, protocol: str
) -> NegotiatedProtocol:
    """Negotiate with the server, and return the version and its description; negotiation errors are raised.

    The sans-IO steps of `negotiate` are performed over the link. A probe that timed out may still be answered later.
    """
    late_task: asyncio.Task[Result | Failure] | None = None
    tasks: list[asyncio.Task[Result | Failure]] = []
    steps = negotiate(ids, identity, protocol)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Notification):
                await link.send(step)
                step = steps.send(None)
                continue
            task = asyncio.create_task(_send_request(link, step))
            tasks.append(task)
            try:
                answer = await _first_answer(task, late_task, step)
            except TimeoutError as error:
                late_task = task
                step = steps.throw(error)
            except ToolwireError as error:
                step = steps.throw(error)
            else:
                if isinstance(answer, NegotiatedProtocol):
                    return answer
                step = steps.send(answer)
    except StopIteration as done:
        greeting: NegotiatedProtocol = done.value
        return greeting
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_request(link: Link, request: RpcRequest) -> Result | Failure:
    return await link.send_request(request)


async def _first_answer(
    task: asyncio.Task[Result | Failure], late_task: asyncio.Task[Result | Failure] | None, step: RpcRequest
) -> Result | Failure | NegotiatedProtocol:
    """Return the answer to `step`, TimeoutError for a first probe, or the greeting in a late answer to that probe."""
    if late_task is None:
        limit = _PROBE_TIMEOUT if step.method == "server/discover" else None
        done, _ = await asyncio.wait({task}, timeout=limit)
        if not done:
            raise TimeoutError
        return task.result()
    await asyncio.wait({task, late_task}, return_when=asyncio.FIRST_COMPLETED)
    if not late_task.done() and task.exception() is None and isinstance(task.result(), Failure):
        # refused, perhaps because the first request is still being served
        await asyncio.wait({late_task}, timeout=_PROBE_TIMEOUT)
    if late_task.done() and not late_task.cancelled() and late_task.exception() is None:
        greeting = read_late_discovery(late_task.result())
        if greeting is not None:
            return greeting
    return await task


_log = logging.getLogger("toolwire.mcp")
_PAUSE = 0.25  # seconds before the first reconnection, doubled each time
_PING_TIMEOUT = 2.0  # seconds; a ping needs no work, and a caller waits for it before the call is sent again
Build: TypeAlias = Callable[[int], RpcRequest]
"""Builds a request with this id."""


class ServerConnection:
    """The connection to a server, which may use several links one after the other.

    Two tasks may notice a broken link: a request, and the link itself. Both call `_reopen` with the link that they saw,
    and the lock lets the first of them open a new one; the second finds another link and returns. While a link is opened,
    only `_opener` may send, so that no call overtakes the negotiation. Answers to other calls may still arrive over the
    old link, so it is closed after them.

    `on_message` is called with messages that are not answers, and the link that they came over. `on_negotiated` is
    the last step of opening: it may send requests, and its failure is a failure to connect. `on_change` is called when
    the availability of the server has changed, except by `close`, and `traffic` with every message.
    `unavailable_reason` is the reason why the server cannot be used, or None.
    """

    def __init__(
        self,
        spec: ServerSpec,
        identity: ClientIdentity,
        on_message: Callable[[RpcMessage, Link], None],
        *,
        on_negotiated: Callable[[], Awaitable[None]],
        on_change: Callable[[], None],
        login: Authorizer | None = None,
        sender: Sender | None = None,
        traffic: TrafficHandler | None = None,
    ) -> None:
        self.link: Link | None = None
        self.greeting: NegotiatedProtocol | None = None
        self.unavailable_reason: str | None = "it is not connected"
        self.tasks: set[asyncio.Task[None]] = set()  # cancelled by `close`
        self._spec = spec
        self._identity = identity
        self._on_message = on_message
        self._on_negotiated = on_negotiated
        self._on_change = on_change
        self._login = login
        self._sender = sender
        self._traffic = traffic
        self._own_sender: HttpTransport | None = None  # closed by `close`; a given sender is not
        self._ids = itertools.count(1)
        self._open_lock = asyncio.Lock()
        self._opener: asyncio.Task[Any] | None = None  # the task that is opening a link
        self._recovering = False  # a task is reconnecting
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        await self._reopen(None)

    async def close(self) -> None:
        """Close it, without `on_change`: its owner knows. It is not reopened before `open`, not even for pending requests."""
        self._closed = True
        self.unavailable_reason = "it is closed"
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._opener is None:
            await self._drop_link()
        elif self.link is not None:
            await self.link.close()  # the task that opens the connection fails then, and drops the link
        if self._own_sender is not None:
            await self._own_sender.aclose()
            self._own_sender = self._sender = None

    async def restore(self) -> None:
        """Connect again to a server that was given up."""
        await self._reopen(self.link, force=True)

    def withdraw(self, reason: str) -> None:
        """Mark the server as unusable, until `restore`."""
        self.unavailable_reason = reason
        self._on_change()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it concurrently; closing the connection cancels it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # open

    async def _reopen(self, broken: Link | None, *, force: bool = False) -> None:
        """Open a new connection, unless another task has opened one meanwhile, or the session survived the failure."""
        async with self._open_lock:
            self._check_open()
            if self.link is not broken:
                return
            if force or broken is None or not await self._is_session_alive(broken):
                await self._replace()
            self.unavailable_reason = None
        self._on_change()

    async def _is_session_alive(self, link: Link) -> bool:
        """Return True if the server still answers in the session and is not closed; the stateless era has no sessions."""
        if self.greeting is None or self.greeting.is_stateless:
            return False
        try:
            async with asyncio.timeout(min(_PING_TIMEOUT, self._spec.timeout)):
                answer = await link.send_request(RpcRequest(next(self._ids), "ping", {}))
        except (ToolwireError, OSError):
            return False
        return not self._closed and (isinstance(answer, Result) or answer.code == METHOD_NOT_FOUND)

    async def _replace(self) -> None:
        """Open a new link in place of the old one; on failure, store the reason, drop the link, and raise the error.

        `_opener` is the only task that may send until this is done.
        """
        self._opener = asyncio.current_task()
        try:
            await self._close_after_pending()
            await self._open()
        except BaseException as error:
            if not self._closed:
                self.unavailable_reason = str(error) or type(error).__name__
            await self._drop_link()
            raise
        finally:
            self._opener = None

    def _check_open(self) -> None:
        if self._closed:
            raise ServerGone(f"{self._spec.name} is not connected: it is closed", sent=False)

    async def _open(self) -> None:
        """Negotiate, start listening if messages by the server are possible, and run `on_negotiated`."""
        link, self.greeting = await self._negotiate()
        listens = bool(self._identity.capabilities) or any(
            map(self.greeting.announces_changes, ("tools", "resources", "prompts"))
        )
        await link.set_protocol(self.greeting, listen=listens)
        await self._on_negotiated()
        self._check_open()

    async def _negotiate(self) -> tuple[Link, NegotiatedProtocol]:
        """Start a link and agree on a version; ServerGone if all attempts together exceed `connect_timeout`."""
        try:
            async with asyncio.timeout(self._spec.connect_timeout):
                link = await self._start_link()
                try:
                    return link, await negotiate_over_link(link, self._ids, self._identity, self._spec.protocol)
                except ServerGone:
                    if self._spec.protocol != "auto" or self._spec.url is not None:
                        raise
                # some servers exit on an unknown request: start them again and use the older handshake
                await link.close()
                link = await self._start_link()
                return link, await negotiate_over_link(link, self._ids, self._identity, LATEST_HANDSHAKE)
        except TimeoutError:
            raise ServerGone(
                f"{self._spec.name} did not initialize within {self._spec.connect_timeout:g} seconds"
            ) from None

    async def _start_link(self) -> Link:
        """Make and open a link. Raise ServerGone if `close` was called before, or while it opened."""
        self._check_open()  # `close` found no link to close while the old one was being closed
        link = self.link = self._make_link()
        await link.open()
        self._check_open()
        return link

    def _make_link(self) -> Link:
        """Create the link. Its callbacks pass the link on, because a replaced link may still deliver messages."""
        link: Link

        def on_link_message(message: RpcMessage) -> None:
            self._on_message(message, link)

        on_traffic = None if self._traffic is None else partial(self._traffic, self._spec.name)
        if self._spec.url is None:
            link = StdioLink(
                self._spec,
                on_link_message,
                lambda gone: self.report_lost(gone, link),
                identity=self._identity,
                on_traffic=on_traffic,
            )
            return link
        if self._sender is None:
            self._sender = self._own_sender = HttpTransport(resends=False)
        link = HttpLink(self._spec, on_link_message, self._sender, self._identity, self._login, on_traffic)
        return link

    async def _drop_link(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            await link.close()

    async def _close_after_pending(self) -> None:
        """Detach the old connection. It is closed once the answers that other calls wait for have arrived."""
        link, self.link = self.link, None
        if link is not None and link.has_pending:
            self.spawn(_close_when_answered(link))
        elif link is not None:
            await link.close()

    # reconnect

    def report_lost(self, gone: ServerGone, link: Link | None = None) -> None:
        """Report that the connection broke. The server cannot be used until it is open again."""
        if self._closed or self._recovering or self._opener is not None or link not in (None, self.link):
            return
        if self.unavailable_reason is None:
            self.unavailable_reason = gone.message
        self._recovering = True
        self._on_change()
        self.spawn(self._reconnect())

    async def _reconnect(self) -> None:
        """Try to reopen the connection, with growing pauses, until it succeeds or `reconnects` attempts have failed."""
        broken = self.link
        try:
            for attempt in range(self._spec.reconnects):
                await asyncio.sleep(_PAUSE * 2**attempt)
                try:
                    await self._reopen(broken)
                except ToolwireError as error:
                    _log.info("cannot reconnect to %s: %s", self._spec.name, error)
                    broken = self.link
                else:
                    return
        finally:
            self._recovering = False

    # send

    async def request_with_retry(
        self, build: Build, header_arguments: HeaderArguments | None, limit: float | None, *, may_resend: bool = False
    ) -> tuple[Object, bool]:
        """Return the result of a request, and whether it was sent twice.

        A request is only sent twice if that does no harm (`may_resend`). A request that certainly was not sent is
        always sent over a new connection. Raise ServerGone if there is no answer, and AmbiguousRetry if only the second
        attempt was answered, with an error.
        """
        link = await self.wait_ready()
        try:
            return await self._send_once(link, build, header_arguments, limit), False
        except ServerGone as gone:
            if self._is_opening() or (gone.sent and not may_resend) or not self._spec.reconnects:
                raise
            was_sent = gone.sent
        try:
            await self._reopen(link)
        except ToolwireError as error:
            if isinstance(error, ServerRefused) and not was_sent:
                raise
            raise ServerGone(error.message, sent=was_sent, hint=error.hint) from None
        try:
            return await self._send_once(await self.wait_ready(), build, header_arguments, limit), was_sent
        except ToolwireError as error:
            if not was_sent:
                raise
            kind = ServerGone if isinstance(error, ServerGone) else AmbiguousRetry
            raise kind(f"{self._spec.name}: the connection broke, and the retry failed: {error.message}") from error

    async def wait_ready(self) -> Link | None:
        """Wait until no other task is opening a connection, and return the open one."""
        if self._opener is not None and not self._is_opening():
            async with self._open_lock:
                pass
        return self.link

    def _is_opening(self) -> bool:
        return asyncio.current_task() is self._opener

    async def _send_once(
        self, link: Link | None, build: Build, header_arguments: HeaderArguments | None, limit: float | None
    ) -> Object:
        """Send a request and return its result. Raise RpcError for an error answer, ServerGone for no answer."""
        if link is None:
            raise ServerGone(f"{self._spec.name} is not connected: {self.unavailable_reason}", sent=False)
        try:
            async with asyncio.timeout(limit):
                answer = await link.send_request(build(next(self._ids)), header_arguments)
        except TimeoutError:
            raise ServerGone(f"{self._spec.name} did not answer in {self._spec.timeout:g} seconds") from None
        if isinstance(answer, Failure):
            raise answer.error
        return answer.result


async def _close_when_answered(link: Link) -> None:
    try:
        await link.wait_pending()
    finally:
        await link.close()
