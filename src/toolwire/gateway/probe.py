"""Ask each upstream whether it is reachable and accepts the key: one bounded request for its list of models."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from ..ir.errors import ToolwireError
from ..net.transports import open_transport
from .answer.responses_api import SendAny
from .upstreams import ConfiguredUpstream

__all__ = ["ProbeResult", "probe_upstreams"]

_LIST_PATHS = (  # the path of requests, and that of the list of models on the same server
    (re.compile(r"/deployments/[^/]+/chat/completions$"), "/models"),
    (re.compile(r"/(?:chat/completions|responses|messages)$"), "/models"),
    (re.compile(r"/models/[^/]+:generateContent$"), "/models"),
    (re.compile(r"/api/chat$"), "/api/tags"),
)
_MAX_PROBES = 8  # at the same time
ProbeStatus: TypeAlias = Literal["ok", "reachable", "key refused", "unreachable", "in this process"]


class ProbeResult(Struct, frozen=True):
    """The outcome of a probe. `reachable`: it answered, but not with a list of models."""

    upstream: str
    status: ProbeStatus
    address: str = ""
    http_status: int = 0
    ms: int = 0
    detail: str = ""

    @property
    def is_usable(self) -> bool:
        return self.status in ("ok", "reachable", "in this process")


async def probe_upstreams(
    upstreams: Mapping[str, ConfiguredUpstream], environment: Mapping[str, str], seconds: float
) -> list[ProbeResult]:
    """Probe all upstreams, each within `seconds`. The body of an answer is not read."""
    transport, slots = open_transport(environment, connections=_MAX_PROBES), asyncio.Semaphore(_MAX_PROBES)

    async def probe(upstream: ConfiguredUpstream) -> ProbeResult:
        async with slots:
            return await _probe(upstream, transport, seconds)

    try:
        return list(await asyncio.gather(*(probe(upstream) for upstream in upstreams.values())))
    finally:
        await transport.aclose()


async def _probe(upstream: ConfiguredUpstream, transport: SendAny, seconds: float) -> ProbeResult:
    endpoint = upstream.endpoint("any")
    if endpoint.vendor.transport is not None:
        return ProbeResult(upstream.name, "in this process")
    address, started_at = _list_url(endpoint.url(stream=False)), time.perf_counter()
    shown = address.partition("?")[0]
    try:
        async with asyncio.timeout(seconds):
            secrets = await endpoint.authorise()
            async with transport.send("GET", address, endpoint.headers, secrets, b"", seconds) as reply:
                status = reply.status
    except TimeoutError:
        return ProbeResult(upstream.name, "unreachable", shown, detail=f"no answer within {seconds:g} s")
    except (OSError, ToolwireError) as error:
        detail = error.message if isinstance(error, ToolwireError) else str(error) or type(error).__name__
        return ProbeResult(upstream.name, "unreachable", shown, detail=detail)
    ms = round((time.perf_counter() - started_at) * 1000)
    kind: ProbeStatus = "ok" if status == 200 else "key refused" if status in (401, 403) else "reachable"
    return ProbeResult(upstream.name, kind, shown, status, ms)


def _list_url(url: str) -> str:
    """Return the URL of the list of models, or the root of a server without a known list."""
    parts = urlsplit(url)
    for pattern, path in _LIST_PATHS:
        if pattern.search(parts.path):
            return urlunsplit(parts._replace(path=pattern.sub(path, parts.path)))
    return urlunsplit(parts._replace(path="/", query=""))
