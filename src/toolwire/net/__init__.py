"""The I/O layer, the only code with sockets, disks and clocks: model clients, stores, drivers."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .agent.agent import Agent
    from .agent.answers import Answer, NoAnswer
    from .agent.auxiliary import Auxiliary
    from .agent.checkpoints import approve_call, deny_call, supply_result
    from .agent.conversation import AgentConversation
    from .agent.loop import StreamItem
    from .http.client import HttpTransport
    from .http.transport import StreamedBody
    from .model.client import ModelClient
    from .model.interface import Model
    from .model.key_command import KeyCommand, KeyCommandError
    from .model.translation_cache import TranslationCache
    from .stores import open_store
    from .tools.isolation import disk_jail
    from .tools.runner import Runner
    from .tools.stored_approvals import StoredApprovals
    from .trace.file import TraceRetention
    from .trace.observer import TraceObserver
    from .trace.otel import OtelObserver
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "agent.agent": ("Agent",),
            "agent.loop": ("StreamItem",),
            "agent.answers": ("Answer", "NoAnswer"),
            "agent.auxiliary": ("Auxiliary",),
            "agent.conversation": ("AgentConversation",),
            "model.interface": ("Model",),
            "agent.checkpoints": ("approve_call", "deny_call", "supply_result"),
            "tools.runner": ("Runner",),
            "model.client": ("ModelClient",),
            "tools.stored_approvals": ("StoredApprovals",),
            "stores": ("open_store",),
            "tools.isolation": ("disk_jail",),
            "model.key_command": ("KeyCommand", "KeyCommandError"),
            "trace.otel": ("OtelObserver",),
            "trace.file": ("TraceRetention",),
            "trace.observer": ("TraceObserver",),
            "model.translation_cache": ("TranslationCache",),
            "http.transport": ("StreamedBody",),
            "http.client": ("HttpTransport",),
        },
    )

__all__ = [
    "Agent",
    "AgentConversation",
    "Answer",
    "Auxiliary",
    "HttpTransport",
    "KeyCommand",
    "KeyCommandError",
    "Model",
    "ModelClient",
    "NoAnswer",
    "OtelObserver",
    "Runner",
    "StoredApprovals",
    "StreamItem",
    "StreamedBody",
    "TraceObserver",
    "TraceRetention",
    "TranslationCache",
    "approve_call",
    "deny_call",
    "disk_jail",
    "open_store",
    "supply_result",
]
