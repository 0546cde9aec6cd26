"""Load the settings of a gateway from a file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ..ir.errors import ConfigError
from .litellm_config import from_litellm
from .settings import Settings
from .settings_parse import parse_settings

__all__ = ["load_settings", "read_settings_text"]


def load_settings(file: str | Path) -> Settings:
    """Load settings from a file: ours (TOML), or the supported part of LiteLLM's (YAML)."""
    path = Path(file)
    text = read_settings_text(path)
    if path.suffix in (".yaml", ".yml"):
        return from_litellm(text)
    try:
        return parse_settings(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from None


def read_settings_text(path: Path) -> str:
    """Read a settings file; ConfigError if that is impossible."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="use --config to name another file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from None
