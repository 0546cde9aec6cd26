"""Server-side HTTP that the gateway and MCP servers share: request reading, access and origin policy, disconnects."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .access import AccessDenied as AccessDenied
    from .access import Guard as Guard
    from .access import OriginPolicy as OriginPolicy
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"access": "AccessDenied Guard OriginPolicy"})
