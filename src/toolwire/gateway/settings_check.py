"""Check settings against the environment without starting the gateway: keys, addresses, files, and upstreams.

Keys are looked up, but never part of a message.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path as File

from ..asgi.access import refuse_open
from ..ir.errors import ToolwireError
from ..ir.hints import translate_hint
from ..net.model.endpoint_settings import load_capability_rows
from .routing import Router
from .server_secret import configured_secrets
from .settings import OpenApiRow, Settings, resolve_address
from .settings_location import Path, toml_location
from .settings_shape import SettingsProblem
from .shared.cooldowns import HealthTable
from .shared.store_folder import require_folder, require_store_folder
from .tls import check_certificate
from .upstream_transports import UpstreamTransports
from .upstreams import ConfiguredUpstream, upstreams_from_environment

__all__ = ["configure_upstreams", "find_environment_problems"]

_find_variables = re.compile(r"\$\{(\w+)\}").findall
_KEYS_HINT = "run `toolwire serve keys new NAME` to make a key, or use 127.0.0.1"


def find_environment_problems(settings: Settings, environment: Mapping[str, str]) -> list[SettingsProblem]:
    """List the upstreams, addresses and files of the settings that cannot be used on this machine."""
    upstreams, problems = configure_upstreams(settings, environment)
    if not upstreams and not problems:
        hint = "add [upstreams.NAME] and [models.NAME], or set a key such as OPENAI_API_KEY"
        problems.append(SettingsProblem((), "no model is configured", hint))
    if not problems:
        problems += _attempt(("models",), lambda: _open_router(upstreams, settings))
    state, responses = settings.state, settings.responses
    addresses = (
        ("state", "url", state.url, state.url_env),
        ("state", "usage", state.usage, state.usage_env),
        ("responses", "store", responses.store, responses.store_env),
    )
    for section, name, value, variable in addresses:
        problems += _attempt((section, name), partial(_check_address, value, variable, (section, name), environment))
    if settings.log.file is not None:
        problems += _attempt(("log", "file"), partial(require_folder, settings.log.file, "[log] file"))
    problems += _attempt(("server", "certificate"), lambda: check_certificate(settings.server))
    problems += _attempt(("server", "secret"), lambda: configured_secrets(settings.server, environment))
    if not settings.keys:
        host = settings.server.host
        problems += _attempt(("server", "host"), lambda: refuse_open(host, without="keys", hint=_KEYS_HINT))
    if settings.capabilities_file is not None:
        file = settings.capabilities_file
        problems += _attempt(("capabilities_file",), lambda: load_capability_rows(file))
    return [*problems, *_check_tools(settings, environment)]


def configure_upstreams(
    settings: Settings, environment: Mapping[str, str]
) -> tuple[dict[str, ConfiguredUpstream], list[SettingsProblem]]:
    """Configure each upstream on its own, and list those that fail."""
    transports, found, problems = UpstreamTransports(environment, settings), {}, []
    for name, row in (settings.upstreams or upstreams_from_environment(environment)).items():
        try:
            found[name] = ConfiguredUpstream(name, row, transports.of(name, row), environment)
        except ToolwireError as error:
            problems.append(
                SettingsProblem(("upstreams", name), _bare_message(error), translate_hint(error.hint, "setting"))
            )
    return found, problems


def _check_address(value: str | None, variable: str | None, path: Path, environment: Mapping[str, str]) -> None:
    require_store_folder(resolve_address(value, variable, str(path[-1]), environment), toml_location(path))


def _open_router(upstreams: Mapping[str, ConfiguredUpstream], settings: Settings) -> Router:
    return Router(upstreams, settings.models, cooldown=settings.limits.cooldown, health=HealthTable(time.monotonic))


def _attempt(path: Path, action: Callable[[], object]) -> list[SettingsProblem]:
    try:
        action()
    except ToolwireError as error:
        return [SettingsProblem(path, _bare_message(error), translate_hint(error.hint, "setting"))]
    return []


def _bare_message(error: ToolwireError) -> str:
    """Return the message without the location that it begins with."""
    return re.sub(r"\A\[[^\]]*\](?: \w+)?: ", "", error.message)


def _check_tools(settings: Settings, environment: Mapping[str, str]) -> Iterator[SettingsProblem]:
    for pattern, row in settings.tools.items():
        path: Path = ("tools", pattern)
        for number, file in enumerate(row.files):
            yield from _check_file(file, (*path, "files", number))
        yield from _attempt((*path, "store"), partial(require_store_folder, row.store, "[tools] store"))
        if row.mcp is not None:
            yield from _check_file(row.mcp, (*path, "mcp"))
        for number, api in enumerate(row.openapi):
            yield from _check_api(api, (*path, "openapi", number), environment)


def _check_api(api: OpenApiRow, path: Path, environment: Mapping[str, str]) -> Iterator[SettingsProblem]:
    yield from _check_file(api.file, (*path, "file"))
    variables = [(variable, "auth_env") for variable in api.variables.values()]
    variables += [(variable, "headers") for value in api.headers.values() for variable in _find_variables(value)]
    for variable, setting in variables:
        if not environment.get(variable, "").strip():
            message = f"environment variable {variable} is not set"
            yield SettingsProblem((*path, setting), message, f"export {variable}=…")


def _check_file(name: str, path: Path) -> Iterator[SettingsProblem]:
    if not File(name).is_file():
        yield SettingsProblem(path, f"no such file: {name}", "paths are relative to the working directory")
