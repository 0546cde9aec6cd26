"""Select MCP servers on the command line: a URL, a command line, a file of functions, or a file of `mcpServers`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError

if TYPE_CHECKING:
    from ..mcp.client.config import ServerSpec
    from ..mcp.client.http import Authorizer
    from ..mcp.client.servers import McpServers

__all__ = ["add_server_options", "add_target", "connect_servers", "open_servers", "parse_spec", "positive_seconds"]

_MAX_TIMEOUT = 86_400  # seconds


def add_target(parser: Any, *, files: bool = True) -> None:
    """Add the arguments that select a server and its options."""
    what = "a URL, a command line in quotes, a file of functions" + (", or a file of mcpServers" if files else "")
    parser.add_argument("target", metavar="SERVER", help=what)
    add_server_options(parser)


def positive_seconds(text: str) -> float:
    """Parse a duration for argparse: a positive number of seconds, at most a day."""
    seconds = float(text)
    if not 0 < seconds <= _MAX_TIMEOUT:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {_MAX_TIMEOUT}, got {text}")
    return seconds


def add_server_options(parser: Any, *, timeout: float = 60.0) -> None:
    """Add the options of a server: `parser` is a parser or a group of options, `timeout` the default of a request."""
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="HTTP header for a URL; ${VARIABLE} is expanded",
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable for a command"
    )
    parser.add_argument("--protocol", default="auto", metavar="VERSION", help="use only this protocol version (auto)")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=timeout,
        metavar="SECONDS",
        help=f"timeout of a request ({timeout:g})",
    )
    parser.add_argument("--login", action="store_true", help="log in with the browser if the server requires it")


def parse_spec(target: str, arguments: argparse.Namespace) -> ServerSpec:
    """Return the configuration of a server: a URL, a command line, or a file of functions."""
    import os

    from ..mcp.client.config import read_config, split_command

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
    out = {}
    for one in values:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise ConfigError(f"invalid value {one!r} for {option}", hint=f"use {option} NAME=VALUE")
        out[name] = value
    return out


def open_servers(arguments: argparse.Namespace, **options: Any) -> McpServers:
    """Return the servers that `add_target` selects."""
    return connect_servers(arguments.target, arguments, **options)


def connect_servers(target: str, arguments: argparse.Namespace, **options: Any) -> McpServers:
    """Return the servers of a `mcpServers` file, or the one server given. One server must be reachable (`strict`)."""
    from ..mcp.client.servers import McpServers

    if target.endswith(".json") and Path(target).is_file():
        return McpServers.from_config(target, **options)
    logins: dict[str, Authorizer] = {}
    if arguments.login:
        from ..mcp.client.login import Browser, Login

        logins["server"] = Login(Browser())
    return McpServers([parse_spec(target, arguments)], strict=True, logins=logins, **options)
