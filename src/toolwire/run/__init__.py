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
    from .model_settings import ModelSettings
    from .observe import (
        AgentOperation,
        ApprovalOperation,
        EndOperation,
        ModelOperation,
        ObservedOperation,
        Observer,
        OperationOutcome,
        ToolOperation,
    )
    from .options import Options, OptionValues
    from .output_plan import OutputPlan
    from .output_type import StructuredOutput
    from .partial_output import PartialOutput
    from .pending import Pending
    from .policy import Ask, Deny, Policy, allow, at_most, deny, hosts, only_effects, path_jail
    from .records import DAY, Claim, Record, Store
    from .session import Budget, Session
    from .steps import Approve
    from .toolbox import Entry, Source, Toolbox
    from .values import received
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "toolbox": ("Entry", "Source", "Toolbox"),
            "options": ("OptionValues", "Options"),
            "function_tool": ("FunctionTool",),
            "policy": ("Ask", "Deny", "Policy", "allow", "at_most", "deny", "hosts", "only_effects", "path_jail"),
            "session": ("Budget", "Session"),
            "compaction": ("Compaction", "CompactionPlan", "plan_compaction"),
            "context": ("CallContext", "current_call"),
            "gates": ("GATES",),
            "pending": ("Pending",),
            "approval": ("Approved", "Denied"),
            "failures": ("ToolError", "Transient"),
            "steps": ("Approve",),
            "records": ("DAY", "Claim", "Record", "Store"),
            "model_settings": ("ModelSettings",),
            "observe": (
                "AgentOperation",
                "ApprovalOperation",
                "EndOperation",
                "ModelOperation",
                "Observer",
                "ObservedOperation",
                "OperationOutcome",
                "ToolOperation",
            ),
            "output_plan": ("OutputPlan",),
            "output_type": ("StructuredOutput",),
            "partial_output": ("PartialOutput",),
            "values": ("received",),
        },
    )

__all__ = [
    "AgentOperation",
    "ApprovalOperation",
    "Approve",
    "Approved",
    "Ask",
    "Budget",
    "CallContext",
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
    "Session",
    "Source",
    "Store",
    "StructuredOutput",
    "ToolError",
    "ToolOperation",
    "Toolbox",
    "Transient",
    "allow",
    "at_most",
    "current_call",
    "deny",
    "hosts",
    "only_effects",
    "path_jail",
    "plan_compaction",
    "received",
]
