"""The check of request bodies, for tests that send requests."""

from __future__ import annotations

from ..audit.provider_rules import Violation, check_body

__all__ = ["Violation", "check_body"]
