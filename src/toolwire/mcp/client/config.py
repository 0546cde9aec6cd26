"""The configuration of servers: the `mcpServers` format that all clients share, and a few settings of toolwire.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."]},
                    "wiki":  {"url": "https://wiki.example.com/mcp", "headers": {"Authorization": "Bearer ${WIKI_TOKEN}"}}}}

`${NAME}` and `${NAME:-default}` are environment variables. A server with `disabled` is skipped. Settings of toolwire:
`trusted`, `timeout`, `start_timeout`, `resources`, `protocol`, `reconnects`, `tools`. Settings of other clients are ignored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...stream.strict import type_label
from ...wire.mcp.versions import KNOWN

_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-((?:(?!\$\{)[^}])*+))?\}")
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class ServerSpec(Value, frozen=True):
    """One server: a `command`, or a `url`.

    `trusted`: believe its annotations, so that a tool may have a weaker effect than a write. `timeout`: seconds for
    one call. `start_timeout`: seconds that the start of an `McpServers` waits for this server; after that it connects in the
    background. An attempt to connect ends after the longer of both. `protocol`: "auto", or the only version to use. `reconnects`: the number of attempts to reopen a broken
    connection before the server is given up. `resources`: offer its resources as tools. `tools`: only offer these, by
    the server's names.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    trusted: bool = False
    timeout: float = 60.0  # seconds, as for other tools (`Options.timeout`)
    protocol: str = "auto"
    reconnects: int = 3  # after 0.25, 0.5 and 1 s (`connection._PAUSE`): a restart of a local process
    resources: bool = False
    tools: tuple[str, ...] | None = None
    start_timeout: float = 10.0  # a local server starts in a second; a package runner may first download it

    def __post_init__(self) -> None:
        """Raise ConfigError for contradictory or invalid settings."""
        if (self.command is None) == (self.url is None):
            raise ConfigError(f"server {self.name!r} must have either a command or a url, not both")
        for setting, seconds in (("timeout", self.timeout), ("start_timeout", self.start_timeout)):
            if seconds <= 0:
                raise ConfigError(f"{setting} of server {self.name!r} must be positive, got {seconds}")
        if self.protocol != "auto" and self.protocol not in KNOWN:
            raise ConfigError(f"unknown MCP version {self.protocol!r}", hint=f"use auto, {', '.join(KNOWN)}")
        if self.url is not None:
            _check_url(self.url, self.name)

    @property
    def connect_timeout(self) -> float:
        """Seconds for one attempt to connect: a short limit for calls must not stop a server that starts slowly."""
        return max(self.timeout, self.start_timeout)

    @property
    def label(self) -> str:
        """The name with the origin of the URL or the command, for errors. Paths and arguments may contain secrets."""
        if self.url is None:
            return f"{self.name} ({self.command})"
        parts = urlsplit(self.url)
        return f"{self.name} ({parts.scheme}://{parts.netloc.rpartition('@')[2]})"

    @classmethod
    def parse(cls, target: str, *more: str, name: str = "server", **settings: JSON) -> ServerSpec:
        """Parse a URL, or a command and its arguments."""
        if re.match(r"https?://", target):
            return cls(name, url=target, **settings)
        return cls(name, command=target, args=more, **settings)


def _check_url(url: str, name: str) -> None:
    """Reject URLs that are not HTTP, and unencrypted URLs of other machines: headers may contain secrets.

    Raise ConfigError for them.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"url of server {name!r} must be an HTTP URL, got {url!r}")
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        raise ConfigError(
            f"url of server {name!r} is not encrypted", hint="use https://; http:// is only allowed for this machine"
        )


def read_config(document: JSON, environment: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    """Read the servers of a configuration without disabled ones. Raise ConfigError with the location of the problem."""
    servers = document.get("mcpServers") if type(document) is dict else None
    if type(servers) is not dict:
        raise ConfigError("no mcpServers in the configuration", hint='{"mcpServers": {"name": {"command": …}}}')
    found = []
    for name, entry in servers.items():
        try:
            if type(entry) is not dict:
                raise ConfigError(f"expected an object, got {type_label(entry)}")
            if entry.get("disabled") is not True:
                found.append(_make_spec(name, entry, environment))
        except ConfigError as error:
            raise error.within("mcpServers", name) from None
    return tuple(found)


def _make_spec(name: str, entry: Object, environment: Mapping[str, str]) -> ServerSpec:
    """Convert one entry of `mcpServers`, including the forms of other clients (`serverUrl`, a command as a list).

    Environment variables are expanded. Raise ConfigError for a value of a wrong type.
    """
    entry = _expand_variables(entry, environment)
    command, args = entry.get("command"), entry.get("args") or []
    if type(command) is list:  # some clients write the command and its arguments as one list
        command, args = (command[0] if command else ""), [*command[1:], *args]
    url = next((entry[key] for key in ("url", "serverUrl", "httpUrl") if key in entry), None)
    picked = entry.get("tools")
    return ServerSpec(
        name,
        _check_type("command", command, str),
        tuple(_check_strings("args", args)),
        _check_string_map("env", entry.get("env") or {}),
        _check_type("cwd", entry.get("cwd"), str),
        _check_type("url", url, str),
        _check_string_map("headers", entry.get("headers") or {}),
        _check_type("trusted", entry.get("trusted"), bool) or False,
        float(_check_type("timeout", entry.get("timeout"), int, float) or 60.0),
        _check_type("protocol", entry.get("protocol"), str) or "auto",
        3 if entry.get("reconnects") is None else _check_type("reconnects", entry["reconnects"], int),
        _check_type("resources", entry.get("resources"), bool) or False,
        None if type(picked) is not list else tuple(_check_strings("tools", picked)),
        float(_check_type("start_timeout", entry.get("start_timeout"), int, float) or 10.0),
    )


def _expand_variables(value: JSON, environment: Mapping[str, str]) -> JSON:
    if type(value) is str:
        return _VARIABLE.sub(lambda found: _expand_variable(found, environment), value)
    if type(value) is dict:
        return {key: _expand_variables(item, environment) for key, item in value.items()}
    return [_expand_variables(item, environment) for item in value] if type(value) is list else value


def _expand_variable(found: re.Match[str], environment: Mapping[str, str]) -> str:
    value = environment.get(found[1], found[2])
    if value is None:
        raise ConfigError(f"environment variable {found[1]} is not set", hint=f"export {found[1]}=…")
    return value


def _check_type(key: str, value: JSON, *types: type) -> JSON:
    if value is None or type(value) in types:
        return value
    raise ConfigError(f"expected {' or '.join(item.__name__ for item in types)}, got {type_label(value)}").within(key)


def _check_strings(key: str, values: JSON) -> list[str]:
    if type(values) is list and all(type(item) is str for item in values):
        return values
    raise ConfigError("expected an array of strings").within(key)


def _check_string_map(key: str, values: JSON) -> dict[str, str]:
    if type(values) is dict and all(type(item) is str for item in values.values()):
        return values
    raise ConfigError("expected an object of strings").within(key)


def target_spec(name: str, target: str, headers: Mapping[str, str] | None = None) -> ServerSpec:
    """Return the server at a URL, or the one that a command line starts."""
    if re.match(r"https?://", target):
        return ServerSpec(name, url=target, headers=dict(headers or {}))
    command, *arguments = split_command(target)
    return ServerSpec(name, command=command, args=tuple(arguments))


def split_command(line: str) -> list[str]:
    """Split the command line of a server; ConfigError if it is empty or malformed."""
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"invalid command line: {error}") from None
    if not arguments:
        raise ConfigError("no server given", hint='give a URL, or a command in quotes: "npx -y my-server"')
    return arguments
