"""A provider's documented constraints as code: each rule with its source, checked on the body of a request.

The package imports neither `toolwire.wire` nor `toolwire.bridge`, so that it can judge their output.
"""

from __future__ import annotations

from ..._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .constraints import Violation as Violation
    from .providers import PROVIDERS as PROVIDERS
    from .providers import check_body as check_body
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "constraints": "Violation",
            "providers": "PROVIDERS check_body",
        },
    )
