"""Run tools: toolboxes, gates, scheduling, idempotency, the agent loop. Sans-IO: the drivers are in `toolwire.net`."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .calls.context import CallContext as CallContext
    from .calls.context import ToolError as ToolError
    from .calls.context import Transient as Transient
    from .calls.context import current_call as current_call
    from .calls.gates import GATES as GATES
    from .calls.observe import AgentOperation as AgentOperation
    from .calls.observe import ApprovalOperation as ApprovalOperation
    from .calls.observe import EndOperation as EndOperation
    from .calls.observe import ModelOperation as ModelOperation
    from .calls.observe import ObservedOperation as ObservedOperation
    from .calls.observe import Observer as Observer
    from .calls.observe import OperationOutcome as OperationOutcome
    from .calls.observe import Retriever as Retriever
    from .calls.observe import ToolOperation as ToolOperation
    from .calls.observe import ToolSearcher as ToolSearcher
    from .calls.pending import Ask as Ask
    from .calls.pending import Deny as Deny
    from .calls.pending import Pending as Pending
    from .calls.pending import received as received
    from .calls.plan import CallPlan as CallPlan
    from .calls.plan import plan_of as plan_of
    from .calls.policy import Policy as Policy
    from .calls.policy import allow as allow
    from .calls.policy import at_most as at_most
    from .calls.policy import deny as deny
    from .calls.policy import hosts as hosts
    from .calls.policy import only_effects as only_effects
    from .calls.policy import path_jail as path_jail
    from .calls.steps import Approve as Approve
    from .calls.steps import Approved as Approved
    from .calls.steps import Denied as Denied
    from .executor import Executor as Executor
    from .executor import FailedItem as FailedItem
    from .executor import InProcess as InProcess
    from .executor import WorkFailed as WorkFailed
    from .executor import map_items as map_items
    from .session.compaction import Compaction as Compaction
    from .session.compaction import CompactionPlan as CompactionPlan
    from .session.compaction import plan_compaction as plan_compaction
    from .session.events import RunEvent as RunEvent
    from .session.events import decode_events as decode_events
    from .session.events import fold_events as fold_events
    from .session.history import dump_messages as dump_messages
    from .session.history import load_messages as load_messages
    from .session.loop import Session as Session
    from .session.model_settings import ModelSettings as ModelSettings
    from .session.output import OutputPlan as OutputPlan
    from .session.output import StructuredOutput as StructuredOutput
    from .session.partial_output import PartialOutput as PartialOutput
    from .session.partial_output import UnfinishedCall as UnfinishedCall
    from .session.state import Budget as Budget
    from .tools.function_tool import FunctionTool as FunctionTool
    from .tools.function_tool import Options as Options
    from .tools.function_tool import OptionValues as OptionValues
    from .tools.toolbox import Entry as Entry
    from .tools.toolbox import LiveSource as LiveSource
    from .tools.toolbox import Source as Source
    from .tools.toolbox import Toolbox as Toolbox
    from .tools.words import choose_by_words as choose_by_words
    from .values.records import DAY as DAY
    from .values.records import WEEK as WEEK
    from .values.records import Claim as Claim
    from .values.records import Record as Record
    from .values.records import RunConflict as RunConflict
    from .values.records import RunStore as RunStore
    from .values.records import Store as Store
    from .values.records import StoredRun as StoredRun
    from .values.records import read_rows as read_rows
    from .values.waiting import ApprovalExpired as ApprovalExpired
    from .values.waiting import Suspend as Suspend
    from .values.waiting import Suspended as Suspended
    from .values.waiting import WaitingCall as WaitingCall
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "calls.context": "CallContext ToolError Transient current_call",
            "calls.gates": "GATES",
            "calls.observe": (
                "AgentOperation ApprovalOperation EndOperation ModelOperation ObservedOperation Observer "
                "OperationOutcome Retriever ToolOperation ToolSearcher"
            ),
            "calls.pending": "Ask Deny Pending received",
            "calls.plan": "CallPlan plan_of",
            "calls.policy": "Policy allow at_most deny hosts only_effects path_jail",
            "calls.steps": "Approve Approved Denied",
            "executor": "Executor FailedItem InProcess WorkFailed map_items",
            "session.compaction": "Compaction CompactionPlan plan_compaction",
            "session.events": "RunEvent decode_events fold_events",
            "session.history": "dump_messages load_messages",
            "session.loop": "Session",
            "session.model_settings": "ModelSettings",
            "session.output": "OutputPlan StructuredOutput",
            "session.partial_output": "PartialOutput UnfinishedCall",
            "session.state": "Budget",
            "tools.function_tool": "FunctionTool Options OptionValues",
            "tools.toolbox": "Entry LiveSource Source Toolbox",
            "tools.words": "choose_by_words",
            "values.records": "DAY WEEK Claim Record RunConflict RunStore Store StoredRun read_rows",
            "values.waiting": "ApprovalExpired Suspend Suspended WaitingCall",
        },
    )
