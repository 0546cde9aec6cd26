"""Answer one request: try target after target until one accepts, then relay its answer, whole or as a stream.

Until the first byte of the answer has been sent, transient failures are retried, on other targets first. After that, a
failure is sent as an error event in the client's own protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from logging import getLogger
from secrets import token_hex
from time import perf_counter

from msgspec import Struct
from msgspec.structs import replace

from ..ir.errors import EncodeError, LossError, ProtocolError, ToolwireError, UpstreamError
from ..ir.events import ResponseStart, StreamFault
from ..ir.losses import refuse
from ..ir.response import Fault
from ..net.http import Reply
from ..net.replies import drain, is_document, lost_there, whole_body
from ..net.retry import Retries, fault_of, with_date
from ..net.runner import Runner
from ..run.observe import Retriever
from .asgi import Call, uncancel
from .asked import Asked
from .cache import AnswerCache
from .downstream import ArrayFrames, Downstream
from .faults import fault_from, is_ours_to_settle, settled
from .hosting import Hosting
from .memory import Memory, calls_to_recall, put_back
from .outbound import Outbound, Passing, outbound
from .routing import Router, Target, able_targets
from .seen import Kept
from .settings import LimitsRow
from .streams import Stream
from .turn import Turn

__all__ = ["Answering", "Means"]

_log = getLogger("toolwire.gateway")
_ERROR_LIMIT = 1024 * 1024
_ELSEWHERE = frozenset({"rate_limit", "overloaded", "timeout", "server", "not_found"})

_FAILED = Fault("server", "the gateway failed; see its log", 500)
_SILENT = Fault("timeout", "the upstream was silent for too long", 504, "timeout", retryable=True)
_STOPPING = Fault("overloaded", "the gateway is shutting down", 503, "stopping", retryable=True)


class Means(Struct, frozen=True):
    """Dependencies shared by all requests."""

    router: Router
    memory: Memory
    limits: LimitsRow
    clock: Callable[[], float]
    cache: AnswerCache
    runners: Mapping[str, Runner] = {}  # tools run by the gateway, by model pattern
    retriever: Retriever | None = None

    def runner_for(self, model: str) -> Runner | None:
        return next((runner for pattern, runner in self.runners.items() if fnmatchcase(model, pattern)), None)


class Answering:
    """One request in progress. `run` writes the answer, or raises if nothing has been written yet."""

    def __init__(self, means: Means, call: Call, asked: Asked, turn: Turn) -> None:
        self._means = means
        self._call = call
        self._asked = asked
        self._turn = turn
        self._plan = able_targets(means.router.plan(asked.model, tools=asked.has_tools), asked)
        # each target has its own timeout, so a slow one leaves enough time for the next
        self._deadline = means.clock() + sum(target.upstream.row.timeout for target in self._plan)
        self._known: Mapping[str, Kept] = {}
        self._stream: Stream | None = None
        self._hosting: Hosting | None = None
        self._held = b""  # the end of a stream, held back until the work before it is done
        self._has_all = False  # the client has received everything up to the last event
        self._cache_key = self._key_of_cache()
        self._down = self._downstream() if asked.stream else None

    async def run(self) -> None:
        found = None if self._cache_key is None else self._means.cache.get(self._cache_key)
        if found is not None:
            self._turn.upstream, self._turn.upstream_model = "cache", self._plan[0].model
            await self._call.respond(200, {**self._head(), "x-toolwire-cache": "hit"}, found)
            return
        try:
            await self._recall()
            await self._until_answered()
        except asyncio.CancelledError:
            if self._call.gone:
                raise
            uncancel()
            silent = self._down is not None and self._down.gave_up
            await self._end_in(_SILENT if silent else _STOPPING)
        except Exception as error:  # must be reported if a tool has run or output was sent
            has_begun = self._has_acted or (self._down is not None and self._call.started)
            if self._call.ended or not has_begun:
                raise
            await self._end_in(self._own_fault(error))
        finally:
            if self._down is not None:
                self._down.close()
                self._turn.first = self._down.first_after

    @property
    def _has_acted(self) -> bool:
        return self._hosting is not None and self._hosting.has_acted

    def _own_fault(self, error: Exception) -> Fault:
        if isinstance(error, ToolwireError):
            return fault_from(error)
        _log.exception("request %s failed", self._turn.id)
        return _FAILED

    async def _recall(self) -> None:
        if self._asked.may_have_calls() and self._means.memory.has_any:
            calls = calls_to_recall(self._asked.request)
            if calls:
                self._known = await self._means.memory.recall(self._turn.caller, calls)

    def _key_of_cache(self) -> bytes | None:
        asked = self._asked
        if asked.stream or asked.strict or not self._plan[0].row.cache:
            return None
        return AnswerCache.key(self._turn.caller, asked.front.wire, asked.model, asked.headers, asked.body)

    def _downstream(self) -> Downstream:
        asked = self._asked
        headers = {
            "content-type": "application/json" if asked.as_array else asked.front.stream_type,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-request-id": self._turn.id,
        }
        return Downstream(
            self._call,
            headers,
            b" " if asked.as_array else asked.front.ping,
            every=self._means.limits.ping,
            silence=max(target.upstream.row.idle for target in self._plan),
            frames=ArrayFrames() if asked.as_array else None,
        )

    async def _until_answered(self) -> None:
        plan, turn = self._plan, self._turn
        while True:
            target = plan[turn.attempts % len(plan)]
            turn.attempts += 1
            fault = await self._attempt(target)
            if fault is None:
                if turn.error is None:
                    self._means.router.succeeded(target)
                else:  # it failed after its first output
                    self._means.router.failed(target)
                return
            turn.failures += ((target.upstream.name, fault.kind),)
            final = fault.kind not in _ELSEWHERE and not is_ours_to_settle(fault)
            if final or self._has_acted:
                break
            self._means.router.failed(target, fault.retry_after)
            if self._left() <= 0:
                break  # the next target would get no time and be blamed for it
            if turn.attempts % len(plan) == 0:
                rounds = turn.attempts // len(plan) - 1
                wait = None
                if fault is not _SILENT:  # it has used its time
                    wait = Retries(target.upstream.row.retries).wait(fault, rounds, self._left())
                if wait is None:
                    break
                await self._pause(wait)
        await self._end_in(settled(fault, target.upstream.name))

    async def _pause(self, seconds: float) -> None:
        if self._down is None:
            await asyncio.sleep(seconds)
            return
        with self._down.patient():
            await asyncio.sleep(seconds)

    def _left(self) -> float:
        return self._deadline - self._means.clock()

    async def _attempt(self, target: Target) -> Fault | None:
        """Try one target. Return None if the answer was written, else the fault that occurred before any output."""
        began = perf_counter()
        out = self._outbound(target)
        turn = self._turn
        turn.upstream, turn.upstream_model = target.upstream.name, target.model
        turn.provider = target.upstream.row.provider or out.endpoint.wire.provider
        turn.wire, turn.passed = out.endpoint.wire.name, isinstance(out, Passing)
        turn.overhead += perf_counter() - began
        if self._down is not None:
            self._down.heard()  # the silence of earlier targets does not count for this one
        try:
            return await self._exchange(target, out)
        except asyncio.CancelledError:
            if self._call.gone and self._has_all:
                uncancel()  # the client has the last event and did not wait for the end of the connection
                return None
            if self._call.gone or self._down is None or not self._down.gave_up:
                out.seen.abandoned = self._call.gone
                raise
            uncancel()
            self._down.wait_again()
            return await self._silent(self._down)
        except (TimeoutError, ConnectionError) as error:
            return fault_of(error, out.endpoint.origin)
        except UpstreamError as error:
            return error.fault
        except LossError:
            raise  # the client accepts no losses
        except (ProtocolError, EncodeError) as error:
            message = f"the upstream's answer cannot be passed on: {error.message}"
            return Fault("server", message, 502, "bad_answer", retryable=False)  # it was billed; a retry would be too
        finally:
            self._note(out)

    def _outbound(self, target: Target) -> Outbound:
        runner = self._means.runner_for(self._asked.model) if target.row.tools else None
        if runner is None and not self._known and not target.row.retrieve:
            return outbound(self._asked, None, target)
        request = self._asked.request
        if self._known:
            endpoint = target.upstream.endpoint(target.model)
            request = put_back(request, self._known, endpoint.wire.provider, endpoint.origin)
        if target.row.retrieve and self._means.retriever is not None:
            request = replace(request, tools=tuple(self._means.retriever.choose(request, request.tools)))
        if runner is None:
            return outbound(self._asked, None if request is self._asked.request else request, target)
        self._hosting = Hosting(runner, request, token_hex(16))  # not the request id, which a client may choose
        return outbound(self._asked, self._hosting.request, target, self._hosting)

    def _note(self, out: Outbound) -> None:
        turn, seen = self._turn, out.seen
        turn.usage, turn.stop, turn.calls = seen.counted(), seen.stop, tuple(seen.calls)
        turn.answer_id, turn.answer_model = seen.id, seen.model
        if turn.usage is None:
            turn.usage = seen.estimate(out.body)
            turn.estimated = turn.usage is not None
        turn.losses, turn.repairs = tuple(out.losses), tuple(out.repairs)

    async def _exchange(self, target: Target, out: Outbound) -> Fault | None:
        endpoint, row = out.endpoint, target.upstream.row
        url = endpoint.url(stream=self._asked.stream)
        seconds = min(self._left(), row.timeout)
        headers = {**out.headers, **self._turn.forward} if self._turn.forward else out.headers
        async with target.upstream.transport.post(url, headers, endpoint.secrets, out.body, seconds) as reply:
            if not 200 <= reply.status < 300:
                return await _refusal(reply, out)
            if endpoint.vendor.transport is not None:
                out.losses.extend(lost_there(reply))
                if self._asked.strict:
                    refuse(out.losses)
            if self._down is not None and not is_document(reply):
                self._stream = out.stream()
                fault = await self._relay(reply, self._stream, self._down, out)
                if fault is not None or self._stream.fault is not None:
                    return fault
                data = None
            else:
                data = await whole_body(reply, self._means.limits.answer)
        if data is not None:
            again = None if self._down is not None else out.again(data)
            if again is not None:
                return await self._exchange(target, again)
            out.take(data)
        following = await self._following(out)
        if following is not None:
            await self._say_held()
            return await self._exchange(target, following)
        await self._end(out, is_taken=data is not None)
        return None

    async def _following(self, out: Outbound) -> Outbound | None:
        if self._down is None or self._hosting is None:
            return await out.following()
        with self._down.patient():  # the upstream is idle while our own tools run
            return await out.following()

    async def _end(self, out: Outbound, *, is_taken: bool) -> None:
        if self._down is not None:
            if is_taken:
                self._held = out.unfolded()
            await self._keep(out)
            await self._say_held()
            await self._down.end()
            return
        began = perf_counter()
        written = out.written()
        self._turn.overhead += perf_counter() - began
        await self._keep(out)
        if self._cache_key is not None:
            self._means.cache.put(self._cache_key, written, self._plan[0].row.cache)
        await self._call.respond(200, {**self._head(), "x-toolwire-losses": str(len(out.losses))}, written)

    def _head(self) -> dict[str, str]:
        return {"content-type": "application/json", "x-request-id": self._turn.id}

    async def _keep(self, out: Outbound) -> None:
        """Store continuations before the answer ends: the next request may arrive at once, at another machine."""
        if out.seen.kept:
            maker = (out.endpoint.model, out.endpoint.origin)
            kept = {call_id: one.by(*maker) for call_id, one in out.seen.kept.items()}
            out.seen.kept = {}
            await self._means.memory.keep(self._turn.caller, kept)

    async def _say_held(self) -> None:
        if self._held and self._down is not None:
            held, self._held = self._held, b""
            await self._down.write(held)

    async def _relay(self, reply: Reply, stream: Stream, down: Downstream, out: Outbound) -> Fault | None:
        """Relay the upstream's stream except its end. Return a fault if it failed before the first output."""
        down.headers["x-toolwire-losses"] = str(len(out.losses))
        left = self._means.limits.answer
        while not _is_over(stream):
            try:
                data = await reply.read()
            except TimeoutError as error:
                return await self._broken(stream.fail(fault_of(error, out.endpoint.origin)), stream, down)
            except ConnectionError:
                data = b""  # the decoder decides whether the stream was complete
            if not data:
                break
            down.heard()
            left -= len(data)
            said = stream.feed(data) if left >= 0 else stream.fail(_endless(self._means.limits.answer))
            if stream.fault is not None:
                return await self._broken(said, stream, down)
            if _is_over(stream):
                self._held = said
                if self._hosting is None:  # else our tools run first
                    await self._keep(out)
                    await self._say_held()
                    self._has_all = stream.ended and not self._asked.as_array
            elif said:
                await down.write(said)
        if stream.ended:
            await drain(reply)
        last = stream.close()
        if stream.fault is not None:
            return await self._broken(self._held + last, stream, down)
        self._held += last
        return None

    async def _broken(self, last: bytes, stream: Stream, down: Downstream) -> Fault | None:
        """End a failed stream, or return its fault for another target if nothing was sent yet."""
        if not down.spoke:
            return stream.fault
        self._turn.error = None if stream.fault is None else stream.fault.kind
        await down.write(last)
        await down.end()
        return None

    async def _silent(self, down: Downstream) -> Fault | None:
        if self._stream is None or not down.spoke:
            return _SILENT
        return await self._broken(self._stream.fail(_SILENT), self._stream, down)

    async def _end_in(self, fault: Fault) -> None:
        """Report a fault, as a status if that is still possible, else as an event."""
        if self._has_acted:
            fault = replace(fault, retryable=False, retry_after=None)  # a retry would run our tools again
        if self._down is None or not self._call.started:
            raise UpstreamError(fault)
        self._turn.error = fault.kind
        if self._stream is not None and self._down.spoke:
            await self._down.write(self._stream.fail(fault))
        else:
            encoder = self._asked.wire.stream_encoder(self._asked.readable)
            await self._down.write(encoder.feed(ResponseStart()) + encoder.feed(StreamFault(fault)))
        await self._down.end()


def _is_over(stream: Stream) -> bool:
    return stream.ended or stream.should_stop


async def _refusal(reply: Reply, out: Outbound) -> Fault:
    if 300 <= reply.status < 400:
        message = "the upstream redirects to another address; the key is not sent there"
        return Fault("server", message, 502, "redirect", retryable=False)
    try:
        data = await whole_body(reply, _ERROR_LIMIT)
    except (ProtocolError, TimeoutError, ConnectionError):
        data = b""  # the status is enough
    headers = dict(reply.headers)
    return with_date(out.fault(reply.status, data, headers), headers)


def _endless(limit: int) -> Fault:
    return Fault("server", f"the stream has more than {limit} bytes", 502, "too_large", retryable=False)
