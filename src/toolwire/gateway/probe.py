"""Ask each upstream whether it is reachable and accepts the key: one bounded request for its list of models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from ..ir.errors import ConfigError, ToolwireError
from ..ir.response import UpstreamError
from ..net.model_list import list_models
from .upstreams import ConfiguredUpstream

__all__ = ["ProbeResult", "probe_upstreams"]

_MAX_PROBES = 8  # at the same time
ProbeStatus: TypeAlias = Literal["ok", "reachable", "key refused", "unreachable", "not asked"]


class ProbeResult(Struct, frozen=True):
    """The outcome of a probe. `reachable`: it answered, but not with a list of models."""

    upstream: str
    status: ProbeStatus
    address: str = ""
    ms: int = 0
    models: int | None = None  # in the list
    detail: str = ""

    @property
    def is_usable(self) -> bool:
        return self.status in ("ok", "reachable", "not asked")


async def probe_upstreams(
    upstreams: Mapping[str, ConfiguredUpstream], environment: Mapping[str, str], seconds: float
) -> list[ProbeResult]:
    """Probe all upstreams, each within `seconds`."""
    slots = asyncio.Semaphore(_MAX_PROBES)

    async def probe(upstream: ConfiguredUpstream) -> ProbeResult:
        async with slots:
            return await _probe(upstream, environment, seconds)

    return list(await asyncio.gather(*(probe(upstream) for upstream in upstreams.values())))


async def _probe(upstream: ConfiguredUpstream, environment: Mapping[str, str], seconds: float) -> ProbeResult:
    endpoint = upstream.endpoint("any")
    if endpoint.vendor.transport is not None:
        return ProbeResult(upstream.name, "not asked", detail="it runs in this process")
    address, started_at = endpoint.origin, time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            names = await list_models(endpoint, environment, seconds)
    except TimeoutError:
        return ProbeResult(upstream.name, "unreachable", address, detail=f"no answer within {seconds:g} s")
    except UpstreamError as error:
        kinds: dict[str, ProbeStatus] = {"authentication": "key refused", "overloaded": "unreachable"}
        return ProbeResult(upstream.name, kinds.get(error.fault.kind, "reachable"), address, detail=error.message)
    except ConfigError as error:
        return ProbeResult(upstream.name, "not asked", address, detail=error.message)
    except ToolwireError as error:  # the command that prints the key
        return ProbeResult(upstream.name, "unreachable", address, detail=error.message)
    ms = round((time.perf_counter() - started_at) * 1000)
    return ProbeResult(upstream.name, "ok", address, ms, len(names))
