"""Decode bytes into documents: SSE and NDJSON framing, strict JSON, broken JSON, and partial JSON. Sans-IO.

Every decoder here gives the same result for any chunking of its input, in time linear in the input.
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .repair import repair_json as repair_json
    from .scanner import ArgumentWatch as ArgumentWatch
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"repair": "repair_json", "scanner": "ArgumentWatch"})
