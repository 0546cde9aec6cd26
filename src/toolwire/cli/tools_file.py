"""Recognise and load a file of functions, and open the store for the records of calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    import ast
    from types import ModuleType

    from ..run.values.records import Store

__all__ = ["DEFAULT_TTL", "add_store_option", "add_ttl_option", "defines_tools", "load_tools", "open_store_at"]

DEFAULT_TTL = 86400.0  # seconds


def add_store_option(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the option for the store, which `open_store_at` opens."""
    parser.add_argument("--store", metavar="URL", help=f"{about} (default: ~/.local/state/toolwire/runs.db)")


def add_ttl_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the time to live of recorded calls."""
    parser.add_argument(
        "--ttl",
        type=float,
        default=DEFAULT_TTL,
        metavar="SECONDS",
        help="keep the result of a recorded call for this time; after it, an identical call runs again (86400)",
    )


def load_tools(file: str, hint: str = "give a Python file with your functions") -> ModuleType:
    """Import the file as a module. `hint`: for a file that cannot be read."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"cannot read {file}: not a file", hint=hint)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file", hint="give a file that ends in .py")
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # last: the file may import modules of its folder, but these hide no others
        sys.path.append(folder)
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the file may raise anything
        raise ConfigError(f"cannot load {file}: {type(error).__name__}: {error}") from error
    return module


def defines_tools(source: str) -> bool:
    """Return True for a file of tools, which is safe to import: it imports toolwire, or it only defines functions.

    Other programs are not imported for an audit, because the import could run them.
    """
    import ast

    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    imported = {name.split(".")[0] for statement in body for name in _imported_names(statement)}
    has_function = any(isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) for one in body)
    if "toolwire" in imported:
        return has_function
    return has_function and imported <= sys.stdlib_module_names and all(map(_only_defines, body))


def _imported_names(statement: ast.stmt) -> list[str]:
    import ast

    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [statement.module or "."] if isinstance(statement, ast.ImportFrom) else []


def _only_defines(statement: ast.stmt) -> bool:
    """Return True for a definition, an import, a docstring, or a constant."""
    import ast

    if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)):
        return not any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(statement))
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return isinstance(statement, definitions)


def open_store_at(url: str | None) -> Store:
    """Open the store at a URL; without one, the user's default store."""
    from ..net.stores import open_store

    if url:
        return open_store(url)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "toolwire"
    state.mkdir(parents=True, exist_ok=True)
    return open_store(str(state / "runs.db"))
