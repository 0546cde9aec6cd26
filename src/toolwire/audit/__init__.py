"""Portability rules for tools, requests, code and MCP configurations, and reports of their findings."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .findings import Finding as Finding
    from .provider_rules import Violation as Violation
    from .provider_rules import check_body as check_body
    from .tools import audit_tools as audit_tools
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "findings": "Finding",
            "provider_rules": "Violation check_body",
            "tools": "audit_tools",
        },
    )
