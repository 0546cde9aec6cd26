"""The I/O layer, the only code with sockets, disks and clocks: model clients, stores, drivers."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .agent.agent import Agent as Agent
    from .agent.answers import Answer as Answer
    from .agent.answers import NoAnswer as NoAnswer
    from .agent.auxiliary import Auxiliary as Auxiliary
    from .agent.checkpoints import approve_call as approve_call
    from .agent.checkpoints import deny_call as deny_call
    from .agent.checkpoints import supply_result as supply_result
    from .agent.conversation import AgentConversation as AgentConversation
    from .agent.findings import merge_findings as merge_findings
    from .agent.loop import StreamItem as StreamItem
    from .executors import ProcessPool as ProcessPool
    from .executors import open_results as open_results
    from .http.client import HttpTransport as HttpTransport
    from .http.transport import StreamedBody as StreamedBody
    from .model.client import ModelClient as ModelClient
    from .model.interface import Model as Model
    from .model.key_command import KeyCommand as KeyCommand
    from .model.key_command import KeyCommandError as KeyCommandError
    from .model.translation_cache import TranslationCache as TranslationCache
    from .stores import open_store as open_store
    from .tools.isolation import disk_jail as disk_jail
    from .tools.runner import Runner as Runner
    from .tools.stored_approvals import StoredApprovals as StoredApprovals
    from .trace.file import TraceRetention as TraceRetention
    from .trace.observer import TraceObserver as TraceObserver
    from .trace.otel import OtelObserver as OtelObserver
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "agent.agent": "Agent",
            "agent.answers": "Answer NoAnswer",
            "agent.auxiliary": "Auxiliary",
            "agent.checkpoints": "approve_call deny_call supply_result",
            "agent.conversation": "AgentConversation",
            "agent.findings": "merge_findings",
            "agent.loop": "StreamItem",
            "executors": "ProcessPool open_results",
            "http.client": "HttpTransport",
            "http.transport": "StreamedBody",
            "model.client": "ModelClient",
            "model.interface": "Model",
            "model.key_command": "KeyCommand KeyCommandError",
            "model.translation_cache": "TranslationCache",
            "stores": "open_store",
            "tools.isolation": "disk_jail",
            "tools.runner": "Runner",
            "tools.stored_approvals": "StoredApprovals",
            "trace.file": "TraceRetention",
            "trace.observer": "TraceObserver",
            "trace.otel": "OtelObserver",
        },
    )
