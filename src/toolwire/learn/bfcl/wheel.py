"""The files of the wheel `bfcl-eval`: the data of the leaderboard as JSON Lines, one file per category."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ...ir.errors import ConfigError, MissingExtra
from ...ir.pointer import Object

__all__ = ["PACKAGE", "answer_rows", "class_rows", "entry_rows", "find_data"]

PACKAGE = "bfcl_eval"
_INSTALL = "pip install --no-deps bfcl-eval"
_CLASS_FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The file of the functions of each class that multi-turn entries name."""


def find_data() -> Path:
    """Return the folder of the data; raise MissingExtra if the wheel is not installed. Nothing of it is imported."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.origin:
        raise MissingExtra("the leaderboard's data require the wheel bfcl-eval", hint=_INSTALL)
    folder = Path(spec.origin).parent / "data"
    if not folder.is_dir():
        raise MissingExtra(f"the installed wheel bfcl-eval has no folder {folder.name}", hint=_INSTALL)
    return folder


def entry_rows(category: str, folder: Path) -> Iterator[Object]:
    """Yield the entries of a category as they are in the file."""
    return _rows(folder / _file_name(category, folder))


def answer_rows(category: str, folder: Path) -> Iterator[Object]:
    """Yield the ground truth of a category; nothing for a category without one."""
    file = folder / "possible_answer" / _file_name(category, folder)
    return _rows(file) if file.is_file() else iter(())


def class_rows(name: str, folder: Path) -> Iterator[Object]:
    """Yield the functions of a class of the multi-turn categories."""
    if name not in _CLASS_FILES:
        raise ConfigError(f"unknown class {name!r} of the leaderboard", hint=f"known are {', '.join(_CLASS_FILES)}")
    return _rows(folder / "multi_turn_func_doc" / f"{_CLASS_FILES[name]}.json")


def _file_name(category: str, folder: Path) -> str:
    """Return the file name of a category; it contains the version of the leaderboard."""
    for file in sorted(folder.glob(f"BFCL_v*_{category}.json"), reverse=True):
        if file.stem.partition("_v")[2].partition("_")[2] == category:
            return file.name
    raise ConfigError(f"the data of the leaderboard have no category {category!r}", hint=f"see the files in {folder}")


def _rows(file: Path) -> Iterator[Object]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=dict)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{file}, line {number}: {error}", hint=f"reinstall the wheel: {_INSTALL}") from None
