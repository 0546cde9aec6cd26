"""Load the settings of a gateway from a file."""

from __future__ import annotations

import os
import tomllib
from logging import getLogger
from pathlib import Path

from ..ir.errors import ConfigError
from ..ir.terminal import count_of
from .litellm.litellm_convert import LitellmImport
from .litellm.litellm_file import keep_usable, parse_litellm_file
from .settings import Settings
from .settings_parse import parse_settings

__all__ = ["import_litellm", "is_litellm", "load_settings", "read_settings_text"]

_log = getLogger("toolwire.gateway")


def load_settings(file: str | Path) -> Settings:
    """Load settings from a file: ours (TOML), or the part of LiteLLM's (YAML) that has a meaning here.

    The number of settings of LiteLLM that are not used is logged.
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
    """Read a settings file; ConfigError if that is impossible."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", hint="check the name of the file; `toolwire serve init` writes one"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from None
