"""Server-side HTTP that the gateway and MCP servers share: request reading, access and origin policy, disconnects."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .access import AccessDenied, Guard, OriginPolicy
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "access": ("AccessDenied", "Guard", "OriginPolicy"),
        },
    )

__all__ = ["AccessDenied", "Guard", "OriginPolicy"]
