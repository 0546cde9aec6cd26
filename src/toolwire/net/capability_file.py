"""Load a file of capability rows."""

from __future__ import annotations

from pathlib import Path

from ..ir.errors import ConfigError, ProtocolError
from ..stream.strict import parse
from ..wire.models.capabilities import CapabilityRow, parse_capability_rows

__all__ = ["load_capability_rows"]

_MAX_BYTES = 4 * 1024 * 1024


def load_capability_rows(file: str | Path) -> tuple[CapabilityRow, ...]:
    """Load capability rows from a JSON file; ConfigError names the file, the row and the field."""
    path = Path(file)
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        hint = "set capabilities_file to the path of a JSON file"
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} exceeds {_MAX_BYTES} bytes", hint="remove rows that are not used")
    try:
        return parse_capability_rows(parse(data))
    except ProtocolError as error:
        raise ConfigError(f"{path} is not valid JSON: {error.message}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None
