"""The models of a gateway for each client, and the shell commands that start the clients with them.

Models and limits come from the settings file or the running gateway, so that commands name only models that exist.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import aclosing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from ...ir.errors import ProtocolError
from ...ir.response import Fault, UpstreamError
from ...ir.terminal import neutralise_line
from ..terminal.layout import text_width, wrap_text
from ..terminal.options import CONFIG
from ..terminal.output import command_lines, terminal_width

if TYPE_CHECKING:
    from ...gateway.config.settings import ModelRow, Settings


# A coding agent needs models that accept tools, and a context of tens of thousands of tokens. Claude Code also
# requests a small model in the background, which must exist, too.


_SMALL = frozenset({"haiku", "mini", "nano", "flash", "lite", "small", "fast", "tiny"})
_SHORT_CONTEXT = ("local", "toolken")  # providers whose models cannot hold the prompt of a coding agent
# The names that a client requests without a setting: they decide whether a pattern of the settings serves the client.
_OWN_NAMES = {
    "claude": ("claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"),
    "codex": ("gpt-5.6-codex",),
    "gemini": ("gemini-3-pro-preview", "gemini-3-flash-preview"),
}
_FAMILIES = {"claude": ("claude",), "codex": ("codex", "gpt"), "gemini": ("gemini",)}
_PROVIDERS = {"claude": "anthropic", "codex": "openai", "gemini": "gemini"}
_PLACEHOLDER = "MODEL"


class AvailableModels(NamedTuple):
    """The models of a gateway, in the order of the settings."""

    names: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()  # those that a coding agent can use
    agent_patterns: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()  # upstreams whose models have no names of their own; `upstream/model` works
    requires_key: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.agent_patterns or self.upstreams)


class ChosenModels(NamedTuple):
    """The models for a client; None if the client's own names work."""

    main: str | None
    small: str | None

    @property
    def is_placeholder(self) -> bool:
        """True if the user has to replace a part of the name."""
        return self.main is not None and self.main.endswith(f"/{_PLACEHOLDER}")


def list_models(settings: Settings, upstreams: tuple[str, ...] = ()) -> AvailableModels:
    """List the models of the settings. `upstreams` are found in the environment, if the settings have none."""
    usable = {name: row for name, row in settings.models.items() if _serves_agents(row, settings)}
    plain = tuple(name for name in settings.models if not _is_pattern(name))
    return AvailableModels(
        plain,
        tuple(name for name in plain if name in usable),
        tuple(name for name in usable if _is_pattern(name)),
        () if settings.models else (upstreams or tuple(settings.upstreams)),
        bool(settings.keys),
    )


def choose_models(client: str, available: AvailableModels) -> ChosenModels | None:
    """Return the models for a coding agent, or None if it cannot work with any of them.

    Models of its own family come first, and small models serve its background tasks. (None, None): the gateway accepts
    the agent's own model names.
    """
    names = available.agent_names
    family = [name for name in names if any(mark in name.lower() for mark in _FAMILIES[client])] or list(names)
    if family:
        large = [name for name in family if not _is_small(name)]
        main = (large or family)[0]
        return ChosenModels(main, next((name for name in family if _is_small(name)), main))
    if all(any(fnmatchcase(name, pattern) for pattern in available.agent_patterns) for name in _OWN_NAMES[client]):
        return ChosenModels(None, None)
    if available.upstreams:
        provider = _PROVIDERS[client]
        upstream = provider if provider in available.upstreams else available.upstreams[0]
        return ChosenModels(f"{upstream}/{_PLACEHOLDER}", f"{upstream}/{_PLACEHOLDER}")
    return None


def _serves_agents(row: ModelRow, settings: Settings) -> bool:
    upstreams = [target.upstream for target in row.targets] or [row.upstream or ""]
    providers: Mapping[str, str | None] = {name: upstream.provider for name, upstream in settings.upstreams.items()}
    return row.tools and any(providers.get(name) not in _SHORT_CONTEXT for name in upstreams)


def _is_small(name: str) -> bool:
    return not _SMALL.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")


_TIMEOUT = 2.0  # seconds; the gateway is on this machine or near it, and the command waits
_MAX_DESCRIPTION = 64 * 1024  # bytes; ours have a few hundred


class ModelLimits(NamedTuple):
    """The tokens of prompt and answer together, and of the answer; None if unknown."""

    window: int | None = None
    max_output: int | None = None


UNKNOWN_LIMITS = ModelLimits()


def find_models(url: str, key: str, config: str | None = None) -> AvailableModels:
    """Return the models of the settings file `config`, else of the gateway at `url`, else of `toolwire.toml`.

    Raise UpstreamError if the gateway rejects the key, or if it does not list its models and there is no settings file.
    """
    if config is not None:
        return _read_models(Path(config))
    listed = _read_models(Path(CONFIG)) if Path(CONFIG).is_file() else None
    try:
        names = asyncio.run(_request_models(url, key))
    except UpstreamError as error:
        if listed is None or error.fault.kind == "authentication":
            raise
        return listed
    if listed is not None and set(names) <= set(listed.names):  # the file also has facts that the gateway does not list
        agent_names = tuple(name for name in listed.agent_names if name in names)
        return listed._replace(agent_names=agent_names, requires_key=False)
    return AvailableModels(names, names)


def check_key(url: str, key: str) -> None:
    """Raise UpstreamError if the gateway rejects the key. A gateway that cannot be reached does not reject it."""
    try:
        asyncio.run(_request_models(url, key))
    except UpstreamError as error:
        if error.fault.kind == "authentication":
            raise


def find_limits(url: str, key: str, model: str | None, config: str | None = None) -> ModelLimits:
    """Return the limits of a model, from the same sources as `find_models`."""
    if model is None:
        return UNKNOWN_LIMITS
    limits = UNKNOWN_LIMITS if config is not None else asyncio.run(_request_limits(url, key, model))
    path = Path(config or CONFIG)
    return _read_limits(path, model) if limits == UNKNOWN_LIMITS and path.is_file() else limits


def _read_limits(path: Path, model: str) -> ModelLimits:
    from ...gateway.settings_file import load_settings

    return limits_of(load_settings(path), model)


def limits_of(settings: Settings, model: str) -> ModelLimits:
    """Return the limits of a model in the settings.

    Only the first target counts. The window is the smaller of the model's and the upstream's.
    """
    from ...gateway.config.settings import UpstreamRow
    from ...gateway.routing.upstreams import find_vendor
    from ...net.model.endpoint_settings import load_capability_rows
    from ...wire import get
    from ...wire.models.profiles import match_capabilities, overlay

    row = settings.models.get(model)
    if row is None:
        return UNKNOWN_LIMITS
    target = row.targets[0] if row.targets else row
    name = target.upstream or ""
    upstream = settings.upstreams.get(name) or UpstreamRow(name)
    vendor = find_vendor(name, upstream)
    rows = () if settings.capabilities_file is None else load_capability_rows(settings.capabilities_file)
    wire = get(upstream.wire or vendor.wire)
    known = match_capabilities(wire, target.model or model, vendor=vendor.name, rows=rows).capabilities
    facts = overlay(row.capabilities, known)
    known_windows = [window for window in (facts.window, upstream.context_max) if window is not None]
    return ModelLimits(min(known_windows, default=None), facts.max_output)


async def _request_limits(url: str, key: str, model: str) -> ModelLimits:
    """Ask the gateway for a model's limits; unknown if it does not answer.

    Only the format of Anthropic has both limits.
    """
    from ...net.http.client import HttpTransport
    from ...stream.strict import parse_object

    address = f"{url}/v1/models/{quote(model, safe='')}"
    async with aclosing(HttpTransport(environment={})) as transport:
        try:
            headers = {"anthropic-version": "2023-06-01"}
            async with transport.send("GET", address, headers, {"x-api-key": key}, b"", _TIMEOUT) as reply:
                received = bytearray()
                while len(received) <= _MAX_DESCRIPTION and (piece := await reply.read()):
                    received += piece
            document: Any = parse_object(bytes(received)) if reply.status == 200 else {}
        except (OSError, TimeoutError, ProtocolError):
            return UNKNOWN_LIMITS
    values = [document.get(field) for field in ("max_input_tokens", "max_tokens")]
    return ModelLimits(*[value if type(value) is int and value > 0 else None for value in values])


def _read_models(path: Path) -> AvailableModels:
    from ...gateway.routing.upstreams import upstreams_from_environment
    from ...gateway.settings_file import load_settings

    settings = load_settings(path)
    return list_models(settings, () if settings.upstreams else tuple(upstreams_from_environment(os.environ)))


async def _request_models(url: str, key: str) -> tuple[str, ...]:
    """Return the names of the models that the key may use at the gateway.

    Raises `UpstreamError` if it refuses or is too slow.
    """
    from ...net.model.endpoint import endpoint_of
    from ...net.model.server_facts import list_models
    from ...wire.models.vendors import COMPATIBLE

    endpoint = endpoint_of(COMPATIBLE, "any", {}, base_url=f"{url}/v1", key=key, insecure=True)
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await list_models(endpoint, {}, _TIMEOUT)
    except TimeoutError:
        message = f"{url} did not list its models within {_TIMEOUT:g} s"
        raise UpstreamError(Fault("timeout", message, 504)) from None


# The shell commands that `toolwire serve` prints at its start: one per client that can use the configured models.


ANY_KEY = "local"  # a gateway without keys accepts any key
_MAX_NAMES = 6  # they share one line of the start message


def client_commands(url: str, available: AvailableModels, key: str = ANY_KEY) -> list[str]:
    """Return one line per client, for every protocol. Coding agents that cannot use any model are omitted.

    If a line is wider than the terminal, commands follow the names on lines of their own. They and the comments wrap.
    """
    rows = [("openai", f"OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}")]  # Chat and Responses
    claude, codex, gemini = (choose_models(client, available) for client in ("claude", "codex", "gemini"))
    if claude is not None:
        variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": key, **claude_variables(claude)}
        rows.append(("claude", f"{shell_words(variables)} claude -p 'Read a.txt'"))
    else:  # for programs with the SDK
        rows.append(("anthropic", f"ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={key}"))
    if codex is not None:
        model = "" if codex.main is None else f" --model {shlex.quote(codex.main)}"
        command = f"toolwire serve client codex --url {url}{model}"
        if key == ANY_KEY:
            rows.append(("codex", f"{command} --write && TOOLWIRE_KEY={key} codex exec 'Read a.txt'"))
        else:  # both commands read the key
            command = f"export TOOLWIRE_KEY={key}; {command} --key-env TOOLWIRE_KEY --write"
            rows.append(("codex", f"{command} && codex exec 'Read a.txt'"))
    if gemini is not None:
        model = "" if gemini.main is None else f" -m {shlex.quote(gemini.main)}"
        variables = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key}
        rows.append(("gemini", f"{shell_words(variables)} gemini{model} -p 'Read a.txt'"))
    else:
        rows.append(("google", f"GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY={key}"))
    rows.append(("ollama", f"OLLAMA_HOST={url}"))
    lines = _lay_out([(name, neutralise_line(command)) for name, command in rows], _model_note(available))
    if available.upstreams:
        upstreams = neutralise_line(", ".join(available.upstreams))
        about = f"No model has a name here: replace MODEL by a model of the upstream ({upstreams})."
        lines += _wrap(about, "  ")
    return lines


def _lay_out(rows: list[tuple[str, str]], note: str) -> list[str]:
    """Return the lines of commands by client, with a comment after those that name no model."""
    width = max(len(name) for name, _ in rows)
    noted = ("openai", "ollama") if note else ()
    lines = [f"  {name.ljust(width)}  {command}{f'   # {note}' if name in noted else ''}" for name, command in rows]
    if max(map(text_width, lines)) <= terminal_width():
        return lines
    lines = []
    for name, command in rows:
        lines += [f"  {name}", *command_lines(command, "    "), *(_wrap(note, "    # ") if name in noted else [])]
    return lines


def _wrap(text: str, indent: str) -> list[str]:
    """Wrap prose to the terminal; a file or a pipe has no width."""
    return [indent + part for part in wrap_text(text, terminal_width() - len(indent), splits_words=False)]


def claude_variables(chosen: ChosenModels, limits: ModelLimits = UNKNOWN_LIMITS) -> dict[str, str]:
    """Return the environment variables that select the models of Claude Code, with the known limits of the main one.

    Without them it assumes its own for an unknown name: a smaller model refuses the prompt before Claude Code compacts
    it (anthropics/claude-code#57964).
    """
    if chosen.main is None or chosen.small is None:
        return {}
    variables = {"ANTHROPIC_MODEL": chosen.main, "ANTHROPIC_DEFAULT_HAIKU_MODEL": chosen.small}
    if limits.window is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(limits.window)
    if limits.max_output is not None:
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(limits.max_output)
    return variables


def shell_words(variables: dict[str, str]) -> str:
    """Format variable assignments for a shell. A value that is itself a variable stays one."""
    return " ".join(
        f"{name}={value if value.startswith('$') else shlex.quote(value)}" for name, value in variables.items()
    )


def _model_note(available: AvailableModels) -> str:
    """Return the text of a shell comment with the names of the models. Return "" if there are none."""
    if not available.names:
        return ""
    rest = len(available.names) - _MAX_NAMES
    names = ", ".join(available.names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
    return neutralise_line(f"model: {names}")
