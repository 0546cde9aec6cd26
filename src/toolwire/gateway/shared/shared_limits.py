"""Limits in a state that several machines share, with those of this machine.

Both count every request. This machine alone is never allowed more than the limit, so a request that it refuses is not
sent to the shared state; and while the shared state is unavailable, or after it has lost its counts, the limit still
holds for this machine. The limits of several machines are exact while the shared state is available.
"""

from __future__ import annotations

from ...ir.errors import StoreError
from ..faults import RateLimited
from .keys import Caller
from .limits import Limiter, LocalLimiter

__all__ = ["SharedLimiter"]


class SharedLimiter:
    """Limits of a shared limiter and a local one. If `strict`, requests are refused while the former is unavailable."""

    def __init__(self, shared: Limiter, local: LocalLimiter, *, strict: bool) -> None:
        self._shared = shared
        self._local = local
        self._strict = strict

    async def admit(self, caller: Caller) -> None:
        """Count a request here, then in the shared state. If that refuses it, it counts nowhere."""
        await self._local.admit(caller)
        try:
            await self._shared.admit(caller)
        except (RateLimited, StoreError) as error:
            if self._strict or isinstance(error, RateLimited):
                await self._local.refund(caller)
                raise

    async def spend(self, caller: Caller, tokens: int) -> None:
        await self._local.spend(caller, tokens)
        try:
            await self._shared.spend(caller, tokens)
        except StoreError:
            pass  # already logged; they are counted here
