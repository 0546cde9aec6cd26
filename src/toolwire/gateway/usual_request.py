"""Answer one request: the usual one in few steps, any other one by `RequestHandler`.

The usual request goes to the only target of its model. The target gets its bytes, and the client the bytes of the whole
answer, of which only a summary is read: nothing of this needs the objects of other requests. Whatever else becomes of it,
such as an error, a refusal or an answer without a summary, is left to `RequestHandler`, as if it had sent the request.
"""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter

from ..asgi.http_exchange import HttpExchange
from ..asgi.offload import ClientOffload
from ..ir.response import Fault
from ..net.http.transport import Reply
from ..net.model.replies import forwarded_headers, read_reply_body
from ..net.model.upstream_exchange import UpstreamExchange
from ..wire.documents import AnswerSummary
from .answer.attempt import BYTES_OF_TOKEN, NO_LOSSES, SUMMARISED_AT_ONCE, BegunAttempt
from .answer.delivery import CONTENT_TYPE, AnswerContext, open_context
from .answer.pass_through import PassThroughRequest
from .answer.preparation import replace_leading, takes_bytes
from .answer.request_handler import RequestHandler
from .memory import MemoryReservation
from .observe.request_log import RequestLogWriter
from .request.body import is_plausible
from .request.client_request import ClientRequest
from .request.dependencies import Dependencies
from .routing.router import Target


def answer(
    dependencies: Dependencies,
    http_exchange: HttpExchange,
    client_request: ClientRequest,
    log_writer: RequestLogWriter,
    memory: MemoryReservation,
    offload: ClientOffload,
) -> Awaitable[None]:
    """Answer a request. Raise the errors of `RequestHandler`."""
    target = find_target(dependencies, client_request, log_writer)
    if target is None:
        context = open_context(dependencies, http_exchange, client_request, log_writer, memory, offload)
        return RequestHandler(context).run()
    return answer_usual(target, dependencies, http_exchange, client_request, log_writer, memory, offload)


def find_target(
    dependencies: Dependencies, client_request: ClientRequest, log_writer: RequestLogWriter
) -> Target | None:
    """Return the target of a usual request, or None if `RequestHandler` has to answer it."""
    target = dependencies.router.single_targets.get(client_request.model)
    is_usual = (
        target is not None
        and target.plain_wire == client_request.wire.name
        and not client_request.stream
        and client_request.upload is None
        and _is_usual(client_request, target, dependencies, log_writer)
    )
    return target if is_usual else None


async def answer_usual(
    target: Target,
    dependencies: Dependencies,
    http_exchange: HttpExchange,
    client_request: ClientRequest,
    log_writer: RequestLogWriter,
    memory: MemoryReservation,
    offload: ClientOffload,
) -> None:
    """Send the request to its target, and answer the client."""
    started_at = perf_counter()
    sent_at, health, endpoint = dependencies.clock(), target.health, target.endpoint
    body = replace_leading(client_request, endpoint)
    if body is None:
        context = open_context(dependencies, http_exchange, client_request, log_writer, memory, offload)
        await RequestHandler(context).run()
        return
    reply_headers = [*target.headers]
    error: BaseException | None = None
    failure: Fault | None = None
    summary: AnswerSummary | None = None
    data = b""
    health.budget.requests += 1
    offload.refuse = None  # from here on it is not refused
    log_writer.count_attempt()
    log_writer.start_attempt(target, True, started_at)
    try:
        async with target.upstream.transport.post(
            target.url, endpoint.headers, endpoint.secrets, body, target.upstream.row.timeout
        ) as reply:
            health.is_heard = True
            reply_headers += forwarded_headers(reply, endpoint)
            if 200 <= reply.status < 300:
                data = await read_reply_body(reply, dependencies.limits.answer, memory.add)
            else:
                context = open_context(dependencies, http_exchange, client_request, log_writer, memory, offload)
                failure = await _read_failure(context, PassThroughRequest(client_request, endpoint, body), reply)
        if failure is None:
            summary = _summarise(target, data)
        if summary is not None:
            if not health.is_healthy:
                dependencies.router.succeed(target, sent_at)
            log_writer.set_summary(summary)
            headers = [CONTENT_TYPE, (b"x-request-id", log_writer.log.id.encode()), *reply_headers, NO_LOSSES]
            await http_exchange.respond(200, headers, data)
            return
    except BaseException as caught:  # noqa: BLE001  # it is raised again
        error = caught
    out = PassThroughRequest(client_request, endpoint, body)
    begun = BegunAttempt(out, sent_at, reply_headers, error, failure, data, summary)
    context = open_context(dependencies, http_exchange, client_request, log_writer, memory, offload)
    try:
        await RequestHandler(context).run(begun)
    finally:
        begun.error = error = None  # its traceback has this frame, which would keep the request alive


def _is_usual(
    client_request: ClientRequest, target: Target, dependencies: Dependencies, log_writer: RequestLogWriter
) -> bool:
    """Return whether nothing has to be done for a request but to send its bytes and to return the whole answer."""
    window = target.stated_window
    return (
        target.health.state == "closed"
        and not client_request.headers
        and not log_writer.log.forward_headers
        and (target.row.tools or not client_request.has_tools)
        and (window is None or len(client_request.body) <= window * BYTES_OF_TOKEN)
        and (not dependencies.turn_store.has_any or not client_request.may_have_calls())
        and takes_bytes(target, client_request, dependencies)
    )


async def _read_failure(context: AnswerContext, out: PassThroughRequest, reply: Reply) -> Fault:
    exchange = UpstreamExchange(out, False)
    meaning = exchange.receive_head(reply.status, reply.headers, out.endpoint.secrets)
    return await context.work.read_fault(exchange, meaning, reply)


def _summarise(target: Target, data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded for the accounts."""
    summary = target.endpoint.wire.summarise(data) if len(data) <= SUMMARISED_AT_ONCE else None
    return summary if summary is not None and is_plausible(summary.usage) else None
