"""Answer one request: try target after target until one accepts, and report a failure to the client.

The path of a request:

    plan        the targets, the time for all of them, and the step after a failure
    attempt     one target: prepare, send, relay, store, deliver (`answer.attempt`)
    delivery    the answer to the client, in the states silent, alive, streaming and ended (`answer.delivery`)

Until content of the model has been sent, transient failures are retried, on other targets first. After that, a failure
is sent as an error event in the client's own protocol. A model with a single target sends its start events at once.

All targets are tried once before any of them is tried again, because another target is more likely to work than the
failed one a moment later. A round costs the retry budget of its first target: without a budget, retries multiply the load
of an upstream that is overloaded already (https://sre.google/sre-book/addressing-cascading-failures/, "Retries").
Nothing is retried once a tool of the gateway has run, because it would run a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from logging import getLogger

from msgspec import Struct
from msgspec.structs import replace

from ...asgi.http_exchange import ClientGone
from ...bridge.conversation.reasoning_envelope import ENVELOPE_WIRES
from ...ir.errors import ToolwireError
from ...ir.events import ResponseStart, StreamFault
from ...ir.response import Fault, UpstreamError, fault_from
from ...net.model.health import TargetHealth
from ...net.model.upstream_exchange import RetryPolicy
from ...wire.faults import CONTEXT_LENGTH
from ..faults import IDLE_FAULT, INTERNAL_FAULT, SHUTDOWN_FAULT, UPSTREAM_BUSY, as_gateway_fault, is_gateway_fault
from ..request.client_request import ClientRequest
from ..request.dependencies import AnswerCache
from ..responses.records import ResponseStateError
from ..routing.router import Router, Target
from .attempt import Attempt, BegunAttempt
from .delivery import AnswerContext, AnswerState, Delivery


def select_capable_targets(plan: Sequence[Target], requested: ClientRequest) -> Sequence[Target]:
    """List the targets that can resolve every reference of the request to stored state.

    Raise StoredStateError if there is none, and ResponseStateError if no target is at the upstream that stores the
    conversation.
    """
    if requested.pending_response is not None and requested.pending_response.pinned is not None:
        plan = _select_pinned(plan, requested.pending_response.pinned, requested.model)
    capable, refused = [], None
    for target in plan:
        wire = target.endpoint.wire.name
        error = None if wire == requested.wire.name else requested.find_stored_state_error(wire)
        if error is None:
            capable.append(target)
        else:
            refused = refused or error
    if refused is not None and not capable:
        raise refused
    return capable


def _select_pinned(plan: Sequence[Target], upstream: str, model: str) -> list[Target]:
    """List the targets at the upstream that stores the conversation. Raise ResponseStateError if there is none."""
    pinned = [target for target in plan if target.upstream.name == upstream]
    if not pinned:
        raise ResponseStateError(
            f"the previous response is stored by the upstream {upstream!r}, which does not serve {model[:200]!r}",
            pointer="/previous_response_id",
            hint="use a model of that upstream, or send the whole conversation in `input`",
            code="previous_response_not_found",
            status=404,
        )
    return pinned


# The plan of one request: its targets in order, the time for all of them, and the step after a failure. No I/O here.


_FAILOVER_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server", "not_found"})
_MAX_DELAY = 2.0
"""Seconds before a retry, also if the upstream demands them. A client that gets a longer `retry-after` itself can decide
what to do, and holds no connection meanwhile."""
_LATE_FAULT = Fault("server", "the stream failed after its first output", 502)


class AttemptPlan(Struct, eq=False):
    """Targets are tried in turn, with a wait after each round over all of them, as their health and the budget allow."""

    targets: Sequence[Target]
    _router: Router
    _clock: Callable[[], float]
    _tried: int = 0  # targets of this round
    _rounds: int = 0  # that are over
    deadline: float = 0.0  # by the clock
    sent_at: float = 0.0  # time of the current attempt
    overflow: Fault | None = None  # of a prompt that was too long for a target, for the client if no other one answers

    def __post_init__(self) -> None:
        # each target has its own timeout, so a slow one leaves enough time for the next
        deadline = self._clock()
        for target in self.targets:
            deadline += target.upstream.row.timeout
        self.deadline = deadline

    def resume(self, sent_at: float) -> Target:
        """Continue with the only target, to which the request was sent at that time."""
        target = self.targets[0]
        self.sent_at, self._tried = sent_at, 1
        self.deadline = sent_at + target.upstream.row.timeout
        return target

    @property
    def idle_timeout(self) -> float:
        """The longest silence that any of the targets may keep, in seconds."""
        return max([target.upstream.row.idle for target in self.targets])

    @property
    def has_other_target(self) -> bool:
        """True if another target could answer instead of the current one, which two models may share."""
        current = self.targets[self._tried - 1].health
        return any(
            other.health.state != "open" and other.health is not current for other in self.targets[self._tried :]
        )

    def next_target(self) -> Target | None:
        """Return the next target of this round that admits the request, or None if there is none.

        The target moves before the untried ones and counts as tried; without any, targets are probed that are due.
        Targets are in the order of preference. Those that are failing are a last resort.
        """
        self.sent_at = now = self._clock()
        first = self.targets[0]
        if not self._tried and not self._rounds and first.health.state == "closed":  # as for most requests
            self._tried = 1
            first.health.budget.requests += 1
            return first
        untried = self.targets[self._tried :]
        for is_last_resort in (False, True):
            for number, target in enumerate(untried):
                health = target.health
                if self._admits(health, now, is_last_resort=is_last_resort):
                    if number:  # the targets before it stay for later
                        self.targets = [*self.targets[: self._tried], target, *untried[:number], *untried[number + 1 :]]
                    self._tried += 1
                    health.budget.requests += 1
                    return target
        for target in untried:
            self._router.probe_if_due(target)
        return None

    def _admits(self, health: TargetHealth, now: float, *, is_last_resort: bool) -> bool:
        """Return whether a target admits the request, and take a retry from its budget in later rounds.

        `_begin_round` has taken the retry of a round's first target.

        A trial that is admitted must be sent, so the budget is checked before.
        """
        if not self._rounds or not self._tried:
            return health.admit(now, is_last_resort=is_last_resort)
        may_retry = health.budget.may_retry(now) and health.admit(now, is_last_resort=is_last_resort)
        return may_retry and health.budget.take(now)

    def refusal(self) -> Fault:
        """Return the fault of a request that no target admits: a rate limit, if that is the failure of all targets."""
        now = self._clock()
        seconds = max(min([target.health.retry_after(now) for target in self.targets], default=0.0), 1.0)
        if all(target.health.is_limited for target in self.targets):
            message = "every target of the model has reached its rate limit"
            return Fault("rate_limit", message, 429, "cooldown", retryable=True, retry_after=seconds)
        message = "every target of the model has failed, and is in cooldown"
        return Fault("overloaded", message, 503, "cooldown", retryable=True, retry_after=seconds)

    def _keep_larger(self, target: Target) -> float | None:
        """Keep only the targets that may accept a prompt which is too long for this one, and begin again with them.

        Return the seconds to wait, which is 0.0, or None if no target is left.

        The target works, so it starts no cooldown.
        """
        window = target.window
        others = [*self.targets[self._tried :], *self.targets[: self._tried - 1]]
        self.targets = [other for other in others if window is None or other.window is None or other.window > window]
        self._tried = 0
        return 0.0 if self.targets else None

    def succeed(self, target: Target, *, failed_late: bool) -> None:
        """Note an answer. `failed_late`: the target failed after its first output."""
        if failed_late:
            self._router.fail(target, self._clock(), _LATE_FAULT)
        else:
            self._router.succeed(target, self.sent_at)

    def wait_after(self, fault: Fault, target: Target) -> float | None:
        """Note the fault for the target's health, and return the seconds until the next attempt.

        Return None if the fault is final, the time is over, or the retries are used up. A prompt that is too long for
        the target removes targets whose window is not larger.
        """
        if fault.code == CONTEXT_LENGTH:  # no success: the gateway may have found it, and sent nothing
            self.overflow = fault
            return self._keep_larger(target)
        if fault.kind not in _FAILOVER_KINDS and not is_gateway_fault(fault):
            self._router.succeed(target, self.sent_at)  # it works, and refuses this request
            return None
        if fault.code != UPSTREAM_BUSY:  # which is no failure of the target
            self._router.fail(target, self.sent_at, fault)
        else:
            target.health.release_trial(self.sent_at)
        if self._clock() >= self.deadline:
            return None  # the next target would time out at once, and be in cooldown
        if self._tried < len(self.targets):
            return 0.0
        if fault is IDLE_FAULT or fault.code == UPSTREAM_BUSY:
            return None  # it has used its time, or the request has waited long enough for a connection
        return self._begin_round(fault, target, costs_budget=True)

    def wait_after_refusal(self, fault: Fault) -> float | None:
        """Return the seconds until the next round if no target admits a request that failed with `fault`, or None.

        A round in which nothing was sent has its retry left, so it costs the budget nothing more.
        """
        return self._begin_round(fault, self.targets[-1], costs_budget=bool(self._tried))

    def _begin_round(self, fault: Fault, target: Target, *, costs_budget: bool) -> float | None:
        """Begin a new round over all targets, and return the seconds to wait before it.

        Return None if the retries, the time or the budget of the first target do not allow it.
        """
        now = self._clock()
        remaining = self.deadline - now
        policy = RetryPolicy(target.upstream.row.retries, max_delay=_MAX_DELAY)
        wait = policy.next_delay(fault, self._rounds, remaining)
        self._rounds += 1
        self._tried = 0
        if wait is not None and costs_budget and not self.targets[0].health.budget.take(now):
            return None
        return wait


_log = getLogger("toolwire.gateway")


class RequestHandler:
    """One request in progress. `run` writes the answer, or raises if nothing has been written yet."""

    __slots__ = ("_context", "_plan", "_state")

    def __init__(self, context: AnswerContext) -> None:
        self._context = context
        self._state = AnswerState(Delivery(context.http_exchange))

    async def run(self, begun: BegunAttempt | None = None) -> None:
        """Answer from the cache or from the targets. `begun` was sent to the only target already.

        A failure after the answer has begun is written into it; an earlier one is raised. ClientGone if the client has
        closed the connection.
        """
        context, state = self._context, self._state
        client_request, dependencies = context.client_request, context.dependencies
        targets: Sequence[Target] = dependencies.router.plan(client_request.model, tools=client_request.has_tools)
        if not all(map(context.preparation.needs_no_change, targets)):
            await context.work.decode_request()
            targets = select_capable_targets(targets, client_request)
        self._plan = AttemptPlan(targets, dependencies.router, dependencies.clock)
        if targets[0].row.cache and await self._answer_from_cache(targets[0]):
            return
        if client_request.stream or client_request.upload is not None:
            state.idle_timeout = self._plan.idle_timeout
            if client_request.upload is None:  # else the reply decides whether the answer is a stream
                state.open_stream(context)
        try:
            if dependencies.turn_store.has_any or client_request.wire.name in ENVELOPE_WIRES:
                await context.work.load_turns(targets)
            await self._try_targets(begun)
        except asyncio.CancelledError:
            await self._handle_interruption()
        except Exception as error:  # must be reported if a tool has run or output was sent
            has_begun = context.has_run_tools or state.delivery.state != "silent"
            if context.http_exchange.ended or not has_begun:
                raise
            await self._finish_with_fault(self._fault_for_error(error))
        finally:
            if state.stream_delivery is not None:
                state.stream_delivery.close()
                context.log_writer.set_first_chunk(state.stream_delivery.time_to_first_chunk)

    def _make_cache_key(self) -> bytes | None:
        """Return the cache key of the request, or None if its answer is not cached.

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
        """Return whether the cache had the answer, which is then written; else set `cache_answer` if it may be cached."""
        context, cache = self._context, self._context.dependencies.cache
        key = await context.work.hash_request(self._make_cache_key)
        if key is None:
            return False
        answer = cache.get(key)
        if answer is None:
            self._state.cache_answer = lambda answer: cache.put(key, answer, target.row.cache)
            return False
        context.log_writer.answer_from_cache(target.model)
        await self._state.delivery.respond([*context.response_headers(), (b"x-toolwire-cache", b"hit")], answer)
        return True

    async def _try_targets(self, begun: BegunAttempt | None) -> None:
        """Try the targets as planned until an answer is delivered, else report the last fault to the client.

        Nothing is retried after output was sent, a tool has run or a streamed body was sent.
        """
        context, state, plan = self._context, self._state, self._plan
        fault: Fault | None = None
        while True:
            target = plan.next_target() if begun is None else plan.resume(begun.sent_at)
            if target is None:
                wait = None if fault is None else plan.wait_after_refusal(fault)
                if wait is None:
                    break
                await self._pause(wait)
                continue
            if begun is None:
                context.log_writer.count_attempt()
            is_only = len(plan.targets) == 1
            has_other = not is_only and plan.has_other_target
            attempt = Attempt(context, state, target, plan.deadline, plan.sent_at, is_only, has_other)
            failure = await attempt.run(begun)
            begun = None
            if failure is None:
                plan.succeed(target, failed_late=context.log_writer.log.error is not None)
                return
            fault = as_gateway_fault(failure, target.upstream.name)
            context.log_writer.fail_attempt(target.upstream.name, failure.kind)
            upload = context.client_request.upload
            is_final = (
                state.delivery.has_output  # of an answer that was rejected
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
        delivery = self._state.stream_delivery
        await (asyncio.sleep(seconds) if delivery is None else delivery.pause(seconds))

    async def _handle_interruption(self) -> None:
        """Report to the client that the upstream was silent, or that the server stops.

        Raise ClientGone if the client has disconnected, and any other cancellation again.
        """
        context = self._context
        interruption = context.http_exchange.interruption
        if interruption.caught("client_gone"):
            self._state.delivery.abandon()
            raise ClientGone from None
        if interruption.caught("upstream_idle"):
            await self._finish_with_fault(IDLE_FAULT)
        elif interruption.caught("server_stop"):
            await self._finish_with_fault(SHUTDOWN_FAULT)
        else:
            raise asyncio.CancelledError

    def _fault_for_error(self, error: Exception) -> Fault:
        if isinstance(error, ToolwireError):
            return fault_from(error)
        _log.exception("request %s failed", self._context.log_writer.log.id)
        return INTERNAL_FAULT

    async def _finish_with_fault(self, fault: Fault) -> None:
        """Raise UpstreamError if nothing was sent, else log the fault and end the stream with an error event."""
        context = self._context
        if context.has_run_tools:
            fault = replace(fault, retryable=False, retry_after=None)  # a retry would run our tools again
        delivery = self._state.stream_delivery
        if delivery is None or delivery.state == "silent":
            raise UpstreamError(fault)
        if delivery.state == "ended":  # its end was interrupted: nothing may be written any more
            if not context.http_exchange.ended:
                context.log_writer.fail(fault.kind, fault.code)
                await context.http_exchange.end()
            return
        context.log_writer.fail(fault.kind, fault.code)
        if self._state.stream is not None and delivery.has_output:
            await delivery.write(self._state.stream.fail(fault))
        else:
            client_request = context.client_request
            encoder = client_request.wire.stream_encoder(client_request.cheap_request)
            start = ResponseStart(client_request.ingress.answer_id(""))
            await delivery.write(encoder.feed(start) + encoder.feed(StreamFault(fault)))
        await delivery.end()
