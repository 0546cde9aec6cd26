"""Ask an approver. One that is not async runs in a thread, because a person may think for minutes.

Separate because the runner only needs the reply.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from ..run.approval import ApprovalReply
from ..run.steps import Approve
from ..run.waiting import Suspend
from .threads import ThreadPool, call_in_thread

__all__ = ["Approver", "ApproverThread"]

Approver: TypeAlias = Callable[[Approve], "ApprovalReply | Awaitable[ApprovalReply]"]


class ApproverThread:
    """An approver and its thread. There is one thread: questions on a terminal must not be mixed."""

    def __init__(self, approve: Approver | Literal["suspend"] | None) -> None:
        self._approve = approve
        call = getattr(approve, "__call__", None)  # noqa: B004  # the method, of an object with an async one
        self._is_async = inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(call)
        self._thread = ThreadPool(1)

    @property
    def is_set(self) -> bool:
        return self._approve is not None

    async def ask(self, step: Approve) -> ApprovalReply:
        """Return the reply; without an approver, no call is approved."""
        approve = self._approve
        if approve is None:
            return False
        if approve == "suspend":
            return Suspend()
        if not self._is_async:
            plain_reply: ApprovalReply = await call_in_thread(self._thread, approve, step)
            return plain_reply
        reply = approve(step)
        return await reply if inspect.isawaitable(reply) else reply

    def close(self) -> None:
        self._thread.close()
