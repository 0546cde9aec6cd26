"""Portability rules for tools, requests, code and MCP configurations, and reports of their findings."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .findings import Finding
    from .provider_rules import Violation, check_body
    from .tools import audit_tools
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tools": ("audit_tools",),
            "findings": ("Finding",),
            "provider_rules": ("Violation", "check_body"),
        },
    )

__all__ = ["Finding", "Violation", "audit_tools", "check_body"]
