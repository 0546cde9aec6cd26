"""Rows about vendors and models that the user has accepted: fetched on demand, kept in a file, and used by each process.

The file is `toolwire/models.json` in the user's state folder (`XDG_STATE_HOME`, or `~/.local/state`). It is the accepted
document, byte for byte, and `models.previous.json` is the one before it. Only `toolwire models update` writes them; nothing
is fetched without that command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import aclosing, suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from ...ir.errors import ConfigError, ProtocolError
from ...stream.strict import parse
from ...wire.models.row_update import RowUpdate, parse_row_update, use_row_update
from ..http.client import HttpTransport
from ..http.head import parse_base_url
from .endpoint_settings import vendor_at

_MAX_BYTES = 2 * 1024 * 1024  # the built-in rows are 200 kB as JSON
_FETCH_SECONDS = 30.0  # seconds for a document of this size over a slow connection


def rows_file(environment: Mapping[str, str]) -> Path | None:
    """Return the file of the accepted rows, which may not exist; None without a home."""
    folder, home = environment.get("XDG_STATE_HOME"), environment.get("HOME")
    if not folder and not home:
        return None
    return (Path(folder) if folder else Path(home or "", ".local", "state")) / "toolwire" / "models.json"


def use_saved_rows(environment: Mapping[str, str]) -> None:
    """Use the accepted rows in this process; the file is read once. Raise ConfigError if it is not usable."""
    file = rows_file(environment)
    if file is not None:
        _use_file(file)


@lru_cache(8)
def _use_file(file: Path) -> None:
    use_rows(load_saved_rows(file))


def use_rows(update: RowUpdate | None) -> None:
    """Use the rows of an update, or only the built-in rows."""
    use_row_update(update)
    vendor_at.cache_clear()


def load_saved_rows(file: Path) -> RowUpdate | None:
    """Read the accepted rows; None if there are none. Raise ConfigError if the file is not usable."""
    if not file.exists():
        return None
    try:
        return parse_rows(read_rows_file(file))
    except ConfigError as error:
        hint = "`toolwire models update --revert` goes back to the rows before it"
        raise ConfigError(f"{file}: {error.message}", hint=hint) from None


def parse_rows(data: bytes) -> RowUpdate:
    """Read a document. Raise ConfigError if it is not JSON, or has a row that cannot be used."""
    try:
        return parse_row_update(parse(data))
    except ProtocolError as error:
        raise ConfigError(f"not valid JSON: {error.message}") from None


def read_rows_file(file: Path) -> bytes:
    """Return the content of a file. Raise ConfigError if it cannot be read, or is too large."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    return _check_size(data, str(file))


def _check_size(data: bytes, source: str) -> bytes:
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{source} exceeds {_MAX_BYTES} bytes")
    return data


async def fetch_rows(url: str, environment: Mapping[str, str]) -> bytes:
    """Fetch a document over https, or over http from this machine. Raise ConfigError if that fails in any way."""
    parse_base_url(url, insecure=False)
    where = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
    received, status = bytearray(), 0
    try:
        async with (
            asyncio.timeout(_FETCH_SECONDS),
            aclosing(HttpTransport(environment=environment)) as transport,
            transport.send("GET", url, {"accept": "application/json"}, {}, b"", _FETCH_SECONDS) as reply,
        ):
            status = reply.status
            while status == 200 and len(received) <= _MAX_BYTES and (piece := await reply.read()):
                received += piece
    except (OSError, TimeoutError, ProtocolError) as error:
        reason = str(error) or f"no document within {_FETCH_SECONDS:g} s"
        raise ConfigError(f"cannot fetch rows from {where}: {reason}") from None
    if status != 200:
        hint = "pass the address that it redirects to" if 300 <= status < 400 else ""
        raise ConfigError(f"{where} answered {status} to a request for rows", hint=hint)
    return _check_size(bytes(received), where)


def save_rows(file: Path, data: bytes) -> None:
    """Keep an accepted document, and the one before it for `revert_rows`. Raise ConfigError if that fails."""
    temporary = file.with_suffix(f".{os.getpid()}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        if file.exists():
            file.replace(_previous(file))
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None
    _use_file.cache_clear()


def revert_rows(file: Path) -> RowUpdate | None:
    """Go back to the document before the accepted one, or to the built-in rows; return its rows.

    Raise ConfigError if there is nothing to revert, or the document before is not usable, which changes nothing.
    """
    previous = _previous(file)
    update = load_saved_rows(previous)
    try:
        if previous.exists():
            previous.replace(file)
        else:
            file.unlink()
    except FileNotFoundError:
        raise ConfigError("the built-in rows are in use, so there is nothing to revert") from None
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None
    _use_file.cache_clear()
    return update


def _previous(file: Path) -> Path:
    return file.with_name("models.previous.json")
