"""The environment and arguments that point a program at the gateway of `toolwire with`.

Every program gets the variables of the SDKs (`_SDK_VARIABLES`), each read in the SDK's own source. Known clients get the
least that their own settings require besides: variables, else arguments, else a temporary folder. No argument
contains the key, because other users can read arguments, and none of the user's files is changed.

A variable that would lead a client to another server, or a real key to the gateway, is replaced or removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ...ir.errors import ConfigError
from ...ir.text import dumps
from ..serve.client import KEY_VARIABLE, codex_provider, read_json, select_gemini_key
from ..serve.client_models import ChosenModels, ModelLimits, claude_variables


class SessionGateway(NamedTuple):
    """The address and key of the gateway, and the model for clients; None if the user chose none."""

    url: str
    key: str
    model: str | None
    limits: ModelLimits


class ChildCommand(NamedTuple):
    """The arguments and environment of the child."""

    arguments: list[str]
    environment: dict[str, str]


class _Client(NamedTuple):
    """A known client: its npm or PyPI package, and the function that completes its command."""

    package: str
    configure: Callable[[ChildCommand, int, SessionGateway, ExitStack], None]
    install: str


# HTTP_PROXY would also get the requests to the gateway.
_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_NO_PROXY = ("127.0.0.1", "localhost")
_REMOVED = (
    # they select another provider
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
    "GOOGLE_GENAI_USE_ENTERPRISE",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "OPENAI_API_TYPE",
    # real credentials, which the program would send to the gateway, or which go before its key
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_ADMIN_KEY",
    # proxies of LangChain's models
    "ANTHROPIC_PROXY",
    "OPENAI_PROXY",
)
_GOOGLE_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_GEMINI_SETTINGS = "settings.json"
# Options with a value of the commands that run a client, as in `npx @openai/codex exec …`. `-w` is `--with` of uvx, the
# name of a workspace for npx, and a flag of pnpx.
_RUNNERS = {
    "bunx": frozenset({"-p", "--package"}),
    "npx": frozenset("-p --package -w --workspace -c --call --registry --prefix --cache --userconfig".split()),
    "pnpx": frozenset("--package --allow-build -C --dir --registry".split()),
    "uvx": frozenset(
        "--from -w --with --with-editable --with-requirements -p --python -i --index-url --index --default-index "
        "--extra-index-url -f --find-links -c --constraints --env-file".split()
    ),
}


def child_command(
    command: Sequence[str], environment: Mapping[str, str], gateway: SessionGateway, stack: ExitStack
) -> ChildCommand:
    """Return the command and its environment for the gateway. `stack` removes temporary folders."""
    child = ChildCommand(list(command), _base_environment(environment, gateway))
    found = _find_client(command)
    if found is not None:
        position, client = found
        client.configure(child, position, gateway, stack)
    return child


def install_hint(command: Sequence[str]) -> str:
    """Return how to install a missing known client, or else the probable mistake in the command."""
    name = Path(command[0]).name
    if name in _CLIENTS:
        return _CLIENTS[name].install
    if " " in command[0]:
        return "give the command and its arguments separately, without quotes around both"
    return "check its name and PATH"


def _find_client(command: Sequence[str]) -> tuple[int, _Client] | None:
    """Return the position of a known client's name in the command, and the client; None if there is none."""
    position, name = 0, Path(command[0]).name
    if (with_value := _RUNNERS.get(name)) is not None:
        words = enumerate(pairwise(command), 1)
        position = next((at for at, (option, word) in words if option not in with_value and word[:1] != "-"), 0)
        package = command[position]
        name = package[:1] + package[1:].partition("@")[0]  # without the version
        name = next((key for key, client in _CLIENTS.items() if client.package == name), name)
    return (position, _CLIENTS[name]) if name in _CLIENTS else None


def _base_environment(environment: Mapping[str, str], gateway: SessionGateway) -> dict[str, str]:
    """Return the environment for a program with any of the SDKs."""
    url, key = gateway.url, gateway.key
    changed = {name: value for name, value in environment.items() if name not in _REMOVED}
    # google-genai logs a warning if both variables are set
    google_keys = [name for name in _GOOGLE_KEYS if environment.get(name)] or ["GEMINI_API_KEY"]
    changed |= {
        "OPENAI_BASE_URL": f"{url}/v1",  # openai (Python, JavaScript), @ai-sdk/openai, LangChain
        "OPENAI_API_BASE": f"{url}/v1",  # LiteLLM, aider, LangChain
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,  # anthropic (Python, JavaScript), @ai-sdk/anthropic, Claude Code
        "ANTHROPIC_API_URL": url,  # LangChain
        "ANTHROPIC_API_BASE": url,  # LiteLLM
        "ANTHROPIC_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": url,  # google-genai (Python, JavaScript), Gemini CLI
        **dict.fromkeys(google_keys, key),
        "CO_API_URL": url,  # cohere (Python)
        "CO_API_KEY": key,
        "OLLAMA_HOST": url,  # ollama (Python, JavaScript)
        "OLLAMA_API_BASE": url,  # LiteLLM
        "OLLAMA_API_KEY": key,
        "TOOLWIRE_URL": url,
        KEY_VARIABLE: key,
    }
    if any(environment.get(name) for name in _PROXIES):
        known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        changed["no_proxy"] = changed["NO_PROXY"] = ",".join(filter(None, (known, *_NO_PROXY)))
    return changed


def _configure_claude(child: ChildCommand, _position: int, gateway: SessionGateway, _stack: ExitStack) -> None:
    """Configure Claude Code: a key in ANTHROPIC_API_KEY must be confirmed in a dialog, a token need not.

    Its host's variables take precedence over `env` in the user's settings files.
    """
    del child.environment["ANTHROPIC_API_KEY"]
    child.environment.update(
        {
            "ANTHROPIC_AUTH_TOKEN": gateway.key,
            "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST": "1",
            **claude_variables(ChosenModels(gateway.model, gateway.model), gateway.limits),
        }
    )
    if gateway.model is not None:  # the aliases of its commands
        for alias in ("OPUS", "SONNET"):
            child.environment[f"ANTHROPIC_DEFAULT_{alias}_MODEL"] = gateway.model


def _configure_codex(child: ChildCommand, position: int, gateway: SessionGateway, _stack: ExitStack) -> None:
    """Configure Codex with overrides of its settings file, before the user's arguments, which may override them again."""
    settings: dict[str, Any] = {"model_provider": "toolwire"}
    settings |= {f"model_providers.toolwire.{name}": value for name, value in codex_provider(gateway.url).items()}
    settings |= {"model": gateway.model, "model_context_window": gateway.limits.window}
    overrides = [f"{name}={json.dumps(value)}" for name, value in settings.items() if value is not None]
    _insert(child, position, *(word for override in overrides for word in ("-c", override)))


def _configure_gemini(child: ChildCommand, _position: int, gateway: SessionGateway, stack: ExitStack) -> None:
    """Configure Gemini CLI. Only its settings file chooses between a login and the key, and it must choose.

    If the user's file does not choose the key, the client gets a temporary home: links to the entries of the user's
    `.gemini`, and a copy of the file that chooses it. Version 0.61 reads system settings only from files of root.
    """
    variables = child.environment
    variables.pop("GOOGLE_API_KEY", None)
    variables["GEMINI_API_KEY"] = gateway.key
    if gateway.model is not None:
        variables["GEMINI_MODEL"] = gateway.model
    home = Path(variables.get("GEMINI_CLI_HOME") or Path.home(), ".gemini")
    settings = select_gemini_key(home / _GEMINI_SETTINGS)
    if settings == read_json(home / _GEMINI_SETTINGS):
        return
    temporary = Path(stack.enter_context(TemporaryDirectory(prefix="toolwire-", ignore_cleanup_errors=True)))
    copy = temporary / ".gemini"
    copy.mkdir()
    for entry in home.iterdir() if home.is_dir() else ():
        if entry.name != _GEMINI_SETTINGS:
            (copy / entry.name).symlink_to(entry.absolute())
    (copy / _GEMINI_SETTINGS).write_text(dumps(settings), "utf-8")
    variables["GEMINI_CLI_HOME"] = str(temporary)


def _configure_qwen(child: ChildCommand, position: int, gateway: SessionGateway, _stack: ExitStack) -> None:
    """Configure Qwen Code: its settings file chooses how to log in, unless an argument does."""
    if gateway.model is not None:
        child.environment["OPENAI_MODEL"] = gateway.model
    if not any(word.partition("=")[0] == "--auth-type" for word in child.arguments):
        _insert(child, position, "--auth-type", "openai")


def _configure_opencode(child: ChildCommand, _position: int, gateway: SessionGateway, _stack: ExitStack) -> None:
    """Configure opencode with settings in a variable, which are merged with the user's and take precedence."""
    variable, name = "OPENCODE_CONFIG_CONTENT", gateway.model or "default"
    settings = _parse_settings(child.environment.get(variable, ""), variable)
    window, output = gateway.limits
    limit = {} if window is None else {"limit": {"context": window, "output": output or window // 4}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "toolwire",
        "options": {"baseURL": f"{gateway.url}/v1", "apiKey": gateway.key},
        "models": {name: {"tool_call": True, **limit}},
    }
    if not isinstance(settings.setdefault("provider", {}), dict):
        raise ConfigError(f"provider in {variable} must be a JSON object")
    settings["provider"]["toolwire"] = provider
    settings["model"] = settings["small_model"] = f"toolwire/{name}"
    child.environment[variable] = dumps(settings)


def _configure_aider(child: ChildCommand, _position: int, gateway: SessionGateway, _stack: ExitStack) -> None:
    if gateway.model is not None:
        child.environment["AIDER_MODEL"] = f"openai/{gateway.model}"


_CLIENTS = {
    "claude": _Client("@anthropic-ai/claude-code", _configure_claude, "npm install -g @anthropic-ai/claude-code"),
    "codex": _Client("@openai/codex", _configure_codex, "npm install -g @openai/codex"),
    "gemini": _Client("@google/gemini-cli", _configure_gemini, "npm install -g @google/gemini-cli"),
    "qwen": _Client("@qwen-code/qwen-code", _configure_qwen, "npm install -g @qwen-code/qwen-code"),
    "opencode": _Client("opencode-ai", _configure_opencode, "npm install -g opencode-ai"),
    "aider": _Client("aider-chat", _configure_aider, "pipx install aider-chat"),
}


def _insert(child: ChildCommand, position: int, *words: str) -> None:
    child.arguments[position + 1 : position + 1] = words


def _parse_settings(text: str, source: str) -> dict[str, Any]:
    try:
        settings = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{source} must contain a JSON object")
    return settings
