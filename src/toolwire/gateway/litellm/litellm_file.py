"""Read a LiteLLM file with its includes, and keep the models that can be used on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ..._extras import install_command
from ...ir.errors import ConfigError, MissingExtra
from ...ir.pointer import JSON, Object
from ..settings import ModelRow, Settings
from ..settings_check import configure_upstreams
from .import_report import ImportNote, group_notes
from .litellm_convert import LitellmImport, convert_litellm

__all__ = ["from_litellm", "keep_usable", "parse_litellm_file", "require_complete"]

_MAX_BYTES = 4 * 1024 * 1024
_MAX_INCLUDES = 50


def parse_litellm_file(path: Path, environment: Mapping[str, str]) -> LitellmImport:
    """Convert a file and the files that it includes. Models whose key is not set are kept; see `keep_usable`."""
    document = _parse_yaml(_read_text(path), path.name)
    return convert_litellm(_merge_includes(document, path.parent), environment)


def from_litellm(text: str, environment: Mapping[str, str]) -> LitellmImport:
    """Convert the text of a file without includes, and keep the usable models."""
    return keep_usable(convert_litellm(_parse_yaml(text, "the file"), environment), environment)


def keep_usable(imported: LitellmImport, environment: Mapping[str, str]) -> LitellmImport:
    """Return the import without the targets whose upstream cannot be used here, such as those without a key.

    ConfigError if no model is left: without upstreams, the gateway would offer all providers of the environment. Also
    if the variable of `master_key` is not set: without the key, the gateway would be open to every client.
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
    """Return the settings; ConfigError if a model was skipped or a setting ignored."""
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
    try:
        import yaml
    except ImportError:
        raise MissingExtra("a YAML file needs PyYAML", hint=install_command("gateway")) from None
    try:
        document: JSON = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name} is not valid YAML: {str(error)[:500]}") from None
    return document
