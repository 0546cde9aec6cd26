"""Run tools: toolboxes, gates, scheduling, idempotency, the agent loop. Sans-IO: the drivers are in `toolwire.net`."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .calls.context import CallContext, ToolError, Transient, current_call
    from .calls.gates import GATES
    from .calls.observe import (
        AgentOperation,
        ApprovalOperation,
        EndOperation,
        ModelOperation,
        ObservedOperation,
        Observer,
        OperationOutcome,
        Retriever,
        ToolOperation,
        ToolSearcher,
    )
    from .calls.pending import Ask, Deny, Pending, received
    from .calls.plan import CallPlan, plan_of
    from .calls.policy import Policy, allow, at_most, deny, hosts, only_effects, path_jail
    from .calls.steps import Approve, Approved, Denied
    from .session.compaction import Compaction, CompactionPlan, plan_compaction
    from .session.events import RunEvent, decode_events, fold_events
    from .session.history import dump_messages, load_messages
    from .session.loop import Session
    from .session.model_settings import ModelSettings
    from .session.output import OutputPlan, StructuredOutput
    from .session.partial_output import PartialOutput, UnfinishedCall
    from .session.state import Budget
    from .tools.function_tool import FunctionTool, Options, OptionValues
    from .tools.toolbox import Entry, LiveSource, Source, Toolbox
    from .tools.words import choose_by_words
    from .values.records import DAY, WEEK, Claim, Record, RunConflict, RunStore, Store, StoredRun, read_rows
    from .values.waiting import ApprovalExpired, Suspend, Suspended, WaitingCall
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tools.toolbox": ("Entry", "LiveSource", "Source", "Toolbox"),
            "tools.function_tool": ("FunctionTool", "OptionValues", "Options"),
            "calls.pending": ("Ask", "Deny", "Pending", "received"),
            "calls.policy": ("Policy", "allow", "at_most", "deny", "hosts", "only_effects", "path_jail"),
            "session.state": ("Budget",),
            "session.loop": ("Session",),
            "session.compaction": ("Compaction", "CompactionPlan", "plan_compaction"),
            "calls.context": ("CallContext", "ToolError", "Transient", "current_call"),
            "calls.gates": ("GATES",),
            "calls.steps": ("Approve", "Approved", "Denied"),
            "calls.plan": ("CallPlan", "plan_of"),
            "session.events": ("RunEvent", "decode_events", "fold_events"),
            "values.records": (
                "Claim",
                "DAY",
                "Record",
                "RunConflict",
                "RunStore",
                "Store",
                "StoredRun",
                "WEEK",
                "read_rows",
            ),
            "session.history": ("dump_messages", "load_messages"),
            "session.model_settings": ("ModelSettings",),
            "calls.observe": (
                "AgentOperation",
                "ApprovalOperation",
                "EndOperation",
                "ModelOperation",
                "ObservedOperation",
                "Observer",
                "OperationOutcome",
                "Retriever",
                "ToolOperation",
                "ToolSearcher",
            ),
            "session.output": ("OutputPlan", "StructuredOutput"),
            "session.partial_output": ("PartialOutput", "UnfinishedCall"),
            "values.waiting": ("ApprovalExpired", "Suspend", "Suspended", "WaitingCall"),
            "tools.words": ("choose_by_words",),
        },
    )

__all__ = [
    "AgentOperation",
    "ApprovalExpired",
    "ApprovalOperation",
    "Approve",
    "Approved",
    "Ask",
    "Budget",
    "CallContext",
    "CallPlan",
    "Claim",
    "Compaction",
    "CompactionPlan",
    "DAY",
    "Denied",
    "Deny",
    "EndOperation",
    "Entry",
    "FunctionTool",
    "GATES",
    "LiveSource",
    "ModelOperation",
    "ModelSettings",
    "ObservedOperation",
    "Observer",
    "OperationOutcome",
    "OptionValues",
    "Options",
    "OutputPlan",
    "PartialOutput",
    "Pending",
    "Policy",
    "Record",
    "Retriever",
    "RunConflict",
    "RunEvent",
    "RunStore",
    "Session",
    "Source",
    "Store",
    "StoredRun",
    "StructuredOutput",
    "Suspend",
    "Suspended",
    "ToolError",
    "ToolOperation",
    "ToolSearcher",
    "Toolbox",
    "Transient",
    "UnfinishedCall",
    "WEEK",
    "WaitingCall",
    "allow",
    "at_most",
    "choose_by_words",
    "current_call",
    "decode_events",
    "deny",
    "dump_messages",
    "fold_events",
    "hosts",
    "load_messages",
    "only_effects",
    "path_jail",
    "plan_compaction",
    "plan_of",
    "read_rows",
    "received",
]
