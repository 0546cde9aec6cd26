"""The settings of a run, the gates of each tool under them, and the cache for results of pure and read tools."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from msgspec.structs import force_setattr, replace

from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.tools import SEARCH_TOOLS
from ...ir.value import Value
from ...schema.bounds import BoundedCache
from ..session.loop import Session
from ..tools.toolbox import Entry, Toolbox
from ..values.keys import canonical_json
from ..values.outputs import LIMIT, StoredOutputs
from ..values.records import DAY
from .context import ProgressSink
from .gates import GATES, Gate, build_gates, find, fuse_gates, make_unknown_gate, make_unoffered_gate, refuse_changed
from .policy import Policy
from .signature import FunctionSignature, function_signature


def cache_key(tool: str, arguments: Object, *scope: str) -> str:
    """Hash a call with the scope in which its result may be reused: the source of the tool, the tenant, the run."""
    return sha256(canonical_json([tool, arguments, *scope])).hexdigest()


class ToolGates:
    """The gates of one tool. `take_values`: see `fuse_gates`; None in a dry run, which invokes nothing.

    `runs_at_once`: an async function that waits neither for its rate nor for a process.
    """

    __slots__ = ("entry", "gates", "runs_at_once", "signature", "take_values")

    def __init__(self, entry: Entry | None, settings: RunSettings) -> None:
        self.entry = entry
        self.gates = build_gates(entry, settings.gates, settings.policy)
        self.signature = None if entry is None else function_signature(entry.function)
        self.take_values: Callable[[ToolCall], Object | None] | None = None
        self.runs_at_once = entry is not None and self.signature is not None and runs_at_once(entry, self.signature)
        is_read = entry is not None and entry.tool.effect in ("pure", "read")
        if entry is not None and is_read and entry.options.cache is None and not settings.dry_run:
            self.take_values = fuse_gates(self.gates, entry, settings.box)


def runs_at_once(entry: Entry, signature: FunctionSignature) -> bool:
    """Return True for an async function that waits neither for its rate nor for a process."""
    return signature.is_async and entry.options.rate is None and entry.options.isolation != "process"


class _GatesByTool(dict[str, ToolGates]):
    """The gates of each tool under some settings."""

    def __init__(self, gates: tuple[Gate, ...], policy: Policy | None, dry_run: bool) -> None:
        super().__init__()
        self.gates = gates
        self.policy = policy
        self.dry_run = dry_run


class RunSettings(Value, frozen=True):
    """Settings of all calls of a run. `now` and `token` are passed in: this code has no clock and no random numbers."""

    box: Toolbox
    now: Callable[[], float]
    token: Callable[[], str]
    jitter: Callable[[float], float] = float
    run_id: str = ""
    caller: str = ""
    tenant: str = ""
    policy: Policy | None = None
    gates: tuple[Gate, ...] = GATES
    has_store: bool = False
    keeps_keyless: bool = True  # False: no client can present a derived key again, so its result is not stored
    lease: float = 60.0  # seconds, as `Claim.lease`
    ttl: float = DAY
    while_running: str = "wait"  # or "refuse"
    wait_timeout: float = 30.0  # seconds for the same call in another process; half of a tool's default timeout
    output_limit: int = LIMIT
    cache: BoundedCache[str, ToolResult] | None = None
    outputs: StoredOutputs | None = None  # for the full texts of shortened results
    tainted: bool = False
    deps: Any = None  # the caller's object, for `CallContext.deps`
    on_progress: ProgressSink | None = None
    session: Session | None = None  # the run of the agent that makes the calls
    dry_run: bool = False
    gates_by_tool: _GatesByTool = _GatesByTool((), policy=None, dry_run=False)  # shared by the runs of a runner

    def __post_init__(self) -> None:
        known = self.gates_by_tool
        if known.gates is not self.gates or known.policy is not self.policy or known.dry_run != self.dry_run:
            force_setattr(self, "gates_by_tool", _GatesByTool(self.gates, self.policy, self.dry_run))

    def _refusal_gate(self, entry: Entry, session: Session) -> Gate | None:
        """Return the gate that refuses a tool that the run does not offer as it is now; None if it may be called.

        Unlisted tools are offered when they are needed.
        """
        if not self.box.is_listed(entry):
            return None
        state = session.offer_state(entry.tool)
        if state == "changed":
            return refuse_changed
        if state == "offered" or (self.policy is not None and self.policy.unoffered == "allow"):
            return None
        return make_unoffered_gate([tool.name for tool in session.state.request.tools], session.how_to_get_tools)

    def gates_for(self, name: str) -> ToolGates:
        """Return the gates for the calls of a tool. They are built once per tool.

        A tool that the run does not offer, or does not know, gets a gate that refuses the call.

        The gates of an unknown tool are not kept: a model can invent any number of names.
        """
        entry = self.box.find(name)
        if self.session is not None:
            refuse = None if entry is None else self._refusal_gate(entry, self.session)
            if refuse is not None:
                return ToolGates(entry, replace(self, gates=(find, refuse), policy=None, session=None))
            if entry is None and self.session.tool_search is not None:
                gate = make_unknown_gate(self.session.offered_names, f"Find tools with {SEARCH_TOOLS}.")
                return ToolGates(None, replace(self, gates=(gate,), policy=None, session=None))
        gates = self.gates_by_tool.get(name)
        if gates is None or gates.entry is not entry:
            gates = ToolGates(entry, self)
            if entry is not None:
                self.gates_by_tool[name] = gates
        return gates
