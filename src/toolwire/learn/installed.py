"""Check that the libraries of the extra `learn` are installed, before work begins that needs them."""

from __future__ import annotations

from importlib.util import find_spec

from .._extras import install_command
from ..ir.errors import MissingExtra

__all__ = ["is_installed", "require_installed"]


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def require_installed(user: str, *modules: str) -> None:
    """Raise MissingExtra if one of the modules that `user` needs is not installed."""
    for module in modules:
        if not is_installed(module):
            raise MissingExtra(f"{user} requires {module}", hint=install_command("learn"))
