"""`toolwire serve keys`: keys for the clients of a gateway. The file of settings has their hashes, and nobody has the keys."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError
from .show import table

__all__ = ["CONFIG", "SUPPRESS", "add_to"]

CONFIG = "toolwire.toml"
SUPPRESS = argparse.SUPPRESS  # `serve --config F keys …` means the same as `serve keys … --config F`
_LIMITS = ("requests_per_minute", "tokens_per_minute", "tokens_per_day")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}").fullmatch
_BARE = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_EXAMPLES = """\
examples:
  toolwire serve keys new ann
  toolwire serve keys new ci --models 'gpt-*' small --requests-per-minute 60 --tokens-per-day 1000000
  toolwire serve keys list
  toolwire serve keys revoke ann

The key is shown once; the file has its hash. A running gateway reads its file anew on SIGHUP.
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "keys",
        help="make, list and revoke keys for clients",
        description="Keys for the clients of a gateway.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    new = actions.add_parser("new", help="make a key, and show it once")
    new.add_argument("name", metavar="NAME", help="whose it is: for logs, limits and usage")
    new.add_argument("--models", nargs="+", metavar="PATTERN", help="what it is good for; * is everything (*)")
    for limit in _LIMITS:
        new.add_argument(f"--{limit.replace('_', '-')}", type=int, metavar="N")
    new.set_defaults(run=_new)
    listing = actions.add_parser("list", help="show the keys that there are")
    listing.add_argument("--json", action="store_true", help="for machines")
    listing.set_defaults(run=_list)
    revoke = actions.add_parser("revoke", help="take a key out")
    revoke.add_argument("name", metavar="NAME")
    revoke.set_defaults(run=_revoke)
    for action in (new, listing, revoke):
        action.add_argument("--config", default=SUPPRESS, metavar="FILE", help=f"the settings ({CONFIG})")


def _new(arguments: argparse.Namespace) -> int:
    from ..gateway.keys import digest, new_key

    name, path = arguments.name, _file(arguments.config or CONFIG)
    if not _NAME(name):
        raise ConfigError(
            f"{name!r} is no name for a key", hint="letters and digits, and . _ @ - between them, up to 64"
        )
    text, document = _read(path, missing="")
    if name in document.get("keys", {}):
        raise ConfigError(f"there is a key called {name!r} already", hint="revoke it first, or take another name")
    key = new_key()
    row: dict[str, Any] = {"hash": digest(key)}
    if arguments.models:
        row["models"] = arguments.models
    row |= {limit: getattr(arguments, limit) for limit in _LIMITS if getattr(arguments, limit) is not None}
    _write(path, _appended(text, name, row), {**document, "keys": {**document.get("keys", {}), name: row}})
    print(key)
    print("it is not shown again; a running gateway knows it after SIGHUP", file=sys.stderr)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from ..gateway.settings import load

    keys = load(_file(arguments.config or CONFIG)).keys
    if arguments.json:
        import msgspec

        print(json.dumps({name: msgspec.to_builtins(row) for name, row in keys.items()}, indent=2))
        return 0
    rows = [
        (name, ", ".join(row.models), *("" if most is None else f"{most:,}" for most in map(row.__getattribute__, _LIMITS)))
        for name, row in keys.items()
    ]  # fmt: skip
    headers = ("key", "models", "requests a minute", "tokens a minute", "tokens a day")
    print("\n".join(table(rows, headers)) if rows else "there are no keys")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    name, path = arguments.name, _file(arguments.config or CONFIG)
    text, document = _read(path)
    keys = document.get("keys", {})
    if name not in keys:
        raise ConfigError(f"no key is called {name!r}", hint=f"there are {', '.join(keys) or 'none'}")
    left = {other: row for other, row in keys.items() if other != name}
    _write(path, _without(text, name), {**document, "keys": left})
    print(f"{name} is revoked; a running gateway knows it after SIGHUP", file=sys.stderr)
    return 0


def _file(name: str) -> Path:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"keys are not kept in {name}", hint=f"put them in a {CONFIG}")
    return path


def _read(path: Path, missing: str | None = None) -> tuple[str, dict[str, Any]]:
    """The text of a file of settings and what it says; `missing` is the text of one that is not there."""
    from ..gateway.settings import load

    if not path.exists() and missing is not None:
        return missing, {}
    load(path)  # what is wrong with it is said now, and not laid at the door of the new key
    text = path.read_bytes().decode("utf-8")
    return text, tomllib.loads(text)


def _appended(text: str, name: str, row: dict[str, Any]) -> str:
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    header = name if _BARE(name) else json.dumps(name)
    lines = [
        f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in row.items()
    ]  # JSON, as far as it goes, is TOML
    return "\n".join([f"{text}{gap}[keys.{header}]", *lines, ""])


def _without(text: str, name: str) -> str:
    """The text less one table: from its header to its last value. Comments behind that are the next table's."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        if _is_header(lines[start], name):
            while end > start + 1 and not lines[end - 1].partition("#")[0].strip():
                end -= 1
            before = start - 1 if start and not lines[start - 1].strip() else start
            return "".join([*lines[:before], *lines[end:]])
    return text


def _is_header(line: str, name: str) -> bool:
    try:
        return tomllib.loads(line) == {"keys": {name: {}}}
    except tomllib.TOMLDecodeError:
        return False


def _write(path: Path, text: str, wanted: dict[str, Any]) -> None:
    """The new text in place of the old, if it says what it should and nothing else."""
    from ..gateway.settings import from_document

    try:
        said: dict[str, Any] | None = {"keys": {}, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError:
        said = None
    if said != wanted:
        raise ConfigError(
            f"the keys of {path.name} are written in a way that cannot be edited here",
            hint="write each as a table of its own: [keys.NAME]",
        )
    from_document(said)
    _replace(path.resolve(), text)


def _replace(path: Path, text: str) -> None:
    """At once: a gateway that reads it meanwhile sees the old or the new."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
