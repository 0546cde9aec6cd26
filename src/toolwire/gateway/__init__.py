"""A gateway over HTTP, for clients and upstreams of any wire (extra `gateway`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .app import Gateway
    from .config.parsing import parse_settings
    from .config.settings import Settings
    from .gateway_tools import GatewayTools, ToolBindings
    from .observe.request_log import RequestLog, Sink
    from .observe.telemetry import Telemetry, open_telemetry
    from .settings_file import load_settings
    from .state.opening import usage_address
    from .state.usage import UsageRow, open_usage
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "app": ("Gateway",),
            "gateway_tools": ("GatewayTools", "ToolBindings"),
            "config.settings": ("Settings",),
            "settings_file": ("load_settings",),
            "config.parsing": ("parse_settings",),
            "observe.request_log": ("RequestLog", "Sink"),
            "observe.telemetry": ("Telemetry", "open_telemetry"),
            "state.usage": ("UsageRow", "open_usage"),
            "state.opening": ("usage_address",),
        },
    )

__all__ = [
    "Gateway",
    "GatewayTools",
    "RequestLog",
    "Settings",
    "Sink",
    "Telemetry",
    "ToolBindings",
    "UsageRow",
    "load_settings",
    "open_telemetry",
    "open_usage",
    "parse_settings",
    "usage_address",
]
