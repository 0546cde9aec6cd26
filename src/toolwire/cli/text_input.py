"""Read texts and chat templates for the commands about text formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.errors import ConfigError

if TYPE_CHECKING:
    from ..text.engine.format import Format

__all__ = ["format_of_template", "read_text"]


def read_text(file: str) -> str:
    """Read a file, or standard input for `-`; replace invalid UTF-8."""
    from .audit_input import read_bytes

    return read_bytes(file).decode("utf-8", "replace")


def format_of_template(file: str) -> Format:
    """Return the format of a chat template; raise ConfigError if it is unknown."""
    from ..text import detect_template, get

    name = detect_template(read_text(file))
    if name is None:
        raise ConfigError(f"no known text format in the template {file!r}", hint="choose one of `toolwire formats`")
    return get(name)
