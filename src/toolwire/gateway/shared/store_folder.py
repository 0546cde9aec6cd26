"""Check that the folder of a file exists when the gateway starts, not at the first request."""

from __future__ import annotations

from pathlib import Path

from ...ir.errors import ConfigError

__all__ = ["require_folder", "require_store_folder"]


def require_store_folder(address: str | None, setting: str) -> None:
    """Check the folder of a store in a file. An address of a server has none."""
    path = "" if address is None or address == "memory:" else address.removeprefix("sqlite:///")
    if path and "://" not in path:
        require_folder(path, setting)


def require_folder(file: str, setting: str) -> None:
    """Raise ConfigError if the folder of a file does not exist. `setting` is the location of the path."""
    folder = Path(file).parent
    if not folder.is_dir():
        raise ConfigError(f"{setting}: the folder {folder} does not exist", hint="create it, or change the path")
