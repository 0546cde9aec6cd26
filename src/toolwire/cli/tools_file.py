"""A file of functions, and the place where their calls are remembered."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

    from ..run.records import Store

__all__ = ["load_tools", "store_at"]


def load_tools(file: str) -> ModuleType:
    """The module in that file."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"cannot read {file}", hint="give a Python file with your functions")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not Python", hint="give a file that ends in .py")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the author's file does
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def store_at(url: str | None) -> Store:
    """The store at an address; without one, the user's own."""
    from ..net.stores import open_store

    if url:
        return open_store(url)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "toolwire"
    state.mkdir(parents=True, exist_ok=True)
    return open_store(str(state / "runs.db"))
