"""Targets on the command line that run code: a file of functions, or MCP servers.

An MCP server is given by a URL, a command line, a file of functions, or a file of `mcpServers`.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ..terminal.options import add_flag, add_list

if TYPE_CHECKING:
    import ast
    from types import ModuleType

    from ...mcp.client.config import ServerSpec
    from ...mcp.client.http import Authorizer
    from ...mcp.client.servers import McpServers
    from ...run.values.records import Store


# Recognise and load a file of functions, and open the store for the records of calls.


DEFAULT_TTL = 86400.0  # seconds; a day, so that a call is not repeated when work continues the next morning


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
    """Import the file as a module, registered under its name, with its folder at the end of `sys.path`.

    `hint` is for a file that cannot be read. Raises `ConfigError` if it is missing or fails.
    """
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
        if isinstance(error, ModuleNotFoundError):
            hint = f"install it for {sys.executable}, or give a command that runs the file with its own Python"
            raise ConfigError(f"cannot load {file}: {error}", hint=hint) from error
        raise ConfigError(f"cannot load {file}: {type(error).__name__}: {error}") from error
    return module


def defines_tools(source: str) -> bool:
    """Return True for a file of tools, which is safe to import: it imports toolwire, or it only defines functions.

    Other programs are not imported for an audit, because the import could run them.
    """
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
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [statement.module or "."] if isinstance(statement, ast.ImportFrom) else []


def _only_defines(statement: ast.stmt) -> bool:
    """Return True for a definition, an import, a docstring, or a constant."""
    if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)):
        return not any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(statement))
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return isinstance(statement, definitions)


def store_url(url: str | None) -> str:
    """Return the address of a store; without one, the user's default store."""
    return url or str(_state_folder() / "runs.db")


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "toolwire"


def open_store_at(url: str | None, *, must_exist: bool = False) -> Store:
    """Open the store at a URL; without one, the user's default store, which is empty until a command writes to it.

    Raises `ConfigError` if `must_exist` and the file of the URL does not: opening it would create it.
    """
    from ...net.stores import open_store
    from ...net.stores.address import redact

    if url:
        path = url.removeprefix("sqlite:///")
        if must_exist and "://" not in path and path != "memory:" and not Path(path).exists():
            raise ConfigError(f"there is no store {redact(url, url)}", hint="name the file that --store had in the run")
        return open_store(url)
    state = _state_folder()
    if must_exist and not (state / "runs.db").exists():
        return open_store("memory:")
    state.mkdir(parents=True, exist_ok=True)
    return open_store(str(state / "runs.db"))


_MAX_TIMEOUT = 86_400  # seconds; a day, beyond which a value is a slip


def add_target(parser: Any, *, files: bool = True) -> None:
    """Add the arguments that select a server and its options."""
    what = "a URL, a command line in quotes, a file of functions" + (", or a file of mcpServers" if files else "")
    parser.add_argument("target", metavar="SERVER", help=what)
    add_server_options(parser)


def positive_seconds(text: str) -> float:
    """Parse a duration for argparse: a positive number of seconds, at most a day.

    Raise ArgumentTypeError for another number.
    """
    seconds = float(text)
    if not 0 < seconds <= _MAX_TIMEOUT:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {_MAX_TIMEOUT}, got {text}")
    return seconds


def add_server_options(parser: Any, *, timeout: float = 60.0) -> None:
    """Add the options for MCP servers to a parser or a group; `timeout` is the default of a request in seconds."""
    add_list(parser, "--header", metavar="NAME=VALUE", help="HTTP header for a URL; ${VARIABLE} is expanded")
    add_list(parser, "--env", metavar="NAME=VALUE", help="environment variable for a command")
    parser.add_argument("--protocol", default="auto", metavar="VERSION", help="use only this protocol version (auto)")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=timeout,
        metavar="SECONDS",
        help=f"timeout of a request ({timeout:g})",
    )
    add_flag(parser, "--login", "log in with the browser if the server requires it")


def parse_spec(target: str, arguments: argparse.Namespace) -> ServerSpec:
    """Return the configuration of a server: a URL, a command line, or a file of functions, which is served by toolwire.

    Raises `ConfigError` for invalid options.
    """
    from ...mcp.client.config import read_config, split_command

    entry: dict[str, Any] = {"protocol": arguments.protocol, "timeout": arguments.timeout}
    if re.match(r"https?://", target):
        entry |= {"url": target, "headers": _parse_pairs("--header", arguments.header)}
    elif target.endswith(".py") and Path(target).is_file():
        command = [sys.executable, "-m", "toolwire", "mcp", "serve", target]
        entry |= {"command": command, "env": _parse_pairs("--env", arguments.env)}
    else:
        entry |= {"command": split_command(target), "env": _parse_pairs("--env", arguments.env)}
    (spec,) = read_config({"mcpServers": {"server": entry}}, os.environ)
    return spec


def _parse_pairs(option: str, values: list[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` texts. Raise ConfigError for any other text."""
    out = {}
    for one in values:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise ConfigError(f"invalid value {one!r} for {option}", hint=f"use {option} NAME=VALUE")
        out[name] = value
    return out


def connect_servers(target: str, arguments: argparse.Namespace, **options: Any) -> McpServers:
    """Return the servers of an `mcpServers` file, or the single server given.

    The single server must be reachable (`strict`); servers of a file may fail.
    """
    from ...mcp.client.servers import McpServers

    if target.endswith(".json") and Path(target).is_file():
        return McpServers.from_config(target, **options)
    logins: dict[str, Authorizer] = {}
    if arguments.login:
        from ...mcp.client.login import Browser, Login

        logins["server"] = Login(Browser())
    return McpServers([parse_spec(target, arguments)], strict=True, logins=logins, **options)
