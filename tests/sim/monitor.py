"""A store on a server of the world, whose every answer is compared with what was promised before.

The ledger here is written from the promises of `run.values.records`, not from the code of a store: who holds which key or
run until when, what was acknowledged as done, and until when it has to be kept. It finds a wrong answer at once, where the
invariants at the end of a run may find its consequence only sometimes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from sim.world import Link, Machine, Process, World
from toolwire.run.values.records import DAY, MAX_LEASE, WEEK, Claim

_ROUNDING = 1e-3  # seconds; times are floats of 1.7e9


@dataclass
class Held:
    """What the store has promised about a key. `ends`: when a done record expires, by the clock and by the ticks."""

    claim: Claim
    lease_until: float
    state: str = "running"
    result: str | None = None
    ends: tuple[float, float] = (0.0, 0.0)


@dataclass
class Run:
    """What the store has promised about a run."""

    version: int
    token: str
    lease_until: float
    expires_at: float
    tenant: str
    log: tuple[bytes, ...] = ()
    latest: Any = None  # the arguments of the latest append


class MonitoredStore:
    """A store and its ledger. `has_ticks`: done records expire only if the ticks agree with the clock."""

    def __init__(self, world: World, machine: Machine, store: Any, *, has_ticks: bool) -> None:
        self._world = world
        self._machine = machine
        self._has_ticks = has_ticks
        self.opened = [store]
        self.held: dict[str, Held] = {}
        self.known: dict[str, Run] = {}
        self.owners: dict[str, str] = {}  # names of processes, by the tokens of their runs' leases
        self._first_offset = machine.offset
        self._has_jumped = False

    @property
    def store(self) -> Any:
        return self.opened[0]

    def _now(self) -> float:
        self._has_jumped = self._has_jumped or self._machine.offset != self._first_offset
        return self._machine.wall()

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            self._world.fail(text)

    def _may_be_over(self, held: Held) -> bool:
        """Return True for a done record that may expire."""
        by_clock = held.ends[0] <= self._now() + _ROUNDING
        return by_clock and (not self._has_ticks or held.ends[1] <= self._machine.ticks() + _ROUNDING)

    def _must_be_over(self, held: Held) -> bool:
        """Return True for a done record that must have expired. A jump of the clock may lengthen its life."""
        has_jumped = self._has_ticks and self._has_jumped
        return held.state == "done" and not has_jumped and held.ends[0] <= self._now() - _ROUNDING

    def _is_unknown(self, held: Held) -> bool:
        return held.state == "unknown" or (held.state == "running" and self._is_over(held.lease_until))

    def _is_over(self, lease_until: float) -> bool:
        """Return True for a lease that has ended, or ends so late that it was made while the clock was ahead."""
        return not 0 < lease_until - self._now() <= MAX_LEASE

    # records

    def claim(self, claim: Claim) -> Any:
        record = self.store.claim(claim)
        held, now = self.held.get(claim.key), self._now()
        if held is not None and held.state == "done" and self._may_be_over(held) and record.result != held.result:
            held = None
        is_granted = record.state == "running" and record.token == claim.token
        if not is_granted:
            self._require(held is not None, f"the free key {claim.key} was refused")
            assert held is not None
            self._require(not self._must_be_over(held), f"{claim.key} is kept for longer than its time to live")
            self._check_record(record, held)
            is_free = claim.reclaim and held.claim.fingerprint == claim.fingerprint and self._is_unknown(held)
            self._require(not is_free, f"{claim.key} is unknown and may be claimed again, and was refused")
            return record
        if held is not None and held.claim.token != claim.token:
            may_reclaim = claim.reclaim and held.claim.fingerprint == claim.fingerprint
            self._require(
                may_reclaim and self._is_unknown(held),
                f"{claim.key} was granted while it is {held.state} until {held.lease_until - now:+.3f} s",
            )
        if held is None or held.claim.token != claim.token or self._is_unknown(held):
            self._require_time(record.lease_until, now + claim.lease, f"the lease of {claim.key}")
            self._require(record.fingerprint == claim.fingerprint, f"{claim.key} has another fingerprint")
            self.held[claim.key] = Held(claim, record.lease_until)
        return record

    def _check_record(self, record: Any, held: Held) -> None:
        state = "unknown" if self._is_unknown(held) else held.state
        self._require(record.state == state, f"{record.key} is {record.state}, expected {state}")
        self._require(record.fingerprint == held.claim.fingerprint, f"{record.key} has another fingerprint")
        if state == "done":
            self._require(
                record.result == held.result, f"{record.key} has the result {record.result}, not {held.result}"
            )

    def _require_time(self, found: float, expected: float, what: str) -> None:
        self._require(abs(found - expected) < _ROUNDING, f"{what} ends {found - expected:+.3f} s from where it should")

    def _find_holder(self, key: str, token: str) -> Held | None:
        """Return the promise for the holder of a running claim."""
        held = self.held.get(key)
        return held if held is not None and held.claim.token == token and held.state == "running" else None

    def renew(self, key: str, token: str, lease: float) -> bool:
        renewed = self.store.renew(key, token, lease)
        held = self._find_holder(key, token)
        self._require(renewed == (held is not None), f"renewing {key} returned {renewed}")
        if held is not None:
            held.lease_until = self._now() + lease
        return renewed

    def complete(self, key: str, token: str, result: str, ttl: float, state: str = "done") -> bool:
        held = self.held.get(key)
        if held is not None and held.state == "done" and self._may_be_over(held) and self.store.get(key) is None:
            held = None
        completed = self.store.complete(key, token, result, ttl, state)
        is_holder = held is not None and held.claim.token == token
        is_open = is_holder and (held.state != "done" or (state == "done" and held.result == result))
        if held is not None or not completed:
            self._require(completed == is_open, f"completing {key} returned {completed}")
        if is_open and completed:
            held.state, held.result = state, result
            held.ends = self._now() + ttl, self._machine.ticks() + ttl
        return completed

    def release(self, key: str, token: str) -> bool:
        released = self.store.release(key, token)
        held = self._find_holder(key, token)
        self._require(released == (held is not None), f"releasing {key} returned {released}")
        if held is not None:
            del self.held[key]
        return released

    def get(self, key: str) -> Any:
        record, held = self.store.get(key), self.held.get(key)
        if record is None:
            is_over = held is None or (held.state == "done" and self._may_be_over(held))
            self._require(is_over, f"{key} was lost")
        else:
            self._require(held is not None, f"{key} is {record.state}, but nobody has claimed it")
            assert held is not None
            self._require(not self._must_be_over(held), f"{key} is kept for longer than its time to live")
            self._check_record(record, held)
        return record

    def records(self, state: str | None = None, limit: int = 100) -> list[Any]:
        found = self.store.records(state, limit)
        for record in found:
            self._check_record(record, self.held[record.key])
        return found

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        held = self.held.get(key)
        expected = held is not None and self._is_unknown(held)
        resolved = self.store.resolve(key, result, ttl)
        self._require(resolved == expected, f"resolving {key} returned {resolved}")
        if resolved and result is None:
            del self.held[key]
        elif resolved:
            assert held is not None
            held.state, held.result, held.claim = "done", result, structs.replace(held.claim, token="")
            held.ends = self._now() + ttl, self._machine.ticks() + ttl
        return resolved

    def sweep(self, limit: int | None = None) -> int:
        swept = self.store.sweep(limit)
        for key in list(self.held):
            self.get(key)  # nothing was deleted before its end
        return swept

    # runs

    def append(
        self, run: Any, rows: Any, expected: int, *, ttl: float = WEEK, lease: float = 60.0, restart: bool = False
    ):
        before, now = self._live_run(run.run_id), self._now()
        version = 0 if before is None else before.version
        stored = self.store.runs.append(run, rows, expected, ttl=ttl, lease=lease, restart=restart)
        latest = (run.status, run.token, run.summary, run.tenant, tuple(rows))
        is_repeated = before is not None and version == expected + 1 and before.latest == latest
        fits = version == expected and (before is None or before.tenant == run.tenant)
        is_free = before is None or self._is_free(before, run.token)
        name = f"append {expected + 1} of {run.run_id} by {run.token[:6]}"
        if before is not None and before.token == run.token != "" and self._world.calm:
            self._require(not self._is_over(before.lease_until), f"the lease of {run.run_id} was not renewed")
        if not (fits and is_free):
            self._require((stored is not None) == is_repeated, f"{name} returned {stored is not None}")
            return stored
        self._require(stored is not None, f"{name} was refused")
        is_leased = run.status == "running" and run.token != ""
        lease_until = now + lease if is_leased else 0.0
        self._require(stored.version == expected + 1, f"{name} has version {stored.version}")
        self._require(stored.token == (run.token if is_leased else ""), f"{name} has the token {stored.token[:6]!r}")
        self._require_time(stored.lease_until, lease_until, f"the lease of {name}")
        self._require_time(stored.expires_at, now + ttl, f"the life of {name}")
        log = (() if before is None or restart else before.log) + tuple(rows)
        self.known[run.run_id] = Run(
            stored.version, stored.token, lease_until, stored.expires_at, run.tenant, log, latest
        )
        found = tuple(self.store.runs.rows(run.run_id, 0, len(log) + 1))
        self._require(stored.rows == len(log) and found == log, f"{name} has another log")
        return stored

    def _live_run(self, run_id: str) -> Run | None:
        run = self.known.get(run_id)
        return None if run is None or max(run.expires_at, run.lease_until) <= self._now() else run

    def _is_free(self, run: Run, token: str) -> bool:
        return run.token in ("", token) or self._is_over(run.lease_until)

    def rows(self, run_id: str, start: int, stop: int) -> Any:
        return self.store.runs.rows(run_id, start, stop)

    def get_run(self, run_id: str) -> Any:
        found, run = self.store.runs.get(run_id), self._live_run(run_id)
        self._require((found is None) == (run is None), f"run {run_id} is {'lost' if found is None else 'not over'}")
        if found is not None and run is not None:
            same = (found.version, found.token, found.rows) == (run.version, run.token, len(run.log))
            self._require(same, f"run {run_id} has another version, token or log")
        return found

    def list(self, status: str | None = None, limit: int = 100, *, tenant: str | None = None) -> Any:
        return self.store.runs.list(status, limit, tenant=tenant)

    def ready(self, limit: int = 1000) -> Any:
        found = self.store.runs.ready(limit)
        running = [run_id for run_id, run in self.known.items() if run.latest[0] == "running" and not run.token]
        expected = {run_id for run_id in running if self._live_run(run_id)}
        self._require(set(found) == expected or len(found) == limit, f"ready are {found}, not {sorted(expected)}")
        return found

    def lease(self, run_id: str, token: str, seconds: float) -> Any:
        before = self._live_run(run_id)
        leased = self.store.runs.lease(run_id, token, seconds)
        is_free = before is not None and self._is_free(before, token)
        self._require(
            (leased is not None) == is_free, f"the lease of {run_id} for {token[:6]} was {leased is not None}"
        )
        if leased is not None:
            self.known[run_id] = replace(before, token=token, lease_until=self._now() + seconds)
            self._require_time(leased.lease_until, self._now() + seconds, f"the lease of {run_id}")
        return leased

    def renew_run(self, run_id: str, token: str, seconds: float) -> bool:
        return self._change_lease(run_id, token, seconds, self.store.runs.renew(run_id, token, seconds))

    def release_run(self, run_id: str, token: str) -> bool:
        return self._change_lease(run_id, token, None, self.store.runs.release(run_id, token))

    def _change_lease(self, run_id: str, token: str, seconds: float | None, changed: bool) -> bool:
        run = self._live_run(run_id)
        is_holder = run is not None and token != "" and run.token == token
        self._require(changed == is_holder, f"changing the lease of {run_id} for {token[:6]} returned {changed}")
        if changed and run is not None:
            until = 0.0 if seconds is None else self._now() + seconds
            self.known[run_id] = replace(run, lease_until=until, token="" if seconds is None else token)
        return changed

    def delete(self, run_id: str) -> bool:
        before = self._live_run(run_id)
        deleted = self.store.runs.delete(run_id)
        self._require(deleted == (before is not None and self._is_free(before, "")), f"deleting {run_id} was {deleted}")
        if deleted:
            del self.known[run_id]
        return deleted


class RemoteRuns:
    """The runs of a store as a process sees them."""

    def __init__(self, call: Callable[..., Any], owners: dict[str, str], process: Process) -> None:
        self._call = call
        self._owners = owners
        self._process = process

    def append(self, run, rows, expected_version, **options):
        self._owners[run.token] = self._process.name
        return self._call("append", run, rows, expected_version, **options)

    def rows(self, run_id, start, stop):
        return self._call("rows", run_id, start, stop)

    def get(self, run_id):
        return self._call("get_run", run_id)

    def list(self, status=None, limit=100, *, tenant=None):
        return self._call("list", status, limit, tenant=tenant)

    def ready(self, limit=1000):
        return self._call("ready", limit)

    def lease(self, run_id, token, seconds):
        self._owners[token] = self._process.name
        return self._call("lease", run_id, token, seconds)

    def renew(self, run_id, token, seconds):
        return self._call("renew_run", run_id, token, seconds)

    def release(self, run_id, token):
        return self._call("release_run", run_id, token)

    def delete(self, run_id):
        return self._call("delete", run_id)


class RemoteStore:
    """A store as a process sees it: every operation is a message and its reply. Call it in greenlets."""

    def __init__(self, server: MonitoredStore, process: Process) -> None:
        self._server = server
        self._link = Link(process)
        self.runs = RemoteRuns(self._call, server.owners, process)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        return self._link.call(name, lambda: getattr(self._server, name)(*args, **options))

    def claim(self, claim):
        return self._call("claim", claim)

    def renew(self, key, token, lease):
        return self._call("renew", key, token, lease)

    def complete(self, key, token, result, ttl, state="done"):
        return self._call("complete", key, token, result, ttl, state)

    def release(self, key, token):
        return self._call("release", key, token)

    def get(self, key):
        return self._call("get", key)

    def records(self, state=None, limit=100):
        return self._call("records", state, limit)

    def resolve(self, key, result, ttl=DAY):
        return self._call("resolve", key, result, ttl)

    def sweep(self, limit=None):
        return self._call("sweep", limit)

    def close(self): ...
