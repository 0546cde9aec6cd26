"""The I/O layer, the only code with sockets, disks and clocks: model clients, stores, drivers."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .agent import Agent
    from .agent_loop import StreamItem
    from .answers import Answer, NoAnswer
    from .approvals import approve_call, deny_call, supply_result
    from .auxiliary import Auxiliary
    from .client import ModelClient
    from .conversation import AgentConversation
    from .http import StreamedBody
    from .http_client import HttpTransport
    from .jail import disk_jail
    from .key_command import KeyCommand, KeyCommandError
    from .model_protocol import Model
    from .otel import OtelObserver
    from .runner import Runner
    from .stored_approvals import StoredApprovals
    from .stores import open_store
    from .trace_file import TraceRetention
    from .trace_observer import TraceObserver
    from .translation_cache import TranslationCache
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "agent": ("Agent",),
            "agent_loop": ("StreamItem",),
            "answers": ("Answer", "NoAnswer"),
            "auxiliary": ("Auxiliary",),
            "conversation": ("AgentConversation",),
            "model_protocol": ("Model",),
            "approvals": ("approve_call", "deny_call", "supply_result"),
            "runner": ("Runner",),
            "client": ("ModelClient",),
            "stored_approvals": ("StoredApprovals",),
            "stores": ("open_store",),
            "jail": ("disk_jail",),
            "key_command": ("KeyCommand", "KeyCommandError"),
            "otel": ("OtelObserver",),
            "trace_file": ("TraceRetention",),
            "trace_observer": ("TraceObserver",),
            "translation_cache": ("TranslationCache",),
            "http": ("StreamedBody",),
            "http_client": ("HttpTransport",),
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
