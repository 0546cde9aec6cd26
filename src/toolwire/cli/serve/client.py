"""`toolwire serve client`: show the settings that point a client at the gateway; `--write` applies them."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...ir.errors import ConfigError
from ...ir.response import UpstreamError
from ...run.traces.redact import Redactor
from ..sources.documents import replace_file
from ..terminal.options import add_command, add_config, add_flag, add_model
from ..terminal.output import paint, print_note
from .client_models import (
    ANY_KEY,
    ChosenModels,
    ModelLimits,
    check_key,
    choose_models,
    claude_variables,
    find_limits,
    find_models,
    shell_words,
)

_HELP = """\
Show, or with --write apply, a client's settings for the gateway.

examples:
  toolwire serve client claude            show the settings and the shell command
  toolwire serve client claude --model fast --small-model tiny
  toolwire serve client codex --write     change ~/.codex/config.toml; the old file is kept as config.toml.bak
  toolwire serve client gemini --url http://gateway:4141 --key-env TOOLWIRE_KEY

Without --model, the models are those of the running gateway, or of the settings file.
exit codes: 0 done   2 wrong usage, or the gateway requires a key or has no model for this client
"""
_URL = "http://127.0.0.1:4141"
KEY_VARIABLE = "TOOLWIRE_KEY"
_NOT_RUNNING = frozenset({"overloaded", "timeout"})  # kinds of faults
# The end of a field's or option's name whose value is a secret; `env_key` is the name of a variable.
_HIDDEN_NAMES = (
    "(?<!env_)(?:key|token|secret|password|passwd|passphrase|credentials?|authorization|cookie|headers|bearer)"
)
_is_secret_name = re.compile(_HIDDEN_NAMES + "$", re.IGNORECASE).search
_SECRET_IN_TOML = re.compile(
    rf"""({_HIDDEN_NAMES}["']?\s*=\s*)"""
    r"""(\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\{[^}]*\}|\[[^\]]*\]|[^\s,#\]}]+)""",
    re.IGNORECASE | re.DOTALL,
)
# an option and its value in one argument of a command, such as `--api-key=…`
_SECRET_OPTION = re.compile(rf"({_HIDDEN_NAMES}[=:]).+", re.IGNORECASE | re.DOTALL)
_HIDDEN = "[hidden]"
_CLAUDE_ALIASES = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL")


class FileChange(NamedTuple):
    """A settings file of a client and its new content."""

    path: Path
    text: str


def add_to(commands: Any) -> None:
    """Register `toolwire serve client` with its options."""
    parser = add_command(commands, "client", "point a client at the gateway", _HELP, run)
    parser.add_argument("client", choices=sorted(_CLIENTS))
    parser.add_argument("--url", default=_URL, help=f"URL of the gateway ({_URL})")
    add_model(parser, "the model to request (one of the gateway that accepts tools)")
    parser.add_argument("--small-model", metavar="MODEL", help="Claude Code: the model for background tasks")
    add_config(parser, is_nested=True)
    parser.add_argument(
        "--key-env", metavar="NAME", help="environment variable with your key, if the gateway requires one"
    )
    add_flag(parser, "--write", "change the client's settings")
    parser.add_argument("--home", type=Path, default=None, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Print the changes of the client's settings without the key, and apply them with `--write`.

    Raises `ConfigError` for --write if no model can be named.
    """
    home = arguments.home or Path.home()
    key = _read_key(arguments.key_env)
    shown = ANY_KEY if arguments.key_env is None else f"${arguments.key_env}"
    url = arguments.url.rstrip("/")
    models = _choose_models(arguments, url, key)
    limits = find_limits(url, key, models.main, getattr(arguments, "config", None))
    changes, advice = _CLIENTS[arguments.client](home, url, models, limits, key, shown)
    for change in changes:
        _print_change(change, key, shown if arguments.key_env is None else f"[the key in {shown}, as text]")
    if arguments.write and models.is_placeholder:
        upstream = models.main
        raise ConfigError(
            f"the gateway has upstreams, but no names of models: {upstream} is a placeholder",
            hint="name a model: --model UPSTREAM/MODEL",
        )
    if not arguments.write:
        print(f"\n{advice}\n{paint('nothing was changed; use --write to apply the changes', 'dim')}")
        return 0
    for change in changes:
        _write(change)
    print(f"\n{advice}")
    return 0


def _choose_models(arguments: argparse.Namespace, url: str, key: str) -> ChosenModels:
    """Return the models of the options, else the models that the gateway or its settings file offer for the client.

    Both are None, with a note, if the gateway does not run or lists no models. Raises `ConfigError` if it refuses the
    request, needs a key or has no suitable model.
    """
    client, small = arguments.client, arguments.small_model
    if small is not None and client != "claude":
        raise ConfigError(f"{client} has no small model", hint="remove --small-model")
    try:
        if arguments.model is not None:
            check_key(url, key)
            return ChosenModels(arguments.model, small or arguments.model)
        available = find_models(url, key, arguments.config)
    except UpstreamError as error:
        if error.fault.kind not in _NOT_RUNNING:
            raise _refusal_of(error, url, arguments.key_env) from None
        print_note(f"{error.message}: start the gateway, or use --model", None)
        return ChosenModels(None, None)
    if available.requires_key and arguments.key_env is None:
        raise _key_required(url)
    chosen = choose_models(client, available)
    if chosen is None and available.is_empty:  # it serves patterns or upstreams, which it does not list
        print_note(f"the gateway at {url} lists no models: use --model to name one", None)
        return ChosenModels(None, None)
    if chosen is None:
        names = ", ".join(available.names) or "none"
        raise ConfigError(
            f"the gateway has no model that {client} can use; its models: {names}",
            hint="configure a model that accepts tools, or use --model",
        )
    return chosen if small is None else ChosenModels(chosen.main, small)


def _refusal_of(error: UpstreamError, url: str, variable: str | None) -> ConfigError:
    """Return the error for a gateway that answers without a list of its models. `variable` has the key, if any."""
    status = error.fault.status
    if status == 401 and variable is None:
        return _key_required(url)
    if status == 401:
        return ConfigError(error.message, hint=f"check the key in the environment variable {variable}")
    if status == 403:
        return ConfigError(f"{url} refuses the request (status 403)", hint="add its host name to hosts in [server]")
    return ConfigError(error.message, hint="check --url, or use --model")


def _key_required(url: str) -> ConfigError:
    hint = "put your key into an environment variable, and use --key-env NAME"
    return ConfigError(f"the gateway at {url} requires a key", hint=hint)


def _read_key(variable: str | None) -> str:
    """Return the key, or a placeholder for a gateway without keys. Raises `ConfigError` if the variable is not set."""
    if variable is None:
        return ANY_KEY
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"environment variable {variable} is not set", hint="create a key with `toolwire serve keys new NAME`"
        )
    return key


def _print_change(change: FileChange, key: str, shown: str) -> None:
    """Print the changes of a file as a diff, with `shown` in place of the key. Other secrets are hidden, too.

    TOML has no values to search for secrets, only text, since it is edited as text. So unchanged lines are not shown.
    """
    before = _read(change.path)
    if before == change.text:
        print(f"{change.path} is already up to date")
        return
    names, is_json = (str(change.path), str(change.path)), change.path.suffix == ".json"
    hide = _hide_in_json if is_json else _hide_in_toml
    old, new = (hide(text, key, shown).splitlines() for text in (before, change.text))
    for line in difflib.unified_diff(old, new, *names, n=3 if is_json else 0, lineterm=""):
        colour = {"+": "green", "-": "red"}.get(line[:1])
        print(line if colour is None else paint(line, colour))


def _hide_in_toml(text: str, key: str, shown: str) -> str:
    """Replace the values of fields such as `experimental_bearer_token`, and texts that look like keys."""
    hidden = _SECRET_IN_TOML.sub(lambda found: found[1] + json.dumps(_HIDDEN), text)
    return Redactor()(hidden.replace(key, shown))


def _hide_in_json(text: str, key: str, shown: str) -> str:
    """Replace the values of fields such as `ANTHROPIC_AUTH_TOKEN`: the key by `shown`, others by `[hidden]`."""
    redact = Redactor()

    def hide(value: Any, *, is_secret: bool) -> Any:
        match value:
            case dict():
                return {
                    name: hide(item, is_secret=is_secret or bool(_is_secret_name(name))) for name, item in value.items()
                }
            case list():  # arguments of a command, such as `"--api-key", "…"`
                follows = [False, *(isinstance(item, str) and bool(_is_secret_name(item)) for item in value)]
                return [hide(item, is_secret=is_secret or after) for item, after in zip(value, follows, strict=False)]
            case str() if value == key:
                return shown
            case str() | int() | float() if is_secret and not isinstance(value, bool):
                return _HIDDEN
            case str():
                return redact(_SECRET_OPTION.sub(rf"\1{_HIDDEN}", value.replace(key, shown)))
            case _:
                return value

    return _dump_json(hide(json.loads(text), is_secret=False)) if text.strip() else ""


def _write(change: FileChange) -> None:
    """Write the new settings, keep the old file with the suffix `.bak`, and print the path; nothing if they are equal."""
    change.path.parent.mkdir(parents=True, exist_ok=True)
    before = _read(change.path)
    if before == change.text:
        return
    if before:
        saved = change.path.with_name(change.path.name + ".bak")
        if saved.exists():  # an older one may be readable for all
            saved.chmod(0o600)
        replace_file(saved, before)
    replace_file(change.path, change.text)
    print_note(f"wrote {change.path}", None)


def _read(path: Path) -> str:
    """Return the content of a file, or an empty string if it does not exist. Raise ConfigError if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def _claude_changes(
    home: Path, url: str, models: ChosenModels, limits: ModelLimits, key: str, shown: str
) -> tuple[list[FileChange], str]:
    """Return the new settings of Claude Code, and a shell command with the placeholder `shown` for the key.

    In the settings, all of its model aliases are replaced, so that no command of a session requests an unknown model.
    """
    path = home / ".claude" / "settings.json"
    settings = read_json(path)
    address, chosen = {"ANTHROPIC_BASE_URL": url}, claude_variables(models, limits)
    aliases = {name: models.main for name in _CLAUDE_ALIASES if models.main is not None}
    previous = settings.get("env", {})
    settings["env"] = {**previous, **address, "ANTHROPIC_AUTH_TOKEN": key, **chosen, **aliases}
    shell = shell_words({**address, "ANTHROPIC_AUTH_TOKEN": shown, **chosen})
    return [FileChange(path, _dump_json(settings))], f"or for one run: {shell} claude -p '…'"


def _codex_changes(
    home: Path, url: str, models: ChosenModels, limits: ModelLimits, _: str, shown: str
) -> tuple[list[FileChange], str]:
    """Return the new settings of Codex, and the command to run it.

    The file is edited as text, to keep the user's comments. Raises `ConfigError` for invalid TOML and an existing
    provider of this name.
    """
    model = models.main
    path = home / ".codex" / "config.toml"
    before = _read(path)
    try:
        known = tomllib.loads(before)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    if "toolwire" in known.get("model_providers", {}):
        raise ConfigError(f"{path} already has a provider named toolwire", hint="remove its table first")
    settings = {"model_provider": "toolwire", "model": model, "model_context_window": limits.window}
    written = {name: value for name, value in settings.items() if value is not None}
    top = [f"{name} = {json.dumps(value)}" for name, value in written.items()]
    lines = before.splitlines()
    tables_at = next((index for index, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    kept = [
        line
        for index, line in enumerate(lines)
        if index >= tables_at or line.split("=", 1)[0].strip() not in written  # a profile has a `model`, too
    ]
    provider = codex_provider(url)
    table = ["[model_providers.toolwire]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
    text = "\n".join([*top, *kept, *([""] if kept else []), *table]) + "\n"
    providers = {**known.get("model_providers", {}), "toolwire": provider}
    if _parse_toml(text) != {**known, **written, "model_providers": providers}:
        hint = f"write {', '.join(written)} on lines of their own at the top, and each provider as a table"
        raise ConfigError(f"cannot edit {path} without changing other settings", hint=hint)
    return [FileChange(path, text)], f"then: {KEY_VARIABLE}={shown} codex exec '…'"


def _parse_toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def codex_provider(url: str) -> dict[str, str | bool]:
    """Return the settings of the gateway as a provider of Codex. The key is in a variable.

    With WebSockets, each request of Codex has only the new items of its conversation (core/src/client.rs of openai/codex).
    The catalogue has the context windows, and makes Codex declare `apply_patch` and allow images.
    """
    return {
        "name": "toolwire",
        "base_url": f"{url}/v1",
        "env_key": KEY_VARIABLE,
        "wire_api": "responses",
        "supports_websockets": True,
        "model_catalog_url": f"{url}/v1/models",
    }


def _gemini_changes(
    home: Path, url: str, models: ChosenModels, _limits: ModelLimits, _key: str, shown: str
) -> tuple[list[FileChange], str]:
    """Return the new settings of Gemini CLI. URL and key are given in its environment, not in the file."""
    path = home / ".gemini" / "settings.json"
    settings = select_gemini_key(path)
    if models.main is not None:
        settings.setdefault("model", {})["name"] = models.main
    shell = f"GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY={shown}"
    return [FileChange(path, _dump_json(settings))], f"then: {shell} gemini -p '…'"


def select_gemini_key(path: Path) -> dict[str, Any]:
    """Return the settings of Gemini CLI in a file, with its key from the environment instead of a login."""
    settings: dict[str, Any] = read_json(path)
    settings.setdefault("security", {}).setdefault("auth", {})["selectedType"] = "gemini-api-key"
    return settings


def read_json(path: Path) -> Any:
    """Return the JSON object in a file, or an empty object for an empty file.

    Raises `ConfigError` for anything else.
    """
    text = _read(path)
    try:
        document = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must contain a JSON object")
    return document


def _dump_json(settings: Any) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


_CLIENTS: dict[str, Callable[[Path, str, ChosenModels, ModelLimits, str, str], tuple[list[FileChange], str]]] = {
    "claude": _claude_changes,
    "codex": _codex_changes,
    "gemini": _gemini_changes,
}
