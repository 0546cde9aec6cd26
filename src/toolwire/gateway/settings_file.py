"""Settings files: load `toolwire.toml` or a LiteLLM file, and check the settings against this machine.

The same check finds the models of a LiteLLM file that can be used here, and the problems that `toolwire serve check`
reports.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from logging import getLogger
from pathlib import Path
from pathlib import Path as File

from msgspec.structs import replace

from .._extras import install_command
from ..asgi.access import refuse_open
from ..ir.errors import ConfigError, MissingExtra, ToolwireError
from ..ir.hints import translate_hint
from ..ir.pointer import JSON, Object
from ..ir.terminal import count_of
from ..net.model.endpoint_settings import load_capability_rows
from .config.credentials import check_certificate, configured_secrets
from .config.notation import SettingsPath, toml_location
from .config.parsing import SettingsProblem, parse_settings
from .config.settings import ModelRow, OpenApiRow, Settings, require_folder, require_store_folder, resolve_address
from .litellm.conversion import LitellmImport, convert_litellm
from .litellm.equivalents import ImportNote, group_notes
from .routing.health import HealthTable
from .routing.router import Router
from .routing.upstreams import ConfiguredUpstream, UpstreamTransports, upstreams_from_environment

# Check settings against the environment without starting the gateway: keys, addresses, files, and upstreams.
#
# Keys are looked up, but never part of a message.


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
    """Configure each upstream on its own. Return the upstreams that work by name, and the problems of the others."""
    transports, found, problems = UpstreamTransports(environment, settings), {}, []
    for name, row in (settings.upstreams or upstreams_from_environment(environment)).items():
        try:
            found[name] = ConfiguredUpstream(name, row, transports.of(name, row), environment)
        except ToolwireError as error:
            problems.append(
                SettingsProblem(("upstreams", name), _bare_message(error), translate_hint(error.hint, "setting"))
            )
    return found, problems


def _check_address(value: str | None, variable: str | None, path: SettingsPath, environment: Mapping[str, str]) -> None:
    require_store_folder(resolve_address(value, variable, str(path[-1]), environment), toml_location(path))


def _open_router(upstreams: Mapping[str, ConfiguredUpstream], settings: Settings) -> Router:
    return Router(upstreams, settings.models, cooldown=settings.limits.cooldown, health=HealthTable(time.monotonic))


def _attempt(path: SettingsPath, action: Callable[[], object]) -> list[SettingsProblem]:
    try:
        action()
    except ToolwireError as error:
        return [SettingsProblem(path, _bare_message(error), translate_hint(error.hint, "setting"))]
    return []


def _bare_message(error: ToolwireError) -> str:
    """Return the message without the location that it begins with."""
    return re.sub(r"\A\[[^\]]*\](?: \w+)?: ", "", error.message)


def _check_tools(settings: Settings, environment: Mapping[str, str]) -> Iterator[SettingsProblem]:
    """Yield the files, stores and variables of `[tools]` that do not exist."""
    for pattern, row in settings.tools.items():
        path: SettingsPath = ("tools", pattern)
        for number, file in enumerate(row.files):
            yield from _check_file(file, (*path, "files", number))
        yield from _attempt((*path, "store"), partial(require_store_folder, row.store, "[tools] store"))
        if row.mcp is not None:
            yield from _check_file(row.mcp, (*path, "mcp"))
        for number, api in enumerate(row.openapi):
            yield from _check_api(api, (*path, "openapi", number), environment)


def _check_api(api: OpenApiRow, path: SettingsPath, environment: Mapping[str, str]) -> Iterator[SettingsProblem]:
    yield from _check_file(api.file, (*path, "file"))
    variables = [(variable, "auth_env") for variable in api.variables.values()]
    variables += [(variable, "headers") for value in api.headers.values() for variable in _find_variables(value)]
    for variable, setting in variables:
        if not environment.get(variable, "").strip():
            message = f"environment variable {variable} is not set"
            yield SettingsProblem((*path, setting), message, f"export {variable}=…")


def _check_file(name: str, path: SettingsPath) -> Iterator[SettingsProblem]:
    if not File(name).is_file():
        yield SettingsProblem(path, f"no such file: {name}", "paths are relative to the working directory")


# Read a LiteLLM file with its includes, and keep the models that can be used on this machine.


_MAX_BYTES = 4 * 1024 * 1024  # thousands of keys and models; a larger file was named by mistake
_MAX_INCLUDES = 50  # files; enough for real ones, not measured


def parse_litellm_file(path: Path, environment: Mapping[str, str]) -> LitellmImport:
    """Convert a file and the files that it includes. Models whose key is not set are kept; see `keep_usable`."""
    document = _parse_yaml(_read_text(path), path.name)
    return convert_litellm(_merge_includes(document, path.parent), environment)


def from_litellm(text: str, environment: Mapping[str, str]) -> LitellmImport:
    """Convert the text of a file without includes, and keep the usable models."""
    return keep_usable(convert_litellm(_parse_yaml(text, "the file"), environment), environment)


def keep_usable(imported: LitellmImport, environment: Mapping[str, str]) -> LitellmImport:
    """Return the import without targets whose upstream cannot be used here, such as an upstream without a key.

    The notes list these targets. Raise ConfigError if no model is left: without upstreams, the gateway would offer all
    providers of the environment. Also if the variable of `master_key` is not set: without the key, the gateway would be open to every client.
    """
    if imported.missing_key:
        message = f"general_settings.master_key: environment variable {imported.missing_key} is not set"
        raise ConfigError(message, hint=f"set {imported.missing_key}")
    settings = imported.settings
    known = {**environment, **imported.variables, **imported.secrets}
    upstreams, problems = configure_upstreams(settings, known) if settings.upstreams else ({}, [])
    reasons = {str(problem.path[1]): problem for problem in problems}
    models, notes = {}, list(imported.notes)
    for name, row in settings.models.items():
        targets = tuple(target for target in row.targets if target.upstream in upstreams)
        for target in row.targets:
            if target.upstream not in upstreams:
                problem = reasons[target.upstream]
                notes.append(
                    ImportNote("skipped", f"{target.upstream}/{target.model}", problem.message, problem.hint, name)
                )
        if targets:
            models[name] = replace(row, targets=targets)
    if not models:
        raise _no_model_error(notes)
    used = {target.upstream for row in models.values() for target in row.targets}
    rows = {name: row for name, row in settings.upstreams.items() if name in used}
    settings = replace(settings, upstreams=rows, models=_prune_fallbacks(models))
    return replace(imported, settings=settings, notes=tuple(notes))


def require_complete(imported: LitellmImport) -> Settings:
    """Return the settings. Raise ConfigError if a model was skipped or a setting ignored."""
    rows = [row for row in group_notes(imported.notes) if row.kind != "changed"]
    if rows:
        message = f"{rows[0].where}: {rows[0].meaning}"
        raise ConfigError(
            f"{message}; {len(rows) - 1} more" if len(rows) > 1 else message,
            hint=rows[0].instead or "`toolwire serve check FILE` lists all of them; omit --strict to continue",
        )
    return imported.settings


def _no_model_error(notes: list[ImportNote]) -> ConfigError:
    reasons = [f"{note.model}: {note.meaning}" for note in notes if note.kind == "skipped" and note.model]
    rest = len(reasons) - 3
    shown = "; ".join(reasons[:3]) + (f"; {rest} more" if rest > 0 else "")
    message = f"no model of the file can be used{f' ({shown})' if shown else ''}"
    return ConfigError(message, hint="`toolwire serve check FILE` lists the reasons")


def _prune_fallbacks(models: dict[str, ModelRow]) -> dict[str, ModelRow]:
    return {
        name: replace(row, fallbacks=tuple(other for other in row.fallbacks if other in models))
        for name, row in models.items()
    }


def _merge_includes(document: JSON, folder: Path) -> JSON:
    """Merge included files as LiteLLM does: lists are joined, other sections are replaced."""
    names = document.get("include") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(names, list):
        return document
    merged: Object = dict(document)
    for name in names[:_MAX_INCLUDES]:
        included = _parse_yaml(_read_text(folder / str(name)), str(name))
        for key, value in included.items() if isinstance(included, dict) else ():
            previous = merged.get(key)
            merged[key] = [*previous, *value] if isinstance(previous, list) and isinstance(value, list) else value
    return merged


def _read_text(path: Path) -> str:
    """Read a LiteLLM file. Raise ConfigError if it is too large, not UTF-8, or cannot be read."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"cannot read {path}: more than {_MAX_BYTES} bytes")
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", hint="check the name of the file; `toolwire serve init` writes one"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from None


def _parse_yaml(text: str, name: str) -> JSON:
    """Parse YAML. Raise ConfigError if it is invalid, and MissingExtra without PyYAML. `name` is for the message."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("a YAML file needs PyYAML", hint=install_command("gateway")) from None
    try:
        document: JSON = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name} is not valid YAML: {str(error)[:500]}") from None
    return document


_log = getLogger("toolwire.gateway")
SCHEMA_FILE = Path(__file__).parent / "config" / "toolwire.schema.json"
"""The JSON Schema of a settings file, for editors; `make docs` writes it."""


def load_settings(file: str | Path) -> Settings:
    """Load settings from a file: ours (TOML), or the part of LiteLLM's (YAML) that has a meaning here.

    The number of LiteLLM's settings that are not used is logged. Raise ConfigError if the file is invalid.
    """
    path = Path(file)
    if is_litellm(path):
        imported = import_litellm(path)
        counts = {kind: sum(note.kind == kind for note in imported.notes) for kind in ("skipped", "ignored")}
        if any(counts.values()):
            skipped = count_of(counts["skipped"], "model or target", "models or targets")
            ignored = count_of(counts["ignored"], "setting")
            message = "%s: %s skipped, %s ignored; see `toolwire serve check %s`"
            _log.warning(message, path.name, skipped, ignored, path.name)
        return imported.settings
    try:
        return parse_settings(tomllib.loads(read_settings_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from None


def is_litellm(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


def import_litellm(path: Path) -> LitellmImport:
    """Import a LiteLLM file for a gateway in this process.

    As in LiteLLM, the variables of the file become variables of the process; so do keys that the file contains.
    """
    imported = keep_usable(parse_litellm_file(path, os.environ), os.environ)
    os.environ.update({**imported.variables, **imported.secrets})
    return imported


def read_settings_text(path: Path) -> str:
    """Read a settings file. Raise ConfigError if that is impossible."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", hint="check the name of the file; `toolwire serve init` writes one"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from None
