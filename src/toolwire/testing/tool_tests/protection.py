"""The decision whether tools with effects may be called. Separate because functions and servers share it."""

from __future__ import annotations

from ...ir.errors import ConfigError
from .report import Protection
from .settings import ToolTestSettings

__all__ = ["require_protection"]


def require_protection(settings: ToolTestSettings, available: Protection) -> Protection:
    """Raise ConfigError if tools with effects would run without the protection of the kernel, unless that is allowed."""
    if settings.include_writes and available != "landlock" and not settings.unprotected:
        missing = (
            "this system has no Landlock" if available == "hook" else "this server cannot be confined with Landlock"
        )
        raise ConfigError(
            f"--include-writes: {missing}, so that calls could change your files",
            hint="give --unprotected to call tools with effects anyway",
        )
    return available
