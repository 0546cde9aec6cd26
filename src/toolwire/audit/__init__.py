"""Portability rules for tools, requests, code and MCP configurations, and reports of their findings."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .findings import Finding
    from .tools import audit_tools
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tools": ("audit_tools",),
            "findings": ("Finding",),
        },
    )

__all__ = ["Finding", "audit_tools"]
