"""Ask upstreams whether they are reachable, with one bounded request for their list of models.

`probe_upstreams` asks all of them, for `toolwire serve check`. `SilenceWatch` asks those whose requests get no byte, and
those whose cooldown after a silence is over, as `net.health` decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from ..asgi.interruption import Interruption
from ..ir.errors import ConfigError, ToolwireError
from ..ir.response import UpstreamError
from ..net.model.health import HealthState, TargetHealth
from ..net.model.server_facts import list_models
from .shared.cooldowns import HealthTable
from .upstreams import ConfiguredUpstream

__all__ = ["ProbeResult", "SilenceWatch", "probe_upstreams"]

_log = getLogger("toolwire.gateway")
_MAX_PROBES = 8  # at the same time
_PROBE_SECONDS = 5.0  # for the answer to a probe: lists of models take less than a second, also at busy servers
_CHECK_INTERVAL = 1.0  # seconds between two checks of a target with waiting requests
_CHECKS = 8  # within the silence after which a target may hang
_NoteChange: TypeAlias = Callable[[str, TargetHealth, HealthState, str], None]
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


class SilenceWatch:
    """Checks targets while requests wait for their first byte, and sends the probes that are due."""

    def __init__(self, table: HealthTable, note_change: _NoteChange) -> None:
        self._table = table
        self._note_change = note_change
        self._watched: set[str] = set()  # labels with a timer
        self._probes: set[asyncio.Task[None]] = set()

    def start(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        """Check a target until none of its requests waits."""
        if label not in self._watched:
            self._watched.add(label)
            self._check_later(label, health, upstream)

    def _check_later(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        delay = min(_CHECK_INTERVAL, upstream.row.first_event / _CHECKS)
        asyncio.get_running_loop().call_later(delay, self._on_timer, label, health, upstream)

    def _on_timer(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        if health.is_waiting:
            self.check(label, health, upstream)
            self._check_later(label, health, upstream)
        else:
            self._watched.discard(label)

    def check(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        """Send a probe if it is due."""
        before = health.state
        if health.begin_probe(self._table.clock(), upstream.row.first_event):
            if health.state != before:
                self._note_change(label, health, before, "probe")
            task = asyncio.ensure_future(self._probe(label, health, upstream))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)

    async def _probe(self, label: str, health: TargetHealth, upstream: ConfiguredUpstream) -> None:
        """Send a probe, and interrupt the waiting requests if it is not answered."""
        try:
            is_answered = await upstream.is_answering(min(_PROBE_SECONDS, upstream.row.first_event))
        except Exception:  # noqa: BLE001  # such as a certificate file that is gone: no evidence against the upstream
            _log.exception("cannot probe the upstream %s", upstream.name)
            is_answered = True
        self._table.probes[upstream.name, "answered" if is_answered else "unanswered"] += 1
        before = health.state
        released = health.report_probe(self._table.clock(), is_answered=is_answered)
        if health.state != before:
            self._note_change(label, health, before, "probe answered" if is_answered else "probe not answered")
        for interruption in released:
            cast("Interruption", interruption).interrupt("upstream_idle")
