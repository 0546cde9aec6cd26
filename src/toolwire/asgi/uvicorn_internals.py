"""The parts of uvicorn that its documentation does not promise, and the check that the installed version has them.

`limited_http` and `request_cycle` extend uvicorn's protocol, and the servers extend its `Server`. All names that they use are listed
here. Importing this module raises ConfigError for a version without them, so that a server refuses to start, instead
of failing at some request.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from inspect import isfunction
from typing import Any

import uvicorn

from .._extras import install_command
from ..ir.errors import ConfigError

try:
    from uvicorn.protocols.http import httptools_impl
    from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
    from uvicorn.protocols.http.httptools_impl import (
        HEADER_RE,
        HEADER_VALUE_RE,
        STATUS_LINE,
        HttpToolsProtocol,
        RequestResponseCycle,
    )
except ImportError as error:
    if error.name == "httptools":
        raise
    raise ConfigError(
        f"uvicorn {uvicorn.__version__} is not supported: {error}",
        hint=install_command("gateway"),
    ) from None

__all__ = [
    "HEADER_RE",
    "HEADER_VALUE_RE",
    "HIGH_WATER_LIMIT",
    "STATUS_LINE",
    "VERSIONS",
    "FlowControl",
    "HttpToolsProtocol",
    "RequestResponseCycle",
    "check_uvicorn",
    "used_names",
]

VERSIONS = ((0, 46), (0, 55))
"""The first version that works, and the first that is not tested; pyproject.toml has the same bounds."""
_USED_NAMES = {
    "HttpToolsProtocol": (
        "_start_asgi_task app app_state client config connection_lost connection_made connections cycle data_received flow"
        " headers loop on_body on_header on_headers_complete on_message_begin on_message_complete on_response_complete"
        " on_url parser pause_writing pipeline resume_writing scheme server server_state"
        " shutdown timeout_keep_alive timeout_keep_alive_handler transport url"
    ).split(),
    "RequestResponseCycle": (
        "access_log access_logger body chunked_encoding default_headers disconnected expected_content_length flow"
        " keep_alive logger message_event more_body on_response receive response_complete response_started run_asgi scope"
        " send transport waiting_for_100_continue"
    ).split(),
    "FlowControl": "pause_reading read_paused resume_reading write_paused".split(),
    "Server": "capture_signals config lifespan server_state servers should_exit startup".split(),
}


def used_names() -> Mapping[str, frozenset[str]]:
    """Return the attributes that are used, by class."""
    return {name: frozenset(attributes) for name, attributes in _USED_NAMES.items()}


def check_uvicorn(version: str, classes: Mapping[str, type[Any]]) -> None:
    """Raise ConfigError if the version is not supported, lacks an attribute that is used, or has an unknown one.

    Only unknown attributes of a cycle count.
    """
    (first, last) = (".".join(map(str, bound)) for bound in VERSIONS)
    hint = f"pip install 'uvicorn>={first},<{last}'"
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not VERSIONS[0] <= numbers < VERSIONS[1]:
        raise ConfigError(f"uvicorn {version} is not supported, only versions from {first} and below {last}", hint=hint)
    for name, attributes in used_names().items():
        missing = attributes - _names_in(classes[name])
        if missing:
            raise ConfigError(f"uvicorn {version} has no {name}.{min(missing)}, which is used here", hint=hint)
    # `RequestCycle` sets the attributes of the cycle itself, so a new attribute would be missing.
    unknown = _names_in_constructor(classes["RequestResponseCycle"]) - used_names()["RequestResponseCycle"]
    if unknown:
        message = f"uvicorn {version} has RequestResponseCycle.{min(unknown)}, which is not known here"
        raise ConfigError(message, hint=hint)


def _names_in_constructor(cls: type[Any]) -> set[str]:
    return set(cls.__init__.__code__.co_names) - set(dir(builtins))


def _names_in(cls: type[Any]) -> set[str]:
    """Return the members of a class, and all attributes that its methods use, also attributes of instances."""
    members = {name: member for base in cls.__mro__ for name, member in vars(base).items()}
    functions = [member for member in members.values() if isfunction(member)]
    return set(members).union(*(function.__code__.co_names for function in functions))


check_uvicorn(uvicorn.__version__, {**vars(httptools_impl), "Server": uvicorn.Server})
