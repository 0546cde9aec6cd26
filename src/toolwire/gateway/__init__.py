"""A gateway over HTTP, for clients and upstreams of any wire (extra `gateway`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .app import Gateway, ToolBindings
    from .gateway_tools import GatewayTools
    from .observe.request_log import RequestLog, Sink
    from .observe.telemetry import Telemetry, open_telemetry
    from .observe.usage import UsageRow
    from .observe.usage_stores import open_usage
    from .settings import Settings
    from .settings_file import load_settings
    from .settings_parse import parse_settings
    from .shared.state import usage_address
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "app": ("Gateway", "ToolBindings"),
            "settings": ("Settings",),
            "settings_file": ("load_settings",),
            "settings_parse": ("parse_settings",),
            "gateway_tools": ("GatewayTools",),
            "observe.request_log": ("RequestLog", "Sink"),
            "observe.telemetry": ("Telemetry", "open_telemetry"),
            "observe.usage": ("UsageRow",),
            "observe.usage_stores": ("open_usage",),
            "shared.state": ("usage_address",),
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
