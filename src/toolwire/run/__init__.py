"""Run tools: toolboxes, gates, scheduling, idempotency, the agent loop. Sans-IO: the drivers are in `toolwire.net`."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .approval import Approved, Denied
    from .compaction import Compaction, CompactionPlan, plan_compaction
    from .context import CallContext, current_call
    from .failures import ToolError, Transient
    from .function_tool import FunctionTool
    from .gates import GATES
    from .histories import dump_messages, load_messages
    from .model_settings import ModelSettings
    from .observe import (
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
    from .options import Options, OptionValues
    from .output_plan import OutputPlan
    from .output_type import StructuredOutput
    from .partial_output import PartialOutput, UnfinishedCall
    from .pending import Pending
    from .plan import CallPlan, plan_of
    from .policy import Ask, Deny, Policy, allow, at_most, deny, hosts, only_effects, path_jail
    from .records import DAY, Claim, Record, Store
    from .run_events import RunEvent, decode_events, fold_events
    from .session import Budget, Session
    from .steps import Approve
    from .stored_runs import WEEK, RunConflict, RunStore, StoredRun, read_rows
    from .toolbox import Entry, LiveSource, Source, Toolbox
    from .values import received
    from .waiting import ApprovalExpired, Suspend, Suspended, WaitingCall
    from .word_choice import choose_by_words
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "toolbox": ("Entry", "LiveSource", "Source", "Toolbox"),
            "options": ("OptionValues", "Options"),
            "function_tool": ("FunctionTool",),
            "policy": ("Ask", "Deny", "Policy", "allow", "at_most", "deny", "hosts", "only_effects", "path_jail"),
            "session": ("Budget", "Session"),
            "compaction": ("Compaction", "CompactionPlan", "plan_compaction"),
            "context": ("CallContext", "current_call"),
            "gates": ("GATES",),
            "pending": ("Pending",),
            "approval": ("Approved", "Denied"),
            "plan": ("CallPlan", "plan_of"),
            "failures": ("ToolError", "Transient"),
            "steps": ("Approve",),
            "run_events": ("RunEvent", "decode_events", "fold_events"),
            "stored_runs": ("WEEK", "RunConflict", "RunStore", "StoredRun", "read_rows"),
            "records": ("DAY", "Claim", "Record", "Store"),
            "histories": ("dump_messages", "load_messages"),
            "model_settings": ("ModelSettings",),
            "observe": (
                "AgentOperation",
                "ApprovalOperation",
                "EndOperation",
                "ModelOperation",
                "Observer",
                "ObservedOperation",
                "OperationOutcome",
                "Retriever",
                "ToolOperation",
                "ToolSearcher",
            ),
            "output_plan": ("OutputPlan",),
            "output_type": ("StructuredOutput",),
            "partial_output": ("PartialOutput", "UnfinishedCall"),
            "values": ("received",),
            "waiting": ("ApprovalExpired", "Suspend", "Suspended", "WaitingCall"),
            "word_choice": ("choose_by_words",),
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
