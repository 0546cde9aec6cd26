"""Rules for calls of tools with effects. Separate because functions and servers share them."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.tools import Effect
from .report import Protection
from .sandbox import ToolSandbox
from .settings import ToolTestSettings

__all__ = ["require_protection", "safe_arguments"]


def safe_arguments(effect: Effect, protection: Protection, sandbox: ToolSandbox) -> Callable[[Object], bool]:
    """Return a function that rejects arguments with which an unprotected tool with effects could destroy files."""
    if protection == "landlock" or effect in ("pure", "read"):
        return lambda _: True
    return sandbox.spares_parents


def require_protection(settings: ToolTestSettings, available: Protection) -> Protection:
    """Raise ConfigError if tools with effects would run without the protection of the kernel, unless that is allowed."""
    if settings.include_writes and available != "landlock" and not settings.unprotected:
        missing = (
            "this system has no Landlock" if available == "hook" else "this server cannot be confined with Landlock"
        )
        raise ConfigError(
            f"--include-writes: {missing}, so that calls could change your files",
            hint="`toolwire test SOURCE --include-writes --unprotected` calls them anyway",
        )
    return available
