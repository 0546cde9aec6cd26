"""Answer one request: try target after target until one accepts, and report a failure to the client.

The path of a request:

    plan        the targets, the time for all of them, and the step after a failure
    attempt     one target: prepare, send, relay; `net.upstream_exchange` has the meaning of each reply
    delivery    the answer to the client, in the states silent, alive, streaming and ended

Until content of the model has been sent, transient failures are retried, on other targets first. After that, a failure
is sent as an error event in the client's own protocol. A model with a single target sends its start events at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from logging import getLogger

from msgspec.structs import replace

from ...asgi.http_exchange import ClientGone, HeaderPairs
from ...asgi.offload import LARGE
from ...ir.errors import ToolwireError
from ...ir.events import ResponseStart, StreamFault
from ...ir.response import Fault, UpstreamError, fault_from
from ..answer_cache import AnswerCache
from ..faults import IDLE_FAULT, INTERNAL_FAULT, SHUTDOWN_FAULT, as_gateway_fault
from ..routing import Target, select_capable_targets
from .attempt import AnswerContext, Attempt
from .delivery import ArrayFrames, StreamDelivery
from .plan import AttemptPlan

__all__ = ["RequestHandler"]

_log = getLogger("toolwire.gateway")
_SEARCHES_PER_WORK = 8  # a search for envelopes takes 1 ms for 1 MB, or 3 ms if many letters are escaped


class RequestHandler:
    """One request in progress. `run` writes the answer, or raises if nothing has been written yet."""

    __slots__ = ("_context", "_plan")

    def __init__(self, context: AnswerContext) -> None:
        self._context = context

    async def run(self) -> None:
        """Answer from the cache or from the targets.

        A failure after the answer has begun is written into it; an earlier one is raised. ClientGone if the client has
        closed the connection.
        """
        context = self._context
        client_request, dependencies = context.client_request, context.dependencies
        targets: Sequence[Target] = dependencies.router.plan(client_request.model, tools=client_request.has_tools)
        if not all(map(context.preparation.needs_no_change, targets)):
            targets = await self._select_targets(targets)
        self._plan = AttemptPlan(targets, dependencies.router, dependencies.clock)
        if targets[0].row.cache and await self._answer_from_cache(targets[0]):
            return
        if client_request.upload is not None:
            context.open_stream_delivery = self._open_stream_delivery
        elif client_request.stream:
            context.delivery = context.stream_delivery = self._open_stream_delivery()
        try:
            size = len(client_request.body) // _SEARCHES_PER_WORK
            if size > LARGE:
                await context.offload.run(size, getattr, client_request, "has_envelopes")
            if dependencies.turn_store.has_any or client_request.has_envelopes:
                await context.preparation.load_turns(targets)
            await self._try_targets()
        except asyncio.CancelledError:
            await self._handle_interruption()
        except Exception as error:  # must be reported if a tool has run or output was sent
            has_begun = context.has_run_tools or context.delivery.state != "silent"
            if context.http_exchange.ended or not has_begun:
                raise
            await self._finish_with_fault(self._fault_for_error(error))
        finally:
            if context.stream_delivery is not None:
                context.stream_delivery.close()
                context.log_writer.set_first_chunk(context.stream_delivery.time_to_first_chunk)

    async def _select_targets(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Select the targets that can serve a request which is decoded; a large one in a thread.

        Later uses of the decoded request are on the event loop.
        """
        client_request = self._context.client_request
        if client_request.work_size > LARGE:
            await self._context.offload.run(client_request.work_size, client_request.decode)
        return select_capable_targets(targets, client_request)

    def _make_cache_key(self) -> bytes | None:
        """Return the key of a cacheable request.

        Streams and strict requests are not cached, nor are responses of a conversation, which every request changes.
        """
        client_request = self._context.client_request
        if client_request.stream or client_request.strict:
            return None
        if client_request.pending_response is not None and client_request.pending_response.conversation_id is not None:
            return None
        return AnswerCache.key(
            self._context.log_writer.log.caller,
            client_request.ingress.wire,
            client_request.model,
            client_request.headers,
            client_request.body,
        )

    async def _answer_from_cache(self, target: Target) -> bool:
        """Hash the request if its answer may be cached, and answer it if it is."""
        context = self._context
        size = len(context.client_request.body) // 8
        key = context.cache_key = await context.offload.run(size, self._make_cache_key)
        context.cache_seconds = target.row.cache
        answer = None if key is None else context.dependencies.cache.get(key)
        if answer is None:
            return False
        context.log_writer.answer_from_cache(target.model)
        await context.delivery.respond([*context.response_headers(), (b"x-toolwire-cache", b"hit")], answer)
        return True

    def _open_stream_delivery(self) -> StreamDelivery:
        """Open the client's stream. A JSON array (`as_array`) is kept alive by spaces, which JSON ignores."""
        client_request, http_exchange = self._context.client_request, self._context.http_exchange
        as_array, ingress = client_request.as_array, client_request.ingress
        headers: HeaderPairs = [
            (b"content-type", b"application/json" if as_array else ingress.framing.media_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            (b"x-request-id", self._context.log_writer.log.id.encode()),
        ]
        return StreamDelivery(
            http_exchange,
            headers,
            b" " if as_array else ingress.ping,
            ping_interval=self._context.dependencies.limits.ping,
            idle_timeout=self._plan.idle_timeout,
            frames=ArrayFrames() if as_array else None,
        )

    async def _try_targets(self) -> None:
        """Try the targets as planned. Stop once a tool has run, because a retry would run it again."""
        context, plan = self._context, self._plan
        fault: Fault | None = None
        while True:
            target = plan.next_target()
            if target is None:
                wait = None if fault is None else plan.wait_after_refusal(fault)
                if wait is None:
                    break
                await self._pause(wait)
                continue
            context.log_writer.count_attempt()
            is_only = len(plan.targets) == 1
            has_other = not is_only and plan.has_other_target
            failure = await Attempt(context, target, plan.deadline, plan.sent_at, is_only, has_other).run()
            if failure is None:
                plan.succeed(target, failed_late=context.log_writer.log.error is not None)
                return
            fault = as_gateway_fault(failure, target.upstream.name)
            context.log_writer.fail_attempt(target.upstream.name, failure.kind)
            upload = context.client_request.upload
            is_final = (
                context.delivery.has_output  # of an answer that was rejected
                or context.has_run_tools
                or (upload is not None and upload.is_sent)
            )
            wait = None if is_final else plan.wait_after(failure, target)
            if wait is None:
                break
            if wait:
                await self._pause(wait)
        # a client can compact its conversation, but do nothing about the failure of a fallback
        await self._finish_with_fault(plan.overflow or fault or plan.refusal())

    async def _pause(self, seconds: float) -> None:
        delivery = self._context.stream_delivery
        await (asyncio.sleep(seconds) if delivery is None else delivery.pause(seconds))

    async def _handle_interruption(self) -> None:
        """Report the end of an interrupted request: it was silent, or the server stops."""
        context = self._context
        interruption = context.http_exchange.interruption
        if interruption.caught("client_gone"):
            context.delivery.abandon()
            raise ClientGone from None
        if interruption.caught("upstream_idle"):
            await self._finish_with_fault(IDLE_FAULT)
        elif interruption.caught("server_stop"):
            await self._finish_with_fault(SHUTDOWN_FAULT)
        else:
            raise asyncio.CancelledError

    async def _end_interrupted(self, fault: Fault) -> None:
        """End the connection of an answer whose end was interrupted; nothing may be written any more."""
        context = self._context
        if not context.http_exchange.ended:
            context.log_writer.fail(fault.kind, fault.code)
            await context.http_exchange.end()

    def _fault_for_error(self, error: Exception) -> Fault:
        if isinstance(error, ToolwireError):
            return fault_from(error)
        _log.exception("request %s failed", self._context.log_writer.log.id)
        return INTERNAL_FAULT

    async def _finish_with_fault(self, fault: Fault) -> None:
        """Report a fault, as a status if that is still possible, else as an event."""
        context = self._context
        if context.has_run_tools:
            fault = replace(fault, retryable=False, retry_after=None)  # a retry would run our tools again
        delivery = context.stream_delivery
        if delivery is None or delivery.state == "silent":
            raise UpstreamError(fault)
        if delivery.state == "ended":
            await self._end_interrupted(fault)
            return
        context.log_writer.fail(fault.kind, fault.code)
        if context.stream is not None and delivery.has_output:
            await delivery.write(context.stream.fail(fault))
        else:
            client_request = context.client_request
            encoder = client_request.wire.stream_encoder(client_request.cheap_request)
            start = ResponseStart(client_request.ingress.answer_id(""))
            await delivery.write(encoder.feed(start) + encoder.feed(StreamFault(fault)))
        await delivery.end()
