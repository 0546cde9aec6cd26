"""A document with newer rows about vendors and models: reading, checking, comparing and using it. No I/O.

    {"date": "2026-11-19",
     "vendors": [{"name": "groq", "base_url": "https://api.groq.com/openai/v2"}],
     "models": [{"models": ["kimi-k4*"], "capabilities": {"window": 262144}, "source": "…", "date": "2026-11-19"}]}

A vendor's entry has the fields that differ from the built-in row, or all fields of a new vendor. Rows of models come
before the built-in rows. A document cannot name code to run, and regular expressions only if a built-in row has them,
because an expensive one could stop a server. It can change where keys are sent, so every such change is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ...ir.errors import ConfigError, ToolwireError
from ...ir.pointer import JSON
from ...ir.value import Value
from ...schema.dialects import dialect
from ..loopback import is_loopback
from . import profiles, vendors
from .capabilities import CapabilityRow, parse_capability_rows, refuse_unknown_field
from .rows import ROWS
from .vendor_codecs import vendor_codec
from .vendor_types import ApiKey, Surface, Vendor

_MAX_VENDORS = 500  # there are 50 built-in rows
_MAX_MODEL_ROWS = 5000  # there are 250 built-in rows, and each is tried for a new name of a model
_is_name = re.compile(r"[a-z0-9][a-z0-9-]{0,63}").fullmatch
_is_variable = re.compile(r"[A-Z][A-Z0-9_]{0,127}").fullmatch
_is_header = re.compile(r"[a-z0-9-]{1,64}").fullmatch
_is_printable = re.compile(r"[\x20-\x7e]*").fullmatch
_is_url = re.compile(r"(https?)://([a-zA-Z0-9.{}-]+)(?::\d{1,5})?(?:/[\w.{}/-]*)?").fullmatch
_ADDRESS_FIELDS = (
    "base_url",
    "base_urls",
    "base_variable",
    "location",
    "variables",  # fill the braces of addresses
    "regional_urls",
    "domains",
    "hosts",
    "surfaces",
    "keys",
    "headers",  # their braces are environment variables, too
    "signing_name",
)
"""The fields that decide to which servers keys and settings of the environment are sent."""


class RowUpdate(Value, frozen=True):
    """The rows of a document."""

    date: str
    vendors: tuple[Vendor, ...] = ()
    models: tuple[CapabilityRow, ...] = ()


class RowChange(NamedTuple):
    """A difference from the rows in use. `moves_keys`: keys may be sent to other servers."""

    row: str
    field: str
    before: str
    after: str
    moves_keys: bool


class _Document(Value, frozen=True, forbid_unknown_fields=True):
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    vendors: Annotated[list[dict[str, Any]], Meta(max_length=_MAX_VENDORS)] = []
    models: Annotated[list[Any], Meta(max_length=_MAX_MODEL_ROWS)] = []


def parse_row_update(document: JSON) -> RowUpdate:
    """Read and check a document. Raise ConfigError with the row and the field."""
    try:
        found = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"not an update of rows: {error}", hint="it has date, vendors and models") from None
    rows = tuple([_parse_vendor(entry) for entry in found.vendors])
    if len({row.name for row in rows}) < len(rows):
        raise ConfigError("two entries are about the same vendor")
    try:
        models = parse_capability_rows(found.models)
    except ConfigError as error:
        raise ConfigError(f"models: {error.message}", hint=error.hint) from None
    known = {(field, getattr(row.capabilities, field)) for row in ROWS for field in ("name", "id")}
    for number, row in enumerate(models):
        for field in ("name", "id"):
            _refuse_pattern((field, getattr(row.capabilities, field)), known, f"models: row {number}.{field}")
    return RowUpdate(found.date, rows, models)


def _parse_vendor(entry: dict[str, Any]) -> Vendor:
    name = entry.get("name")
    if not isinstance(name, str) or not _is_name(name):
        raise ConfigError(f"a vendor needs a name of small letters, digits and dashes, got {name!r:.80}")
    where = f"vendor {name}"
    refuse_unknown_field(entry, Vendor, where)
    builtin = vendors.BUILTIN.get(name)
    merged = {**({} if builtin is None else msgspec.to_builtins(builtin)), **entry}
    try:
        row = msgspec.convert(merged, Vendor)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    _check_vendor(row, builtin, where)
    return row


def _check_vendor(row: Vendor, builtin: Vendor | None, where: str) -> None:
    """Raise ConfigError for a value that cannot be used, or must not come from a document."""
    if row.transport != (None if builtin is None else builtin.transport):
        raise ConfigError(f"{where}: transport names code, which a document cannot change")
    if not row.base_url and not row.base_variable:
        raise ConfigError(f"{where}: needs a base_url")
    for url in (row.base_url, *row.regional_urls, *row.base_urls.values()):
        found = _is_url(url)
        if url and (found is None or (found[1] == "http" and not is_loopback(found[2]))):
            raise ConfigError(f"{where}: {url!r:.200} is not an https URL")
    known = {("id", other.id) for other in vendors.BUILTIN.values()}
    known |= {("hosts", other.hosts) for other in vendors.BUILTIN.values()}
    known |= {("api_versions", s.api_versions) for other in vendors.BUILTIN.values() for s in other.surfaces}
    for field in ("id", "hosts"):
        _refuse_pattern((field, getattr(row, field)), known, f"{where}.{field}")
    for surface in row.surfaces:
        _refuse_pattern(("api_versions", surface.api_versions), known, f"{where}.surfaces")
    _check_texts(row, where)
    try:
        dialect(vendor_codec(row).dialect)
    except ToolwireError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None


def _check_texts(row: Vendor, where: str) -> None:
    names = [key.variable for key in row.keys] + [name for names in row.variables.values() for name in names]
    names += [] if row.base_variable is None else [row.base_variable]
    headers = {key.header: key.prefix for key in row.keys} | row.headers
    for name in names:
        if not _is_variable(name):
            raise ConfigError(f"{where}: {name!r:.80} is not the name of an environment variable")
    for name, value in headers.items():
        if not _is_header(name) or not _is_printable(value):
            raise ConfigError(f"{where}: the header {name!r:.80} is not valid")
    for domain in row.domains:
        if domain.count(".") < 1 or _is_url(f"https://{domain}") is None:
            raise ConfigError(f"{where}: {domain!r:.80} is not a domain")


def _refuse_pattern(pattern: tuple[str, str | None], known: set[tuple[str, Any]], where: str) -> None:
    if pattern[1] is not None and pattern not in known:
        hint = "a new regular expression needs a release"
        raise ConfigError(f"{where}: no built-in row has the regular expression {pattern[1]!r:.80}", hint=hint)


def use_row_update(update: RowUpdate | None) -> None:
    """Use the rows of an update in this process, or only the built-in rows."""
    vendors.use_rows(() if update is None else update.vendors)
    profiles.use_rows(() if update is None else update.models)


def compare_rows(before: RowUpdate | None, after: RowUpdate | None) -> Iterator[RowChange]:
    """Yield the differences of the rows in use before and after an update; None: the built-in rows only."""
    old, new = (
        {**vendors.BUILTIN, **{row.name: row for row in (() if update is None else update.vendors)}}
        for update in (before, after)
    )
    for name in sorted(old.keys() | new.keys()):
        yield from _compare_vendors(name, old.get(name), new.get(name))
    models = [() if update is None else update.models for update in (before, after)]
    for row in models[0]:
        if row not in models[1]:
            yield RowChange(", ".join(row.models), "facts", _facts(row), "", moves_keys=False)
    for row in models[1]:
        if row not in models[0]:
            yield RowChange(", ".join(row.models), "facts", "", _facts(row), moves_keys=False)


def _compare_vendors(name: str, before: Vendor | None, after: Vendor | None) -> Iterator[RowChange]:
    for field in Vendor.__struct_fields__:
        values = [None if row is None else getattr(row, field) for row in (before, after)]
        if values[0] != values[1]:
            old, new = ("" if value is None else _show(value) for value in values)
            yield RowChange(f"vendor {name}", field, old, new, moves_keys=field in _ADDRESS_FIELDS)


def _show(value: object) -> str:
    if isinstance(value, (ApiKey, Surface, tuple, dict, frozenset)):
        return msgspec.json.encode(value, order="sorted").decode()
    return str(value)


def _facts(row: CapabilityRow) -> str:
    capabilities = msgspec.to_builtins(row.capabilities)
    known = {name: value for name, value in capabilities.items() if value is not None}
    return f"{msgspec.json.encode(known).decode()} (wires: {', '.join(row.wires) or 'all'}; {row.source}, {row.date})"
