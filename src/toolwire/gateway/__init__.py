"""A gateway over HTTP, for clients and upstreams of any wire (extra `gateway`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .app import Gateway as Gateway
    from .config.parsing import parse_settings as parse_settings
    from .config.settings import Settings as Settings
    from .gateway_tools import GatewayTools as GatewayTools
    from .gateway_tools import ToolBindings as ToolBindings
    from .observe.request_log import RequestLog as RequestLog
    from .observe.request_log import Sink as Sink
    from .observe.telemetry import Telemetry as Telemetry
    from .observe.telemetry import open_telemetry as open_telemetry
    from .settings_file import load_settings as load_settings
    from .state.opening import usage_address as usage_address
    from .state.usage import UsageRow as UsageRow
    from .state.usage import open_usage as open_usage
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "app": "Gateway",
            "config.parsing": "parse_settings",
            "config.settings": "Settings",
            "gateway_tools": "GatewayTools ToolBindings",
            "observe.request_log": "RequestLog Sink",
            "observe.telemetry": "Telemetry open_telemetry",
            "settings_file": "load_settings",
            "state.opening": "usage_address",
            "state.usage": "UsageRow open_usage",
        },
    )
